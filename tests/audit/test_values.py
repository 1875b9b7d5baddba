"""Pooled and per-row values against a slow exact walk."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neartie.audit.metrics.closeness import closer
from neartie.audit.metrics.ulp import FORMATS, from_ordered, rounded, ulp_distance, ulp_error
from neartie.audit.metrics.values import (
    BF16_UNIT_ROUNDOFF,
    GAUSSIAN_ROUNDING,
    PairTally,
    PairValues,
    epsilon,
    measure_rows,
    rho,
    unit_roundoff,
)
from neartie.banks.errors import InputError

BF16 = np.dtype(ml_dtypes.bfloat16)


def tally(actual: Any, expected: Any, rows: Any = None) -> PairValues:
    pair = PairTally()
    pair.add(actual, expected, np.arange(len(actual)) if rows is None else np.asarray(rows))
    return pair.result()


def slow_values(actual: npt.NDArray[Any], expected: npt.NDArray[Any]) -> PairValues:
    """One element after the other, in Python's floats; only for finite inputs."""
    squares, references, relative, widest = [], [], [], []
    fraction = 0.0
    with np.errstate(over="ignore"):
        narrow = rounded(expected.astype(np.float64), actual.dtype)
    for row in range(len(actual)):
        error = reference = 0.0
        for got, exact in zip(actual[row], expected[row], strict=True):
            difference = float(got) - float(exact)
            error += difference * difference
            reference += float(exact) * float(exact)
        squares.append(error)
        references.append(reference)
        relative.append(math.sqrt(error / reference))
        widest.append(ulp_distance(actual[row], narrow[row]).max())
        fraction = max(fraction, float(ulp_error(actual[row], expected[row].astype("f8")).max()))
    largest = max(step for step in widest if step is not None)
    return PairValues(
        rows=len(actual),
        elements=actual.size,
        relative_rms=math.sqrt(math.fsum(squares) / math.fsum(references)),
        worst_row=relative.index(max(relative)),
        worst_row_relative_rms=max(relative),
        max_ulp=largest,
        max_ulp_row=widest.index(largest),
        undefined=0,
        max_ulp_error=fraction if expected.dtype == np.float64 else None,
        undefined_rows=0,
        error_square=math.fsum(squares),
        reference_square=math.fsum(references),
    )


@pytest.mark.parametrize("wide", [np.float64, np.float32, None], ids=["fp64", "fp32", "own"])
@pytest.mark.parametrize("dtype", list(FORMATS), ids=[str(dtype) for dtype in FORMATS])
def test_values_equal_the_slow_walk(dtype: np.dtype[Any], wide: Any) -> None:
    rng = np.random.default_rng(3)
    exact = rng.normal(size=(13, 21)) * 2.0 ** rng.integers(-4, 4, size=(13, 21))
    expected = rounded(exact, dtype if wide is None else wide)
    noise = 1.0 + rng.normal(size=exact.shape) * unit_roundoff(dtype) * 3
    actual = rounded(exact * noise, dtype)
    assert tally(actual, expected) == slow_values(actual, expected)


def test_axes_after_the_row_are_one() -> None:
    rng = np.random.default_rng(4)
    exact = rng.normal(size=(5, 3, 4))
    actual = rounded(exact, np.float32)
    assert tally(actual, exact) == tally(actual.reshape(5, 12), exact.reshape(5, 12))


def test_pieces_do_not_change_a_bit() -> None:
    rng = np.random.default_rng(6)
    # 2**17 elements a piece: these rows fall into several, and a row is longer than none.
    exact = rng.normal(size=(300, 1000))
    actual = rounded(exact, BF16)
    whole = measure_rows(actual, exact)
    for row in (0, 130, 131, 132, 262, 299):
        one = measure_rows(actual[row : row + 1], exact[row : row + 1])
        assert one.error_square[0] == whole.error_square[row]
        assert one.max_ulp_error[0] == whole.max_ulp_error[row]
    assert tally(actual, exact).max_ulp == 0
    assert tally(actual, exact).relative_rms == pytest.approx(
        GAUSSIAN_ROUNDING * BF16_UNIT_ROUNDOFF, rel=3e-3
    )


@settings(max_examples=30)
@given(st.lists(st.integers(0, 11), min_size=0, max_size=6), st.randoms())
def test_merging_in_any_order_gives_the_same_bits(cuts: list[int], random: Any) -> None:
    rng = np.random.default_rng(8)
    exact = rng.normal(size=(12, 9)) * 10.0 ** rng.integers(-8, 8, size=(12, 1))
    actual = exact.astype(np.float32)
    actual[4] = actual[9] = np.float32(7.0)
    exact[4] = exact[9] = 6.0
    edges = sorted({0, 12, *cuts})
    parts = []
    for start, stop in itertools.pairwise(edges):
        part = PairTally()
        part.add(actual[start:stop], exact[start:stop], np.arange(start, stop))
        parts.append(part)
    random.shuffle(parts)
    total = PairTally()
    for part in parts:
        total.merge(part)
    assert total.result() == tally(actual, exact)
    # Equal worst rows: the lowest row number is told, whatever came first.
    assert total.result().worst_row == 4


def test_row_numbers_are_the_callers() -> None:
    exact = np.array([[1.0], [1.0], [1.0]])
    actual = np.array([[1.5], [1.0], [1.5]], np.float32)
    found = tally(actual, exact, rows=[70, 3, 9])
    assert (found.worst_row, found.max_ulp_row) == (9, 9)


def test_nonfinite_elements_are_counted_and_never_averaged() -> None:
    expected = np.ones((4, 3), np.float32)
    actual = expected.copy()
    actual[0, 1] = np.nan
    actual[1, 1] = expected[1, 1] = np.inf
    actual[2, 0] = 1.5
    actual[3, 2], expected[3, 2] = np.inf, -np.inf
    found = tally(actual, expected)
    assert found.undefined == 3
    # Row 1 is the same on both sides; rows 0 and 3 have no relative RMS.
    assert found.undefined_rows == 2
    assert found.worst_row == 2
    assert found.relative_rms == pytest.approx(math.sqrt(0.25 / 5))
    assert found.max_ulp == ulp_distance(np.float32(1.0), np.float32(1.5)).max()
    assert measure_rows(actual, expected).comparable.tolist() == [False, True, True, False]


def test_nan_payloads_differ_within_one_dtype() -> None:
    nans = np.array([[0x7FC0_0000, 0x3F80_0000]], np.uint32).view(np.float32)
    other = np.array([[0x7FC0_0001, 0x3F80_0000]], np.uint32).view(np.float32)
    assert measure_rows(nans, nans).comparable.all()
    assert not measure_rows(nans, other).comparable.any()
    # Payloads do not survive a conversion, so any NaN matches one of another dtype.
    assert measure_rows(nans, other.astype(np.float64)).comparable.all()


def test_expected_values_past_the_dtype_have_no_distance() -> None:
    found = tally(np.array([[448.0, 1.0]], ml_dtypes.float8_e4m3fn), np.array([[470.0, 1.0]]))
    assert found.undefined == 1
    assert found.max_ulp == 0
    assert found.max_ulp_error == 22 / 32


def test_rows_without_a_reference_norm() -> None:
    expected = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]])
    actual = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 5.0]], np.float32)
    found = tally(actual, expected)
    assert found.undefined_rows == 2
    assert found.worst_row == 1
    # The error of such a row stays in the pooled figure: leaving it out would hide it.
    assert found.relative_rms == 1.0
    nothing = tally(actual[:1], expected[:1])
    assert nothing.relative_rms is None
    assert nothing.worst_row is None
    assert nothing.max_ulp == 0


def test_nothing_compared_is_nothing_claimed() -> None:
    for found in (PairTally().result(), tally(np.zeros((0, 4)), np.zeros((0, 4)))):
        assert (found.rows, found.elements, found.max_ulp) == (0, 0, None)
        assert found.relative_rms is None
        assert found.max_ulp_error is None
    empty_rows = tally(np.zeros((2, 0)), np.zeros((2, 0)))
    assert empty_rows.max_ulp is None
    assert empty_rows.undefined_rows == 2


def test_overflowing_norms_are_undefined() -> None:
    huge = np.array([[1e308, 1e308]])
    found = tally(huge, -huge)
    assert found.undefined_rows == 1
    assert found.relative_rms is None
    assert found.max_ulp == ulp_distance(huge, -huge).max()


def test_unit_roundoffs() -> None:
    assert BF16_UNIT_ROUNDOFF == 2.0**-8
    assert [unit_roundoff(dtype) for dtype in FORMATS] == [
        2.0**-53, 2.0**-24, 2.0**-11, 2.0**-8, 2.0**-3, 2.0**-4,
    ]  # fmt: skip
    for dtype in FORMATS:
        one = from_ordered(int(np.int64(rank_of_one(dtype))) + 1, dtype).astype(np.float64)
        assert one == 1.0 + epsilon(dtype)


def rank_of_one(dtype: np.dtype[Any]) -> int:
    distance = ulp_distance(np.ones((), dtype), np.zeros((), dtype)).max()
    assert distance is not None
    return distance


def test_gaussian_rounding_is_its_formula() -> None:
    total = math.fsum(
        4.0**e * (math.erf(2.0 ** (e + 1) / math.sqrt(2)) - math.erf(2.0**e / math.sqrt(2)))
        for e in range(-60, 7)
    )
    assert pytest.approx(math.sqrt(total * 4 / 12), rel=1e-13) == GAUSSIAN_ROUNDING


def test_rho_of_known_triangles() -> None:
    assert rho(3.0, 4.0, 5.0) == 0.0
    assert rho(2.0, 2.0, 0.0) == 1.0
    assert rho(1.0, 2.0, 3.0) == -1.0
    assert rho(1e-200, 1e-200, 1e-200) == 0.5
    assert rho(1.66e-3, 2.35e-3, 2.60e-3) == pytest.approx(0.195, abs=2e-3)
    for sides in ((0.0, 1.0, 1.0), (None, 1.0, 1.0), (1.0, 1.0, None), (1.0, math.nan, 1.0)):
        assert rho(*sides) is None


@given(st.integers(1, 20), st.integers(1, 20))
def test_rho_is_the_correlation_of_errors(a: int, b: int) -> None:
    # Errors along two axes of integers, so that the sides are exact up to their square roots.
    error_a, error_b = (a, 0), (b, 3)
    apart = math.dist(error_a, error_b)
    expected = a * b / (a * math.hypot(*error_b))
    assert rho(float(a), math.hypot(*error_b), apart) == pytest.approx(expected, abs=1e-12)


def test_closer_needs_enough_wins() -> None:
    baseline = np.full(12, 4.0)
    five = closer(np.array([1.0] * 5), baseline[:5])
    # 2 / 2**5 = 0.0625: five of five rows are no proof at 95%.
    assert (five.answer, five.p_value) == ("not distinguishable", 0.0625)
    six = closer(np.array([1.0] * 6), baseline[:6])
    assert (six.answer, six.wins, six.p_value) == ("closer", 6, 0.03125)
    assert closer(baseline[:6], np.array([1.0] * 6)).answer == "farther"


def test_ties_and_undefined_rows_are_no_wins() -> None:
    ties = closer(np.full(1000, 4.0), np.full(1000, 4.0))
    assert (ties.answer, ties.ties, ties.p_value) == ("not distinguishable", 1000, 1.0)
    odd = closer(np.array([np.nan, 1.0, 4.0]), np.array([4.0, np.nan, 4.0]))
    assert (odd.wins, odd.losses, odd.ties, odd.undefined) == (0, 0, 1, 2)
    assert closer(np.zeros(0), np.zeros(0)).answer == "not distinguishable"


def test_one_row_with_a_huge_error_decides_nothing() -> None:
    # The pooled figure favours the candidate; row by row it loses.
    candidate, baseline = np.full(40, 1.01), np.full(40, 1.0)
    baseline[0] = 1e6
    assert candidate.sum() < baseline.sum()
    assert closer(candidate, baseline).answer == "farther"


@given(st.integers(0, 60), st.integers(0, 60))
def test_sign_test_is_exact_and_mirrored(wins: int, losses: int) -> None:
    candidate = np.array([0.0] * wins + [2.0] * losses)
    found = closer(candidate, np.ones(wins + losses))
    n, least = wins + losses, min(wins, losses)
    tail = 2 * sum(Fraction(math.comb(n, k), 2**n) for k in range(least + 1))
    assert found.p_value == pytest.approx(float(min(tail, Fraction(1))), rel=1e-9)
    mirrored = closer(np.ones(wins + losses), candidate)
    swap = {"closer": "farther", "farther": "closer"}
    assert mirrored.answer == swap.get(found.answer, found.answer)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: measure_rows(np.zeros((2, 3)), np.zeros((2, 4))), "actual.shape=(2, 3)"),
        (lambda: measure_rows(np.zeros(2, np.int32), np.zeros(2)), "dtype=int32"),
        (
            lambda: PairTally().add(np.zeros((2, 3)), np.zeros((2, 3)), np.arange(3)),
            "rows.shape=(3,), but should be (2,) [PairTally.add]",
        ),
        (
            lambda: closer(np.zeros(2), np.zeros(3)),
            "err_sq_baseline.shape=(3,), but should",
        ),
        (lambda: closer(np.zeros(2), np.zeros(2), 1.0), "confidence=1.0, but should be between"),
    ],
)
def test_bad_input_is_named(call: Any, message: str) -> None:
    with pytest.raises(InputError) as told:
        call()
    assert message in str(told.value)
