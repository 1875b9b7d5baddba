"""How far keys move by themselves, row by row: which swaps that explains, and which it does not.

A row's sigma is the standard deviation of the *difference* of two experts' key perturbations, as
only a difference can swap them. What moves all keys of a row alike moves no set and is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.stats import norm, poisson

from ...banks.errors import InputError
from .rates import holm
from .swaps import SET_CODE, SetClass

F64 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]

BANDS: Final = (0.0, 1.0, 2.0, 3.0)
"""Lower ends of the bands of margin / sigma; the last band begins where noise never reaches."""


def row_sigma(perturbations: npt.NDArray[np.floating[Any]]) -> F64:
    """Return sigma [row] of measured perturbations [run, row, expert] of the keys.

    The variance over the experts about the row's mean, of each run, averaged over the runs, twice:
    two experts' perturbations are taken as independent. Elements that are not finite are left out.

    Returns:
        float64 [row]; NaN where no run has two finite elements.

    Raises:
        InputError: another number of axes.
    """
    if perturbations.ndim != 3:
        raise InputError("perturbations.shape", perturbations.shape, "[run, row, expert]", "noise")
    known = np.isfinite(perturbations)
    values = np.where(known, perturbations, 0.0).astype(np.float64)
    counts = known.sum(axis=2)
    means = values.sum(axis=2) / np.maximum(counts, 1)
    squares = (np.where(known, values - means[:, :, None], 0.0) ** 2).sum(axis=2)
    used = counts >= 2
    variances = np.where(used, squares / np.maximum(counts - 1, 1), 0.0).sum(axis=0)
    runs = used.sum(axis=0)
    return np.where(runs > 0, np.sqrt(2.0 * variances / np.maximum(runs, 1)), np.nan)


def reach(rows: int, confidence: float = 0.95) -> float:
    """Return how many sigma normal noise moves two keys at most, on any of so many rows.

    The chance that it goes further on a single row is (1 - confidence) / rows (Bonferroni).

    Raises:
        InputError: no rows, or a confidence not between 0 and 1.

    Example:
        >>> round(reach(3_200_000), 2)
        5.53
    """
    if rows < 1:
        raise InputError("rows", rows, "at least 1", "noise")
    if not 0.0 < confidence < 1.0:
        raise InputError("confidence", confidence, "between 0 and 1", "noise")
    return float(norm.isf((1.0 - confidence) / rows))


def separate(
    set_class: I8, rows: npt.NDArray[np.int64], gap_abs: F64, sigma: F64, confidence: float = 0.95
) -> I8:
    """Return the set classes with 1-for-1 swaps beyond the window told by their own row's sigma.

    A swap is a ``noise_swap`` where its gap is within ``reach`` sigma, else a ``far_swap``. Without
    a sigma (NaN) nothing explains it.

    Args:
        set_class: int8 [row], codes of ``SET_CLASSES``.
        rows: int64 [n], rows whose sets differ.
        gap_abs: float64 [n], absolute gap of their exchanged keys; NaN where undefined.
        sigma: float64 [row], see ``row_sigma``.
        confidence: of ``reach`` over all rows given.

    Raises:
        InputError: lengths differ, or a sigma is negative.
    """
    if sigma.shape != set_class.shape or gap_abs.shape != rows.shape:
        got = (sigma.shape, gap_abs.shape)
        raise InputError("sigma, gap_abs", got, (set_class.shape, rows.shape), "noise")
    _check_sigma(sigma)
    found = set_class.copy()
    if not len(set_class):
        return found
    limit = reach(len(set_class), confidence)
    one = np.isin(set_class[rows], (SET_CODE[SetClass.NOISE_SWAP], SET_CODE[SetClass.FAR_SWAP]))
    with np.errstate(invalid="ignore"):
        noise = gap_abs <= limit * sigma[rows]
    found[rows[one & noise]] = SET_CODE[SetClass.NOISE_SWAP]
    found[rows[one & ~noise]] = SET_CODE[SetClass.FAR_SWAP]
    return found


@dataclass(frozen=True, slots=True)
class Band:
    """Rows whose margin lies ``low`` sigma and more from 0, below the next band.

    ``p_surplus`` is the chance of at least ``observed`` swaps where ``expected`` are right.
    """

    low: float
    rows: int
    expected: float
    observed: int
    p_surplus: float


@dataclass(frozen=True, slots=True)
class NoiseTest:
    """Observed swaps beside those that the noise predicts.

    Attributes:
        rows: rows with a margin and a sigma.
        undefined: rows without.
        exact: rows that noise cannot move: sigma 0. A swap among them with a margin above 0 is in
            the last band, where none is expected.
        expected: predicted number of swaps.
        low, high: interval of that number, two-sided, at the confidence.
        observed: swaps.
        bands: the same by margin / sigma.
        answer: ``surplus`` (not only noise), ``deficit`` or ``agrees``; ``unknown`` without rows.
        p_deficit: chance of at most so many swaps.
        confidence: of the answer, over all bands together.
    """

    rows: int
    undefined: int
    exact: int
    expected: float
    low: int
    high: int
    observed: int
    bands: tuple[Band, ...]
    answer: str
    p_deficit: float
    confidence: float


def judge_swaps(margin: F64, sigma: F64, swapped: Bools, confidence: float = 0.95) -> NoiseTest:
    """Return whether swaps are as many, at each distance, as the rows' own noise predicts.

    A row swaps its experts K and K + 1 where normal noise exceeds the margin: with probability
    Q(margin / sigma). Near ties drown a few swaps that are none; in a band of wide margins nothing
    is expected, so those few stand out there. Poisson tails are no smaller than those of the sum of
    unlike rows (W. Hoeffding, Ann. Math. Statist. 27(3), 1956); Holm over the bands.

    Args:
        margin: float64 [row], K-th minus next key of the baseline; NaN where undefined.
        sigma: float64 [row], see ``row_sigma``: of candidate keys minus baseline keys.
        swapped: [row], whether the sets differ.
        confidence: of ``surplus`` and of ``deficit``, each.

    Raises:
        InputError: lengths differ, a sigma or a margin is negative.
    """
    if not margin.shape == sigma.shape == swapped.shape or margin.ndim != 1:
        got = (margin.shape, sigma.shape, swapped.shape)
        raise InputError("margin, sigma, swapped", got, "one length", "noise")
    _check_sigma(sigma)
    if (margin < 0.0).any():
        raise InputError("margin", float(np.nanmin(margin)), "at least 0", "noise")
    known = np.isfinite(margin) & np.isfinite(sigma)
    undefined = int(np.count_nonzero(~known))
    margin, sigma, swapped = margin[known], sigma[known], swapped[known]
    if not len(margin):
        return NoiseTest(0, undefined, 0, 0.0, 0, 0, 0, (), "unknown", 1.0, confidence)
    distance = np.full(len(margin), np.inf)
    # A tie of two keys that nothing moves: the order decides, as a coin would.
    distance[margin == 0.0] = 0.0
    np.divide(margin, sigma, out=distance, where=sigma > 0.0)
    chances = norm.sf(distance)
    bands = _bands(distance, chances, swapped, reach(len(margin), confidence))
    expected, observed = math.fsum(chances), int(np.count_nonzero(swapped))
    alpha = 1.0 - confidence
    p_deficit = float(poisson.cdf(observed, expected))
    answer = "agrees"
    if any(holm([band.p_surplus for band in bands], alpha)):
        answer = "surplus"
    elif p_deficit <= alpha:
        answer = "deficit"
    return NoiseTest(
        rows=len(margin),
        undefined=undefined,
        exact=int(np.count_nonzero(sigma == 0.0)),
        expected=expected,
        low=int(poisson.ppf(alpha / 2, expected)),
        high=int(poisson.isf(alpha / 2, expected)),
        observed=observed,
        bands=bands,
        answer=answer,
        p_deficit=p_deficit,
        confidence=confidence,
    )


def _bands(distance: F64, chances: F64, swapped: Bools, far: float) -> tuple[Band, ...]:
    lows = (*(low for low in BANDS if low < far), far)
    place = np.searchsorted(np.array(lows), distance, side="right") - 1
    found = []
    for number, low in enumerate(lows):
        here = place == number
        expected = math.fsum(chances[here])
        observed = int(np.count_nonzero(swapped[here]))
        tail = float(poisson.sf(observed - 1, expected)) if observed else 1.0
        found.append(Band(low, int(np.count_nonzero(here)), expected, observed, tail))
    return tuple(found)


def _check_sigma(sigma: F64) -> None:
    if (sigma < 0.0).any():
        raise InputError("sigma", float(np.nanmin(sigma)), "at least 0", "noise")
