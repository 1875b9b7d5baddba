"""Whether a rate of events changed between two runs: an interval and exact p-values.

Two questions, two methods. Over different rows the runs are two samples: the interval of the
difference is Newcombe's hybrid of two Wilson intervals (his method 10), the p-value Fisher's. Over
the same rows the runs are paired and only rows on which they disagree tell anything: McNemar's
exact test. On paired rows Newcombe's interval and Fisher's test are wider than need be, since rows
that differ in both runs add to neither's difference.

Sources: R. G. Newcombe, "Interval estimation for the difference between independent proportions",
Statistics in Medicine 17, 1998, method 10; A. Agresti, "Categorical Data Analysis", 3rd edition,
sections 3.5.1 (Fisher) and 11.1.4 (exact McNemar).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.stats import binomtest, hypergeom

from .rates import lower_bound, upper_bound


@dataclass(frozen=True, slots=True)
class RateChange:
    """The rate of a second run beside that of a first.

    Attributes:
        first, second: (events, trials).
        first_bounds, second_bounds: exact two-sided Clopper-Pearson interval of each rate.
        difference: second rate minus first; None where one run has no trials.
        difference_bounds: Newcombe's interval of it; None with it.
        fisher_p: chance of at least this many events in the second run, if the rates are equal and
            the samples independent.
    """

    first: tuple[int, int]
    second: tuple[int, int]
    first_bounds: tuple[float, float]
    second_bounds: tuple[float, float]
    difference: float | None
    difference_bounds: tuple[float, float] | None
    fisher_p: float


def rate_change(
    first: tuple[int, int], second: tuple[int, int], confidence: float = 0.95
) -> RateChange:
    """Compare the event rates of two samples, each (events, trials).

    Raises:
        InputError: a negative count, more events than trials, or a confidence not inside 0..1.

    Example:
        >>> change = rate_change((56, 70), (48, 80))  # Newcombe 1998, table II, method 10
        >>> [round(-bound, 4) for bound in reversed(change.difference_bounds)]
        [0.0524, 0.3339]
    """
    bounds = [_exact_interval(*sample, confidence) for sample in (first, second)]
    (x, m), (y, n) = first, second
    # Given the total of events, those of the second sample are hypergeometric if rates are equal.
    fisher_p = float(hypergeom.sf(y - 1, m + n, x + y, n)) if m and n else 1.0
    if not m or not n:
        return RateChange(first, second, bounds[0], bounds[1], None, None, fisher_p)
    p, q = x / m, y / n
    (low_p, high_p), (low_q, high_q) = (
        _wilson_interval(*sample, confidence) for sample in (first, second)
    )
    difference = q - p
    below = difference - math.hypot(q - low_q, high_p - p)
    above = difference + math.hypot(high_q - q, p - low_p)
    return RateChange(first, second, bounds[0], bounds[1], difference, (below, above), fisher_p)


def mcnemar_p(only_first: int, only_second: int) -> float:
    """Return the chance of at least ``only_second`` of all disagreeing rows, if none is likelier.

    Args:
        only_first: rows with the event in the first run alone.
        only_second: rows with the event in the second run alone.

    Example:
        >>> mcnemar_p(0, 5)
        0.03125
    """
    disagreeing = only_first + only_second
    if not disagreeing:
        return 1.0
    return float(binomtest(only_second, disagreeing, 0.5, alternative="greater").pvalue)


def _exact_interval(events: int, trials: int, confidence: float) -> tuple[float, float]:
    side = 1.0 - (1.0 - confidence) / 2.0
    return lower_bound(events, trials, side), upper_bound(events, trials, side)


def _wilson_interval(events: int, trials: int, confidence: float) -> tuple[float, float]:
    interval = binomtest(events, trials).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)
