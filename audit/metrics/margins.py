"""The margin between the K-th and the next key, and the swap rate that margins alone predict.

All sums are integers, so tallies merge in any order to the same bits.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.stats import binom, chi2, fisher_exact, norm, poisson

from ...banks.errors import InputError
from .rates import predicted_swap_rate, upper_bound

EXACT_STEPS: Final = 63
"""FP32 steps up to here have a bin each; above, a bin is a power of two and up."""
DENSITY_EXPONENT: Final = -14
"""The density at margin 0 is the share of margins below 2^-14, over 2^-14."""
_SHIFT_UNIT: Final = 36
"""Shifts are counted in units of 2^-36."""
_SURPLUS_P: Final = 1e-3
_ZERO: Final = "zero"


@dataclass
class MarginTally:
    """Counts of boundary margins and of key shifts, each of one side's keys against the other's.

    Attributes:
        rows: rows with a defined margin.
        undefined: rows without one.
        steps: rows by FP32 steps, see ``EXACT_STEPS``.
        exponents: rows by e with 2^(e-1) <= margin < 2^e; margin 0 under ``zero``.
        shifts: rows with a defined shift.
        shift_sum: sum of the shifts above 0, in units of 2^-36.
        shift_squares: sum of the squares of all shifts, in units of 2^-72.
        beyond: of ``rows``, those known only to have a wide margin: they are in no bin, and their
            shifts are not counted. Where they are not below 2^``DENSITY_EXPONENT`` nor within
            ``EXACT_STEPS``, neither density nor near ties depend on them.
    """

    rows: int = 0
    undefined: int = 0
    steps: Counter[int] = field(default_factory=Counter)
    exponents: Counter[str] = field(default_factory=Counter)
    shifts: int = 0
    shift_sum: int = 0
    shift_squares: int = 0
    beyond: int = 0

    def add(
        self,
        steps: npt.NDArray[np.int64],
        margin: npt.NDArray[np.float64],
        shift: npt.NDArray[np.float64],
    ) -> None:
        """Count rows: FP32 steps (-1 undefined), margin and shift (NaN undefined), each [row]."""
        known = steps >= 0
        self.rows += int(np.count_nonzero(known))
        self.undefined += int(np.count_nonzero(~known))
        near, wide = steps[known & (steps <= EXACT_STEPS)], steps[steps > EXACT_STEPS]
        powers = np.frexp(wide.astype(np.float64))[1].astype(np.int64) - 1
        binned = np.concatenate([near, np.left_shift(np.int64(1), powers)])
        for value, count in zip(*np.unique(binned, return_counts=True), strict=True):
            self.steps[int(value)] += int(count)
        exponents = np.frexp(margin[known & (margin > 0.0)])[1]
        for value, count in zip(*np.unique(exponents, return_counts=True), strict=True):
            self.exponents[str(int(value))] += int(count)
        zeros = int(np.count_nonzero(known & (margin == 0.0)))
        if zeros:
            self.exponents[_ZERO] += zeros
        moved = shift[np.isfinite(shift)]
        self.shifts += len(moved)
        units = np.rint(np.ldexp(moved, _SHIFT_UNIT))
        for value, count in zip(*np.unique(units, return_counts=True), strict=True):
            whole = int(value)
            self.shift_sum += max(whole, 0) * int(count)
            self.shift_squares += whole * whole * int(count)

    def merge(self, other: MarginTally) -> None:
        """Add another tally."""
        self.rows += other.rows
        self.undefined += other.undefined
        self.steps.update(other.steps)
        self.exponents.update(other.exponents)
        self.shifts += other.shifts
        self.shift_sum += other.shift_sum
        self.shift_squares += other.shift_squares
        self.beyond += other.beyond

    def within(self, steps: int) -> int:
        """Rows whose margin is at most ``steps`` FP32 steps, at most ``EXACT_STEPS``."""
        return sum(count for value, count in self.steps.items() if value <= steps)

    @property
    def below(self) -> int:
        """Rows whose margin is below 2^``DENSITY_EXPONENT``."""
        limit = DENSITY_EXPONENT
        return sum(c for e, c in self.exponents.items() if e == _ZERO or int(e) <= limit)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What margins and shifts alone predict, beside what was seen.

    Attributes:
        density: rows per unit of key at margin 0; None where no margin is defined.
        density_error: its Poisson standard error.
        spread: standard deviation of the shift, in units of key.
        mean_gain: mean of max(shift, 0), in units of key.
        rate_normal: density * spread / sqrt(2 pi), as if shifts were normal.
        rate: density * mean_gain, with the shifts as they are.
        rate_error: standard error of ``rate``: Poisson errors of the density and of the count.
        observed: differing rows over rows.
        agreement: ``agrees``, ``surplus``, ``deficit`` or ``unknown``.
        p_value: chance of so many (or so few) differing rows if ``rate`` is right.
    """

    density: float | None
    density_error: float | None
    spread: float | None
    mean_gain: float | None
    rate_normal: float | None
    rate: float | None
    rate_error: float | None
    observed: float | None
    agreement: str
    p_value: float | None


def predict(tally: MarginTally, differing: int, rows: int) -> Prediction:
    """Return the predicted swap rate and whether ``differing`` of ``rows`` agrees with it.

    A row swaps its experts K and K + 1 where the shift exceeds the margin: with density p0 of the
    margin at 0 that is p0 E[max(shift, 0)], and p0 s / sqrt(2 pi) for normal shifts. Keys on a grid
    with ties to the lower id give the same first formula. It holds while shifts are small against
    the margins: where it gives more than 1, nothing is predicted. A surplus means "not only ties".
    """
    observed = differing / rows if rows else None
    if not tally.rows or not tally.shifts or not rows:
        return Prediction(None, None, None, None, None, None, None, observed, "unknown", None)
    width = math.ldexp(1.0, DENSITY_EXPONENT)
    density = tally.below / tally.rows / width
    density_error = math.sqrt(tally.below) / tally.rows / width
    spread = math.ldexp(math.sqrt(tally.shift_squares / tally.shifts), -_SHIFT_UNIT)
    gain = math.ldexp(tally.shift_sum / tally.shifts, -_SHIFT_UNIT)
    rate = density * gain
    if rate > 1.0:
        # Shifts so wide that no density of the margin at 0 says anything.
        return Prediction(
            density, density_error, spread, gain, None, None, None, observed, "unknown", None
        )
    relative = 1.0 / math.sqrt(tally.below) if tally.below else 1.0
    error = math.sqrt((rate * relative) ** 2 + rate / rows)
    agreement, p_value = _agreement(differing, rate * rows, relative)
    normal = predicted_swap_rate(density, spread)
    return Prediction(
        density, density_error, spread, gain, normal, rate, error, observed, agreement, p_value
    )


def predicted_interval(tally: MarginTally, confidence: float = 0.95) -> tuple[float, float] | None:
    """Return an interval of ``Prediction.rate``; None where nothing can be predicted.

    The rate is a product, density times mean gain. Each gets half of what the confidence leaves:
    the density the exact interval of a Poisson count (F. Garwood, Biometrika 28, 1936), the gain
    its normal interval, with E[shift^2] - gain^2 for the variance of max(shift, 0), which that
    bounds from above.

    Raises:
        InputError: the confidence is not between 0 and 1.
    """
    if not 0.0 < confidence < 1.0:
        raise InputError("confidence", confidence, "between 0 and 1", "predicted_interval")
    if not tally.rows or not tally.shifts:
        return None
    tail = (1.0 - confidence) / 4.0
    scale = math.ldexp(1.0, -DENSITY_EXPONENT) / tally.rows
    fewest = float(chi2.ppf(tail, 2 * tally.below)) / 2.0 if tally.below else 0.0
    most = float(chi2.isf(tail, 2 * (tally.below + 1))) / 2.0
    gain = math.ldexp(tally.shift_sum / tally.shifts, -_SHIFT_UNIT)
    square = math.ldexp(tally.shift_squares / tally.shifts, -2 * _SHIFT_UNIT)
    error = math.sqrt(max(0.0, square - gain * gain) / tally.shifts) * float(norm.isf(tail))
    return fewest * scale * max(0.0, gain - error), most * scale * (gain + error)


def _agreement(differing: int, expected: float, relative: float) -> tuple[str, float]:
    """Poisson tails at the expected count, moved two standard errors towards the observed one."""
    more = float(poisson.sf(differing - 1, expected * (1.0 + 2.0 * relative)))
    fewer = float(poisson.cdf(differing, expected * max(0.0, 1.0 - 2.0 * relative)))
    if more < _SURPLUS_P:
        return "surplus", more
    if fewer < _SURPLUS_P:
        return "deficit", fewer
    return "agrees", min(more, fewer)


@dataclass(frozen=True, slots=True)
class SampleCheck:
    """Whether a small sample's count fits the gate's.

    Attributes:
        events, trials: of the sample.
        p_value: Fisher's exact test, two-sided, of one rate for both.
        p_at_bound: chance of at least ``events`` at the gate's upper bound.
        contradicts: ``p_value`` is below 1 - confidence.
    """

    events: int
    trials: int
    p_value: float
    p_at_bound: float
    contradicts: bool


def check_sample(
    events: int, trials: int, differing: int, rows: int, confidence: float = 0.95
) -> SampleCheck:
    """Return whether ``events`` of ``trials`` contradicts ``differing`` of ``rows``.

    Raises:
        InputError: no trials, or more events than trials.

    Example:
        >>> check_sample(1, 960, 0, 960).contradicts
        False
    """
    if trials < 1 or not 0 <= events <= trials:
        raise InputError("sample", f"{events}/{trials}", "events/trials, at least one", "gate")
    table = [[events, trials - events], [differing, rows - differing]]
    test: Any = fisher_exact(table) if rows else (1.0, 1.0)
    p_value = float(test[1])
    bound = upper_bound(differing, rows, confidence)
    at_bound = float(binom.sf(events - 1, trials, bound))
    return SampleCheck(events, trials, p_value, at_bound, p_value < 1.0 - confidence)
