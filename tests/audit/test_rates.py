"""Exact bounds against the binomial tail, and the figures that the design quotes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom

from neartie.audit.metrics.rates import (
    allowed_events,
    at_most_p_value,
    holm,
    layers_rate,
    lower_bound,
    predicted_swap_rate,
    rows_needed,
    smallest_rate,
    upper_bound,
)
from neartie.banks.errors import InputError

COUNTS = st.integers(1, 4_000_000).flatmap(
    lambda trials: st.tuples(st.integers(0, min(trials - 1, 5000)), st.just(trials))
)
CONFIDENCES = st.sampled_from([0.5, 0.9, 0.95, 0.99, 0.9999])


def test_the_quoted_figures() -> None:
    assert upper_bound(1, 960) == pytest.approx(4.9319e-3, rel=1e-4)
    assert upper_bound(0, 3_200_000) == pytest.approx(9.3617e-7, rel=1e-4)
    assert rows_needed(5e-5) == 59_914
    assert rows_needed(1e-5) == 299_572
    assert rows_needed(1e-6) == 2_995_731
    assert allowed_events(800_000, 5e-5) == 29
    assert allowed_events(3_200_000, 5e-5) == 138
    assert layers_rate(5e-5, 92) == pytest.approx(4.5895e-3, rel=1e-4)


@given(COUNTS, CONFIDENCES)
def test_bounds_invert_the_binomial_tails(counts: tuple[int, int], confidence: float) -> None:
    events, trials = counts
    upper = upper_bound(events, trials, confidence)
    assert binom.cdf(events, trials, upper) == pytest.approx(1 - confidence, rel=1e-6)
    assert upper == pytest.approx(beta.ppf(confidence, events + 1, trials - events), rel=1e-9)
    lower = lower_bound(events, trials, confidence)
    assert 0.0 <= lower <= events / trials < upper <= 1.0 or confidence == 0.5
    if events:
        assert binom.sf(events - 1, trials, lower) == pytest.approx(1 - confidence, rel=1e-6)


@given(COUNTS, CONFIDENCES)
def test_bounds_are_monotone(counts: tuple[int, int], confidence: float) -> None:
    events, trials = counts
    upper = upper_bound(events, trials, confidence)
    assert upper < upper_bound(events + 1, trials, confidence)
    assert upper > upper_bound(events, trials + 1, confidence)
    assert upper <= upper_bound(events, trials, confidence + (1 - confidence) / 2)
    assert lower_bound(events, trials, confidence) < lower_bound(events + 1, trials, confidence)


@given(COUNTS, CONFIDENCES, st.floats(1e-7, 0.5))
def test_p_value_and_bound_agree(counts: tuple[int, int], confidence: float, limit: float) -> None:
    events, trials = counts
    upper = upper_bound(events, trials, confidence)
    if not math.isclose(upper, limit, rel_tol=1e-9):
        certified = at_most_p_value(events, trials, limit) <= 1 - confidence
        assert certified == (upper <= limit)


def test_nothing_tried_certifies_nothing() -> None:
    assert upper_bound(0, 0) == 1.0
    assert smallest_rate(0) == 1.0
    assert lower_bound(0, 0) == 0.0
    assert at_most_p_value(0, 0, 5e-5) == 1.0
    assert holm([at_most_p_value(0, 0, 5e-5)], 0.05) == [False]
    assert allowed_events(0, 5e-5) == -1
    assert upper_bound(7, 7) == 1.0
    assert lower_bound(7, 7) == pytest.approx(0.05 ** (1 / 7))


@settings(max_examples=60)
@given(st.floats(1e-6, 0.3), st.integers(0, 40), CONFIDENCES)
def test_rows_needed_is_the_fewest(rate: float, events: int, confidence: float) -> None:
    rows = rows_needed(rate, confidence, events)
    assert at_most_p_value(events, rows, rate) <= 1 - confidence
    assert rows - 1 <= events or at_most_p_value(events, rows - 1, rate) > 1 - confidence
    assert smallest_rate(rows, confidence, events) <= rate * (1 + 1e-9)


@settings(max_examples=60)
@given(st.integers(0, 5_000_000), st.floats(1e-6, 0.3), CONFIDENCES)
def test_allowed_events_is_the_most(rows: int, rate: float, confidence: float) -> None:
    events = allowed_events(rows, rate, confidence)
    alpha = 1 - confidence
    assert events == -1 or at_most_p_value(events, rows, rate) <= alpha
    assert events < rows
    assert at_most_p_value(events + 1, rows, rate) > alpha or events + 1 > rows


def test_holm_steps_down() -> None:
    # 0.04 is above 0.05 / 2, so it and all larger ones stand.
    assert holm([0.04, 0.3, 0.001], 0.05) == [False, False, True]
    # Rejecting the smaller ones first lets the last one through.
    assert holm([0.04, 0.02, 0.001], 0.05) == [True, True, True]
    # A small value behind the first that stands is not rejected either.
    assert holm([0.02, 0.02, 0.02, 0.02], 0.05) == [False] * 4
    assert holm([], 0.05) == []
    assert holm([0.05], 0.05) == [True]


@given(st.lists(st.floats(0.0, 1.0), max_size=8), st.floats(0.001, 0.5), st.randoms())
def test_holm_lies_between_bonferroni_and_none(
    p_values: list[float], alpha: float, random: Any
) -> None:
    rejected = holm(p_values, alpha)
    for value, gone in zip(p_values, rejected, strict=True):
        assert gone or value > alpha / len(p_values)
        assert not gone or value <= alpha
    order = list(range(len(p_values)))
    random.shuffle(order)
    if len(set(p_values)) == len(p_values):
        assert holm([p_values[i] for i in order], alpha) == [rejected[i] for i in order]


def test_layers_and_predictions() -> None:
    assert layers_rate(0.5, 2) == pytest.approx(0.75)
    assert layers_rate(0.3, 1) == pytest.approx(0.3)
    assert layers_rate(0.3, 0) == 0.0
    assert layers_rate(1.0, 3) == 1.0
    assert layers_rate(1e-18, 92) == pytest.approx(92e-18)
    assert predicted_swap_rate(2.0, 0.0) == 0.0
    # A uniform margin of density p0, perturbed: P(perturbation > margin) by a fine grid.
    p0, s = 3.0, 1e-3
    steps = 100_000
    grid = [(i + 0.5) * 8 * s / steps for i in range(steps)]
    tail = math.fsum(0.5 * math.erfc(x / s / math.sqrt(2)) for x in grid) * 8 * s / steps
    assert predicted_swap_rate(p0, s) == pytest.approx(p0 * tail, rel=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: upper_bound(3, 2), "events=3, but should be 0..2 [upper_bound]"),
        (lambda: lower_bound(-1, 2), "events=-1, but should be 0..2 [lower_bound]"),
        (lambda: upper_bound(0, -1), "trials=-1, but should be 0..4503599627370496 [upper_bound]"),
        (lambda: upper_bound(0, 1, 95), "confidence=95, but should be between 0 and 1"),
        (lambda: upper_bound(0, 1, math.nan), "confidence=nan, but should be between 0 and 1"),
        (lambda: at_most_p_value(0, 1, 0.0), "limit=0.0, but should be between 0 and 1"),
        (lambda: rows_needed(0.0), "rate=0.0, but should be between 0 and 1 [rows_needed]"),
        (lambda: rows_needed(1e-17), "rate=1e-17, but should be a rate within"),
        (lambda: holm([0.1, math.nan]), "p_value=nan, but should be 0..1 [holm]"),
        (lambda: layers_rate(2.0, 3), "rate=2.0, but should be 0..1 [layers_rate]"),
        (lambda: predicted_swap_rate(1.0, -1.0), "s=-1.0, but should be finite and at least 0"),
    ],
)
def test_bad_input_is_named(call: Any, message: str) -> None:
    with pytest.raises(InputError) as told:
        call()
    assert message in str(told.value)
