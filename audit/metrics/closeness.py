"""Whether one path is closer to the reference than the other: paired by row, never two totals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import binom, norm, t

from ...banks.errors import InputError

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Answer = Literal["closer", "not distinguishable", "farther"]

RESAMPLES: Final = 2000
SEED: Final = 20261130
"""Key of the Philox generator that resamples; the same errors give the same interval anywhere."""
WORST_FACTOR: Final = 1.0
"""The candidate's worst row may be this many times the baseline's: no worse."""
FP64_OF_FP32: Final = math.ldexp(1.0, -29)
"""A sum's error in FP64 over its error in FP32: the quotient of the unit roundoffs."""

_PIECE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Closeness:
    """Answer of the paired sign test; ``p_value`` is exact and two-sided.

    ``undefined`` pairs (a NaN on either side) and ``ties`` are no evidence for either answer.
    """

    answer: Answer
    wins: int
    losses: int
    ties: int
    undefined: int
    p_value: float


@dataclass(frozen=True, slots=True)
class PairedErrors:
    """Rows by which of two squared errors is smaller; adds up over parts."""

    wins: int
    losses: int
    ties: int
    undefined: int

    def __add__(self, other: PairedErrors) -> PairedErrors:
        """Return the counts of both parts."""
        return PairedErrors(
            self.wins + other.wins,
            self.losses + other.losses,
            self.ties + other.ties,
            self.undefined + other.undefined,
        )


def paired_errors(err_sq_candidate: F64, err_sq_baseline: F64) -> PairedErrors:
    """Count rows [row] by the path with the smaller squared error; wins are the candidate's.

    Raises:
        InputError: lengths differ.
    """
    if err_sq_candidate.shape != err_sq_baseline.shape:
        shapes = (err_sq_baseline.shape, err_sq_candidate.shape)
        raise InputError("err_sq_baseline.shape", *shapes, "closer")
    wins = int(np.count_nonzero(err_sq_candidate < err_sq_baseline))
    losses = int(np.count_nonzero(err_sq_candidate > err_sq_baseline))
    ties = int(np.count_nonzero(err_sq_candidate == err_sq_baseline))
    return PairedErrors(wins, losses, ties, err_sq_candidate.size - wins - losses - ties)


def sign_test(pairs: PairedErrors, confidence: float = 0.95) -> Closeness:
    """Return whether the candidate is closer to the reference than the baseline.

    The exact sign test: with no difference, a row that is no tie is a win with probability 1/2.

    Args:
        pairs: rows by the smaller error.
        confidence: an answer other than "not distinguishable" needs p <= 1 - confidence.

    Raises:
        InputError: the confidence is not between 0 and 1.

    Source: W. J. Dixon, A. M. Mood, "The statistical sign test", 1946,
        https://doi.org/10.1080/01621459.1946.10501898
    """
    _check_confidence(confidence)
    wins, losses = pairs.wins, pairs.losses
    p_value = min(1.0, 2.0 * float(binom.cdf(min(wins, losses), wins + losses, 0.5)))
    answer: Answer = "not distinguishable"
    if p_value <= 1.0 - confidence:
        answer = "closer" if wins > losses else "farther"
    return Closeness(answer, wins, losses, pairs.ties, pairs.undefined, p_value)


def closer(err_sq_candidate: F64, err_sq_baseline: F64, confidence: float = 0.95) -> Closeness:
    """Return ``sign_test`` of the rows' squared errors, [row] float64 each.

    Raises:
        InputError: lengths differ, or the confidence is not between 0 and 1.
    """
    return sign_test(paired_errors(err_sq_candidate, err_sq_baseline), confidence)


@dataclass(frozen=True, slots=True)
class RatioInterval:
    """Bootstrap interval of RMS error of the candidate over RMS error of the baseline.

    Attributes:
        ratio: of the sums as they are; None where the baseline has no error.
        low: lower end; None where fewer than two units, or no ratio, are there.
        high: upper end; infinite where resamples have no error of the baseline.
        units: independent units that were resampled, both errors of one together.
        confidence: of the interval, two-sided.
        resamples: number of resamples.
        seed: key of numpy's Philox generator.
    """

    ratio: float | None
    low: float | None
    high: float | None
    units: int
    confidence: float
    resamples: int
    seed: int

    @property
    def answer(self) -> Answer:
        """Which side of 1 the whole interval lies on."""
        if self.low is None or self.high is None:
            return "not distinguishable"
        if self.high < 1.0:
            return "closer"
        return "farther" if self.low > 1.0 else "not distinguishable"


def ratio_interval(
    err_sq_candidate: F64,
    err_sq_baseline: F64,
    units: I64 | None = None,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> RatioInterval:
    """Return the ratio of the two RMS errors with its expanded percentile bootstrap interval.

    Units are drawn with replacement, each with both of its errors. The percentiles are taken
    further out than the confidence says, by what a t quantile and the missing n / (n - 1) of the
    resampled variance make up for.

    Args:
        err_sq_candidate: [row] squared errors; a row with a NaN on either side is left out.
        err_sq_baseline: [row], the same rows.
        units: [row] independence unit of each row; None: each row is one.
        confidence: of the interval, two-sided.
        resamples: how often the units are drawn anew.
        seed: key of the generator. The same bits come out on every machine.

    Raises:
        InputError: lengths differ, an error is negative, or an argument is outside its range.

    Source: T. C. Hesterberg, "What Teachers Should Know About the Bootstrap", The American
        Statistician 69(4), 2015, section 4.1.2 (expanded percentile interval).
    """
    _check_confidence(confidence)
    if err_sq_candidate.shape != err_sq_baseline.shape or err_sq_candidate.ndim != 1:
        shapes = (err_sq_baseline.shape, err_sq_candidate.shape)
        raise InputError("err_sq_baseline.shape", *shapes, "ratio_interval")
    if units is not None and units.shape != err_sq_candidate.shape:
        raise InputError("units.shape", units.shape, err_sq_candidate.shape, "ratio_interval")
    if resamples < 1:
        raise InputError("resamples", resamples, "at least 1", "ratio_interval")
    known = ~(np.isnan(err_sq_candidate) | np.isnan(err_sq_baseline))
    mine, other = err_sq_candidate[known], err_sq_baseline[known]
    if (mine < 0.0).any() or (other < 0.0).any():
        raise InputError("squared error", "below 0", "at least 0", "ratio_interval")
    if units is not None:
        _, place = np.unique(units[known], return_inverse=True)
        mine = np.bincount(place, mine).astype(np.float64)
        other = np.bincount(place, other).astype(np.float64)
    count = len(mine)
    total = math.fsum(other)
    ratio = math.sqrt(math.fsum(mine) / total) if total > 0.0 else None
    if count < 2 or ratio is None:
        return RatioInterval(ratio, None, None, count, confidence, resamples, seed)
    quotients = np.sort(_resampled(mine, other, resamples, seed))
    widened = math.sqrt(count / (count - 1)) * float(t.isf((1 - confidence) / 2, count - 1))
    tail = float(norm.sf(widened))
    # Order statistics, the outer ones: no interpolation moves an end inwards.
    first = math.floor(tail * (resamples - 1))
    low, high = quotients[first], quotients[resamples - 1 - first]
    ends = (math.sqrt(low), math.sqrt(high))
    return RatioInterval(ratio, *ends, count, confidence, resamples, seed)


def _resampled(mine: F64, other: F64, resamples: int, seed: int) -> F64:
    """Quotients [resample] of the sums over units drawn with replacement."""
    count = len(mine)
    if resamples * count <= _PIECE:
        pieces: Iterable[I64] = (_few_draws(count, resamples, seed),)
    else:
        pieces = _draws(count, resamples, seed)
    quotients = []
    for drawn in pieces:
        with np.errstate(divide="ignore", invalid="ignore"):
            quotient = mine[drawn].sum(axis=1) / other[drawn].sum(axis=1)
        # Neither path errs on what was drawn: they are alike there.
        quotients.append(np.where(np.isnan(quotient), 1.0, quotient))
    return np.concatenate(quotients)


def _draws(count: int, resamples: int, seed: int) -> Iterator[I64]:
    """Yield drawn units [resample, draw] in pieces.

    Raw words of the generator, not ``Generator``'s methods: numpy keeps the former as they are.
    """
    generator = np.random.Philox(key=seed)
    step = max(1, _PIECE // count)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        words = generator.random_raw(rows * count).reshape(rows, count)
        # The upper half times count, over 2^32: off a fair draw by less than count / 2^32.
        yield ((words >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)).astype(np.int64)


@lru_cache(maxsize=2)
def _few_draws(count: int, resamples: int, seed: int) -> I64:
    """The draws in one piece; an audit asks for the same ones many times."""
    return next(_draws(count, resamples, seed))


@dataclass(frozen=True, slots=True)
class Evidence:
    """What "closer to the reference" is decided from.

    Attributes:
        sign: the paired sign test.
        interval: the bootstrap interval of the ratio of RMS errors.
        rms: pooled relative RMS errors of candidate and baseline; None where undefined.
        worst: largest relative RMS of one row, of candidate and baseline; None where undefined.
        reference_error: how far the reference may be from the exact values, relative RMS; None
            where it was not measured.
    """

    sign: Closeness
    interval: RatioInterval
    rms: tuple[float | None, float | None]
    worst: tuple[float | None, float | None]
    reference_error: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer, and why it is not a stronger one."""

    answer: Answer
    reasons: tuple[str, ...]


def decide(evidence: Evidence, *, worst_factor: float = WORST_FACTOR) -> Decision:
    """Return whether the candidate is closer: sign test and interval must both say so.

    The reference comes first. Each pooled error is a distance from the reference, so a reference
    that is off by e moves the difference of two errors by at most 2 e (triangle inequality):
    where that is not below the difference, the answer is ``not distinguishable`` and the reason
    begins with ``reference_invalid``.

    Args:
        evidence: what was measured.
        worst_factor: for ``closer``, the candidate's worst row may be this many times the
            baseline's worst row.

    Raises:
        InputError: the factor is not positive and finite.
    """
    if not (math.isfinite(worst_factor) and worst_factor > 0.0):
        raise InputError("worst_factor", worst_factor, "finite and above 0", "closer")
    sign, interval = evidence.sign.answer, evidence.interval.answer
    reasons = []
    reasons += nothing_paired(evidence.sign)
    if {sign, interval} != {"not distinguishable"}:
        reasons += _reference_doubt(evidence)
    if sign != interval:
        reasons.append(f"the sign test says {sign}, the ratio of RMS errors {interval}")
    mine, other = evidence.worst
    if sign == interval == "closer":
        if mine is None or other is None:
            reasons.append("no row has a relative error on both sides")
        elif mine > worst_factor * other:
            reasons.append(
                f"the worst row errs by {mine:.3e}, more than {worst_factor:g} times {other:.3e}"
            )
    return Decision("not distinguishable" if reasons else sign, tuple(reasons))


def nothing_paired(sign: Closeness) -> list[str]:
    """Return no or one reason: whether no row has an error of either path to compare."""
    if sign.wins + sign.losses + sign.ties:
        return []
    return [f"no row has an error on both sides (on {sign.undefined:,} rows it is no number)"]


def _reference_doubt(evidence: Evidence) -> list[str]:
    """No or one reason."""
    error, (mine, other) = evidence.reference_error, evidence.rms
    if error is None or mine is None or other is None or 2.0 * error < abs(mine - other):
        return []
    return [
        f"reference_invalid: the reference's own error {error:.3e} is not small beside the "
        f"difference {abs(mine - other):.3e}"
    ]


def _check_confidence(confidence: float) -> None:
    if not 0.0 < confidence < 1.0:
        raise InputError("confidence", confidence, "between 0 and 1", "closer")
