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
from scipy.special import gammaln
from scipy.stats import norm, poisson
from scipy.stats import t as student

from ...banks.errors import InputError
from .rates import holm
from .swaps import SET_CODE, SetClass

F64 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]

NEAR: Final = 8
"""Experts on each side of the boundary among which noise is measured."""
BANDS: Final = (0.0, 1.0, 2.0, 3.0)
"""Lower ends of the bands of margin / sigma; the last band begins where noise never reaches."""


@dataclass(frozen=True, eq=False, slots=True)
class RowNoise:
    """Sigma of each row, and how well it is known.

    Attributes:
        sigma: float64 [row]; NaN where it is not known.
        degrees: degrees of freedom that each sigma was measured with; infinite where declared.
    """

    sigma: F64
    degrees: float = math.inf

    def __post_init__(self) -> None:
        if (self.sigma < 0.0).any():
            raise InputError("sigma", float(np.nanmin(self.sigma)), "at least 0", "noise")
        if not self.degrees >= 1.0:
            raise InputError("degrees", self.degrees, "at least 1", "noise")

    def tail(self, distance: F64) -> F64:
        """Return the chance that noise exceeds so many sigma: Student's, or the normal one."""
        law = norm if math.isinf(self.degrees) else student(self.degrees)
        return np.asarray(law.sf(distance), np.float64)


def near_boundary(keys: npt.NDArray[np.floating[Any]], top_k: int) -> npt.NDArray[np.int64]:
    """Return the experts [row, place] that rank about the boundary, up to ``NEAR`` on each side.

    Where scores are steep a key moves further, so noise is measured among those that may swap.

    Args:
        keys: [row, expert]; NaN ranks last.
        top_k: experts that are selected.
    """
    order = np.argsort(-np.where(np.isnan(keys), -np.inf, keys), axis=1, kind="stable")
    return order[:, max(0, top_k - NEAR) : top_k + NEAR].astype(np.int64)


def row_noise(
    perturbations: npt.NDArray[np.floating[Any]], experts: npt.NDArray[np.int64] | None = None
) -> RowNoise:
    """Return the noise of measured perturbations [run, row, expert] of the keys.

    The variance over the experts about the row's mean, of each run, averaged over the runs, twice:
    two experts' perturbations are taken as independent, and as normal.

    Args:
        perturbations: of the keys, each run against another.
        experts: [row, place] those that are looked at, such as ``near_boundary``; None: all.

    Returns:
        sigma NaN where an element is not finite.

    Raises:
        InputError: another number of axes, no run, or fewer than two experts.
    """
    if perturbations.ndim != 3:
        raise InputError("perturbations.shape", perturbations.shape, "[run, row, expert]", "noise")
    values = perturbations.astype(np.float64)
    if experts is not None:
        values = np.take_along_axis(values, experts[None], axis=2)
    runs, _, count = values.shape
    if runs < 1 or count < 2:
        raise InputError("perturbations", (runs, count), "a run of two experts or more", "noise")
    known = np.isfinite(values).all(axis=(0, 2))
    values[:, ~known] = 0.0
    variances = np.square(values - values.mean(axis=2, keepdims=True)).sum(axis=2) / (count - 1)
    sigma = np.where(known, np.sqrt(2.0 * variances.mean(axis=0)), np.nan)
    return RowNoise(sigma, float(runs * (count - 1)))


def reach(rows: int, confidence: float = 0.95, degrees: float = math.inf) -> float:
    """Return how many sigma noise moves two keys at most, on any of so many rows.

    The chance that it goes further on a single row is (1 - confidence) / rows (Bonferroni). A sigma
    that was measured may be too small: Student's quantile, at its degrees of freedom.

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
    law = norm if math.isinf(degrees) else student(degrees)
    return float(law.isf((1.0 - confidence) / rows))


def separate(
    set_class: I8,
    rows: npt.NDArray[np.int64],
    gap_abs: F64,
    noise: RowNoise,
    confidence: float = 0.95,
) -> I8:
    """Return the set classes with 1-for-1 swaps beyond the window told by their own row's sigma.

    A swap is a ``noise_swap`` where its gap is within ``reach`` sigma, else a ``far_swap``. Without
    a sigma (NaN) nothing explains it.

    Args:
        set_class: int8 [row], codes of ``SET_CLASSES``.
        rows: int64 [n], rows whose sets differ.
        gap_abs: float64 [n], absolute gap of their exchanged keys; NaN where undefined.
        noise: of all rows.
        confidence: of ``reach`` over all rows given.

    Raises:
        InputError: lengths differ.
    """
    sigma = noise.sigma
    if sigma.shape != set_class.shape or gap_abs.shape != rows.shape:
        got = (sigma.shape, gap_abs.shape)
        raise InputError("sigma, gap_abs", got, (set_class.shape, rows.shape), "noise")
    found = set_class.copy()
    if not len(set_class):
        return found
    limit = reach(len(set_class), confidence, noise.degrees)
    one = np.isin(set_class[rows], (SET_CODE[SetClass.NOISE_SWAP], SET_CODE[SetClass.FAR_SWAP]))
    with np.errstate(invalid="ignore"):
        explained = gap_abs <= limit * sigma[rows]
    found[rows[one & explained]] = SET_CODE[SetClass.NOISE_SWAP]
    found[rows[one & ~explained]] = SET_CODE[SetClass.FAR_SWAP]
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


def judge_swaps(
    margin: F64, noise: RowNoise, swapped: Bools, confidence: float = 0.95
) -> NoiseTest:
    """Return whether swaps are as many, at each distance, as the rows' own noise predicts.

    A row swaps its experts K and K + 1 where noise exceeds the margin: the tail of Student's law at
    margin / sigma, of the normal law where sigma is declared. Near ties drown a few swaps that are
    none; in a band of wide margins nothing is expected, so those few stand out there. Poisson tails
    are no smaller than those of the sum of unlike rows (W. Hoeffding, Ann. Math. Statist. 27(3),
    1956); Holm over the bands. Student's tails expect a little too much, which is right for a
    surplus; for a deficit the excess is taken off.

    Args:
        margin: float64 [row], K-th minus next key of the baseline; NaN where undefined.
        noise: of candidate keys minus baseline keys, [row].
        swapped: [row], whether the sets differ.
        confidence: of ``surplus`` and of ``deficit``, each.

    Raises:
        InputError: lengths differ, or a margin is negative.
    """
    sigma = noise.sigma
    if not margin.shape == sigma.shape == swapped.shape or margin.ndim != 1:
        got = (margin.shape, sigma.shape, swapped.shape)
        raise InputError("margin, sigma, swapped", got, "one length", "noise")
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
    chances = noise.tail(distance)
    far = reach(len(margin), confidence, noise.degrees)
    bands = _bands(distance, chances, swapped, far)
    expected, observed = math.fsum(chances), int(np.count_nonzero(swapped))
    alpha = 1.0 - confidence
    p_deficit = float(poisson.cdf(observed, expected / _excess(noise.degrees)))
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


def _excess(degrees: float) -> float:
    """By what factor Student's tails, summed over margins of any size alike, exceed the swaps.

    The integral of the tail is E[max(T, 0)] times the measured sigma, and that of the normal law is
    1 / sqrt(2 pi) times the true one. E[max(T, 0)] is finite above one degree of freedom, and the
    mean of the measured sigma is the true one times the c4 of control charts.
    """
    if math.isinf(degrees) or degrees <= 1.0:
        return 1.0
    half = degrees / 2.0
    mean = math.exp(float(gammaln(half - 0.5) - gammaln(half))) * math.sqrt(half)
    return mean * math.exp(float(gammaln(half + 0.5) - gammaln(half))) / math.sqrt(half)
