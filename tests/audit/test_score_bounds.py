"""Bounds on keys and windows against brute force in exact arithmetic, with planted violations."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from neartie.audit.metrics.score_bounds import key_bound, swap_window, window_ulp
from neartie.audit.metrics.ulp import from_ordered, ordered
from neartie.banks.errors import InputError

unit = st.floats(0, 1, width=32)
biases = st.one_of(
    st.floats(-2, 2, width=32),
    st.floats(-(2.0**100), 2.0**100, width=32),
    st.sampled_from([0.0, 1.0, 0.5, -1.0, -0.5, 2.0**-24, 2.0**-140, 1.5 * 2.0**-24, 1e-3]),
)


def moved(score: float, steps: int) -> float:
    """The score some FP32 steps away, kept within 0..1."""
    place = min(max(int(ordered(np.float32(score))) + steps, 0), 0x3F800000)
    return float(from_ordered(place, np.float32))


def apart(a: float, b: float, bias: float) -> Fraction:
    """Exact |fl(a + bias) - fl(b + bias)|."""
    keys = [np.float32(value) + np.float32(bias) for value in (a, b)]
    return abs(Fraction(float(keys[0])) - Fraction(float(keys[1])))


@given(unit, st.one_of(st.integers(-40, 40), st.integers(-(2**26), 2**26)), biases)
def test_no_key_moves_further_than_the_bound(score: float, steps: int, bias: float) -> None:
    other = moved(score, steps)
    exact = abs(Fraction(score) - Fraction(other))
    bound = key_bound(float(exact), bias, bias, score_low=0.0, score_high=1.0)
    assume(Fraction(float(exact)) >= exact)
    assert apart(score, other, bias) <= Fraction(bound)


@given(unit, st.integers(-40, 40), st.integers(1, 12), st.integers(-60, 60))
def test_no_key_moves_further_where_keys_cross_a_binade(
    score: float, steps: int, power: int, near: int
) -> None:
    """A bias that puts the key beside a power of two, of either sign."""
    other = moved(score, steps)
    for edge in (2.0**-power, -(2.0**-power), 1.0, 0.0):
        bias = float(np.float32(edge - score + near * 2.0**-26))
        bound = key_bound(abs(score - other), bias, bias)
        assert apart(score, other, bias) <= Fraction(bound)


def test_the_bound_is_attained_and_a_smaller_one_is_violated() -> None:
    """Every score near one, every step, a range of biases: the largest distance is the bound."""
    base = int(ordered(np.float32(0.75)))
    scores = from_ordered(np.arange(base - 64, base + 64), np.float32)
    bias = (np.arange(-64, 64) * 2.0**-27 + 0.25).astype(np.float32)
    for steps in (1, 2, 3, 4):
        distance = steps * 2.0**-24
        low, high = float(bias.min()), float(bias.max())
        bound = key_bound(distance, low, high, score_low=0.75, score_high=float(scores.max()))
        keys = (scores[:, None] + bias).astype(np.float64)
        worst = float(np.abs(keys[steps:] - keys[:-steps]).max())
        assert worst == bound
        assert worst > key_bound(distance / 4, low, high) or steps < 3


@given(
    st.lists(st.tuples(unit, st.integers(-3, 3), st.integers(-8, 8)), min_size=4, max_size=24),
    st.integers(1, 3),
    st.floats(-0.5, 0.5, width=32),
)
def test_a_gap_above_the_window_excludes_a_swap(rows: Any, top: int, centre: float) -> None:
    """Crowded keys, so that the boundary gap is often near the window."""
    first = np.array([0.7 + 0.1 * s * 2.0**-18 for s, _, _ in rows], np.float32)
    second = np.array(
        [moved(float(f), n) for f, (_, n, _) in zip(first, rows, strict=True)], np.float32
    )
    bias = np.array([centre + n * 2.0**-24 for _, _, n in rows], np.float32)
    distance = float(np.abs(first.astype(np.float64) - second).max())
    bound = key_bound(distance, float(bias.min()), float(bias.max()))
    keys = [first + bias, second + bias]
    orders = [np.lexsort((np.arange(len(rows)), -key)) for key in keys]
    gaps = [float(k[o[top - 1]]) - float(k[o[top]]) for k, o in zip(keys, orders, strict=True)]
    if set(orders[0][:top]) != set(orders[1][:top]):
        assert max(gaps) <= swap_window(bound)


def test_a_swap_at_the_window_and_a_violation_of_a_false_one() -> None:
    """Two experts pushed towards each other by the whole bound, ties broken against the first."""
    step = 2.0**-24
    first = np.array([0.5 + 4 * step, 0.5], np.float32)[::-1]
    second = np.array([0.5 + 2 * step, 0.5 + 2 * step], np.float32)
    bound = key_bound(2 * step, 0.0, 0.0)
    gap = float(first[1]) - float(first[0])
    chosen = [int(np.lexsort((np.arange(2), -key))[0]) for key in (first, second)]
    assert chosen == [1, 0]
    assert gap == swap_window(bound)
    assert gap > swap_window(key_bound(step, 0.0, 0.0))


positive = st.floats(2.0**-149, 2.0**100, width=32)


@given(positive, st.integers(0, 2**30), st.integers(-(2**20), 2**20))
def test_no_two_keys_within_a_window_are_more_steps_apart(
    low: float, steps: int, shift: int
) -> None:
    start = int(ordered(np.float32(low)))
    pair = from_ordered(np.array([start, min(start + steps, 0x7F7FFFFF)]), np.float32)
    window = float(pair[1]) - float(pair[0])
    assume(Fraction(window) >= Fraction(float(pair[1])) - Fraction(float(pair[0])))
    assert int(np.diff(ordered(pair))[0]) <= window_ulp(window, low)
    across = from_ordered(np.array([shift, shift + 1000]), np.float32)
    window = float(across[1]) - float(across[0])
    assert window_ulp(window, 0.0) >= 1000


@given(positive, st.integers(0, 2**24))
def test_the_steps_of_a_window_are_attained(low: float, steps: int) -> None:
    start = int(ordered(np.float32(low)))
    pair = from_ordered(np.array([start, start + steps]), np.float32)
    exact = Fraction(float(pair[1])) - Fraction(float(pair[0]))
    if Fraction(float(exact)) == exact:
        assert window_ulp(float(exact), low) == steps


def test_known_values() -> None:
    step = 2.0**-24
    assert key_bound(0.0, -5.0, 5.0) == 0.0
    assert key_bound(3 * step, 0.0, 0.0) == 3 * step
    # Keys up to 2 are 2^-23 apart: the smallest multiple above d, or across 1 half of it more.
    assert key_bound(step, -1.0, 1.0) == 2 * step
    assert key_bound(2 * step, -1.0, 1.0) == 4 * step
    # Up to 1: an even number of steps is kept within a binade, and half of one added across 1/2.
    assert key_bound(step, -1.0, 0.0) == 2 * step
    assert key_bound(2 * step, -1.0, 0.0) == 2.5 * step
    assert key_bound(1.5 * step, -1.0, 1.0) == 3 * step
    assert key_bound(step, 1.0, 3.5) == 2.0**-21
    assert window_ulp(0.0, 0.0) == window_ulp(0.0, 1.0) == 0
    assert window_ulp(2.0**-149, 0.0) == 1
    # 1 - 2^-24 to 1 + 2^-23: one step below 1 and one above.
    assert window_ulp(3 * step, 1.0 - step) == 2


def test_bad_input() -> None:
    with pytest.raises(InputError, match="score_abs_bound=-1, but should be at least 0"):
        key_bound(-1, 0.0, 0.0)
    with pytest.raises(InputError, match=r"bias=1.0\.\.0.0, but should be a range"):
        key_bound(0.1, 1.0, 0.0)
    with pytest.raises(InputError, match="bias_high=inf, but should be finite"):
        key_bound(0.1, 0.0, math.inf)
    with pytest.raises(InputError, match="keys within FP32"):
        key_bound(0.1, 0.0, 4e38)
    with pytest.raises(InputError, match="key_bound=nan"):
        swap_window(math.nan)
    with pytest.raises(InputError, match="window=-1"):
        window_ulp(-1.0, 0.0)
