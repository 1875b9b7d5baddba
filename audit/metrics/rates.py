"""Rates of events with exact one-sided bounds, and what a number of rows can certify.

Rows are the independent trials of one binomial rate; the caller says what is independent. All
bounds are Clopper-Pearson: exact for every number of events, never below the stated confidence.

Source: C. J. Clopper, E. S. Pearson, "The use of confidence or fiducial limits illustrated in the
case of the binomial", Biometrika 26, 1934, https://doi.org/10.1093/biomet/26.4.404
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from scipy.stats import beta, binom

from ...banks.errors import InputError

MOST_ROWS: Final = 1 << 52
"""More rows than any run compares, and each number of them exact in FP64."""


def _check_count(what: str, value: int, least: int, most: int | None, where: str) -> None:
    if value < least or (most is not None and value > most):
        expected = f"at least {least}" if most is None else f"{least}..{most}"
        raise InputError(what, value, expected, where)


def _check_open_unit(what: str, value: float, where: str) -> None:
    # Written so that NaN fails too.
    if not 0.0 < value < 1.0:
        raise InputError(what, value, "between 0 and 1", where)


def _check_events(events: int, trials: int, where: str) -> None:
    _check_count("trials", trials, 0, MOST_ROWS, where)
    _check_count("events", events, 0, trials, where)


def _lower_tail(events: int, trials: int, rate: float) -> float:
    """P(at most ``events`` events); the clean run in closed form."""
    if events == 0:
        return math.exp(trials * math.log1p(-rate))
    return float(binom.cdf(events, trials, rate))


def upper_bound(events: int, trials: int, confidence: float = 0.95) -> float:
    """Return the rate that is not exceeded, at this confidence; 1.0 where nothing was tried.

    Raises:
        InputError: a negative count or one above ``MOST_ROWS``, more events than trials, or a
            confidence not inside 0..1.

    Example:
        >>> f"{upper_bound(1, 960):.2g}"
        '0.0049'
    """
    _check_events(events, trials, "upper_bound")
    _check_open_unit("confidence", confidence, "upper_bound")
    if events == trials:
        return 1.0
    if events == 0:
        return -math.expm1(math.log1p(-confidence) / trials)
    return float(beta.ppf(confidence, events + 1, trials - events))


def lower_bound(events: int, trials: int, confidence: float = 0.95) -> float:
    """Return the rate that is reached, at this confidence; 0.0 where nothing was tried.

    Raises:
        InputError: as ``upper_bound``.
    """
    _check_events(events, trials, "lower_bound")
    _check_open_unit("confidence", confidence, "lower_bound")
    if events == 0:
        return 0.0
    if events == trials:
        return math.exp(math.log1p(-confidence) / trials)
    return float(beta.ppf(1.0 - confidence, events, trials - events + 1))


def at_most_p_value(events: int, trials: int, limit: float) -> float:
    """Return the p-value of "the rate is ``limit`` or more"; small means it is below the limit.

    It is at most 1 - confidence exactly where ``upper_bound`` at that confidence is at most
    ``limit``. Without trials it is 1, so nothing can be concluded from an empty run.

    Raises:
        InputError: a bad count, or a limit not inside 0..1.
    """
    _check_events(events, trials, "at_most_p_value")
    _check_open_unit("limit", limit, "at_most_p_value")
    return _lower_tail(events, trials, limit)


def holm(p_values: Sequence[float], alpha: float = 0.05) -> list[bool]:
    """Return which hypotheses are rejected with at most ``alpha`` chance of any false rejection.

    Args:
        p_values: one a hypothesis, such as one a launch width.
        alpha: 1 - confidence, for all hypotheses together.

    Raises:
        InputError: a p-value is outside 0..1 or NaN, or alpha is not inside 0..1.

    Source: S. Holm, "A simple sequentially rejective multiple test procedure", 1979,
        https://www.jstor.org/stable/4615733

    Example:
        >>> holm([0.04, 0.01, 0.02], alpha=0.05)
        [True, True, True]
    """
    _check_open_unit("alpha", alpha, "holm")
    for value in p_values:
        if not 0.0 <= value <= 1.0:
            raise InputError("p_value", value, "0..1", "holm")
    rejected = [False] * len(p_values)
    for done, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[index] > alpha / (len(p_values) - done):
            break
        rejected[index] = True
    return rejected


def rows_needed(rate: float, confidence: float = 0.95, events: int = 0) -> int:
    """Return the fewest rows that certify ``rate`` with this many events among them.

    Raises:
        InputError: rate or confidence not inside 0..1, or negative events.

    Example:
        >>> rows_needed(5e-5)
        59914
    """
    _check_open_unit("rate", rate, "rows_needed")
    _check_open_unit("confidence", confidence, "rows_needed")
    _check_count("events", events, 0, MOST_ROWS, "rows_needed")
    alpha = 1.0 - confidence
    # The tail falls as rows grow: double to bracket it, then halve.
    low, high = events, events + 1
    while _lower_tail(events, high, rate) > alpha:
        low, high = high, 2 * high
        if high > MOST_ROWS:
            raise InputError("rate", rate, f"a rate within {MOST_ROWS} rows", "rows_needed")
    while high - low > 1:
        middle = (low + high) // 2
        if _lower_tail(events, middle, rate) > alpha:
            low = middle
        else:
            high = middle
    return high


def smallest_rate(rows: int, confidence: float = 0.95, events: int = 0) -> float:
    """Return the smallest rate that this many rows certify with this many events among them.

    Raises:
        InputError: as ``upper_bound``.
    """
    return upper_bound(events, rows, confidence)


def allowed_events(rows: int, rate: float, confidence: float = 0.95) -> int:
    """Return the most events among ``rows`` with which ``rate`` is still certified.

    Returns:
        -1 where not even a clean run is enough.

    Raises:
        InputError: negative rows, or rate or confidence not inside 0..1.

    Example:
        >>> [allowed_events(rows, 5e-5) for rows in (800_000, 3_200_000, 960)]
        [29, 138, -1]
    """
    _check_count("rows", rows, 0, MOST_ROWS, "allowed_events")
    _check_open_unit("rate", rate, "allowed_events")
    _check_open_unit("confidence", confidence, "allowed_events")
    alpha = 1.0 - confidence
    # The quantile is the first count whose tail reaches alpha, give or take its rounding.
    events = min(int(binom.ppf(alpha, rows, rate)) + 1, rows)
    while events >= 0 and _lower_tail(events, rows, rate) > alpha:
        events -= 1
    return events


def layers_rate(rate: float, layers: int) -> float:
    """Return the chance that at least one of ``layers`` independent layers shows the event.

    Raises:
        InputError: a rate outside 0..1 or negative layers.

    Example:
        >>> f"{layers_rate(5e-5, 92):.2%}"
        '0.46%'
    """
    if not 0.0 <= rate <= 1.0:
        raise InputError("rate", rate, "0..1", "layers_rate")
    _check_count("layers", layers, 0, None, "layers_rate")
    if layers == 0 or rate == 1.0:
        return float(layers > 0)
    return -math.expm1(layers * math.log1p(-rate))


def predicted_swap_rate(p0: float, s: float) -> float:
    """Return the swap rate that ties alone predict: p0 * s / sqrt(2 pi).

    A swap needs a perturbation larger than the margin between slots K and K+1. With density p0 of
    that margin at 0 and a normal perturbation of their difference with standard deviation s, the
    chance is p0 * E[max(perturbation, 0)], as long as s is small against the margin's spread.

    Args:
        p0: density of the margin at 0, per unit of key.
        s: standard deviation of the difference of the two keys' perturbations, in units of key.

    Raises:
        InputError: an argument is negative or not finite.
    """
    for what, value in (("p0", p0), ("s", s)):
        if not (math.isfinite(value) and value >= 0.0):
            raise InputError(what, value, "finite and at least 0", "predicted_swap_rate")
    return p0 * s / math.sqrt(2.0 * math.pi)
