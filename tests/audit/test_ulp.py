"""ULP distances against slow exact counts, and fractional errors against exact fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neartie.audit.metrics.ulp import (
    FORMATS,
    finite,
    from_ordered,
    ordered,
    rounded,
    ulp_distance,
    ulp_error,
)
from neartie.banks.errors import InputError

BF16 = np.dtype(ml_dtypes.bfloat16)
E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
E5M2 = np.dtype(ml_dtypes.float8_e5m2)
SMALL = [BF16, np.dtype(np.float16), E4M3, E5M2]
SMALL_IDS = [str(dtype) for dtype in SMALL]
FINITE_COUNT = {BF16: 65280, np.dtype(np.float16): 63488, E4M3: 254, E5M2: 248}


def every_value(dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    bits = FORMATS[dtype].bits
    return np.arange(2 ** (8 * dtype.itemsize), dtype=np.uint32).astype(bits).view(dtype)


def counted_line(dtype: np.dtype[Any]) -> tuple[npt.NDArray[Any], dict[float, int]]:
    """All finite values, and the rank of each distinct one, told by sorting their real values."""
    values = every_value(dtype)
    with np.errstate(invalid="ignore"):
        real = values.astype(np.float64)
    keep = np.isfinite(real)
    # A set of floats holds -0.0 and 0.0 once.
    line = sorted(set(real[keep].tolist()))
    return values[keep], {value: rank for rank, value in enumerate(line)}


@pytest.mark.parametrize("dtype", SMALL, ids=SMALL_IDS)
def test_every_small_value_stands_where_counting_puts_it(dtype: np.dtype[Any]) -> None:
    values, rank = counted_line(dtype)
    assert len(values) == FINITE_COUNT[dtype]
    expected = [rank[value] - rank[0.0] for value in values.astype(np.float64).tolist()]
    assert ordered(values).tolist() == expected
    assert np.array_equal(finite(every_value(dtype)).sum(), len(values))


@pytest.mark.parametrize("dtype", SMALL, ids=SMALL_IDS)
def test_small_distances_equal_the_count(dtype: np.dtype[Any]) -> None:
    values, rank = counted_line(dtype)
    rng = np.random.default_rng(5)
    if len(values) < 300:
        left, right = (
            side.ravel() for side in np.meshgrid(np.arange(len(values)), np.arange(len(values)))
        )
    else:
        left, right = rng.integers(len(values), size=(2, 200_000))
    found = ulp_distance(values[left], values[right])
    real = values.astype(np.float64).tolist()
    expected = [abs(rank[real[i]] - rank[real[j]]) for i, j in zip(left, right, strict=True)]
    assert found.defined.all()
    assert found.steps.tolist() == expected


@pytest.mark.parametrize("dtype", SMALL, ids=SMALL_IDS)
def test_neighbours_are_one_apart_across_zero_too(dtype: np.dtype[Any]) -> None:
    values, _ = counted_line(dtype)
    line = values[np.argsort(values.astype(np.float64), kind="stable")]
    steps = ulp_distance(line[1:], line[:-1]).steps
    zero = line.astype(np.float64) == 0.0
    assert zero.sum() == 2
    both_zero = zero[1:] & zero[:-1]
    assert (steps[both_zero] == 0).all()
    assert (steps[~both_zero] == 1).all()


@pytest.mark.parametrize("dtype", SMALL, ids=SMALL_IDS)
def test_non_finite_small_values_are_undefined(dtype: np.dtype[Any]) -> None:
    values = every_value(dtype)
    odd = values[~finite(values)]
    assert len(odd) == len(values) - FINITE_COUNT[dtype]
    one = np.ones(len(odd), dtype=dtype)
    for left, right in ((odd, one), (one, odd), (odd, odd)):
        found = ulp_distance(left, right)
        assert not found.defined.any()
        assert found.undefined == len(odd)
        assert found.max() is None
        # "Undefined" must not read as equal or as close.
        assert (found.steps > 1 << 60).all()
        assert not found.within(1 << 62).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("start", [0.0, 1.0, 2.0, -1.0, -4.0, 0.1, "tiny", "subnormal", "-tiny"])
def test_wide_formats_count_nextafter_steps(dtype: Any, start: float | str) -> None:
    info = np.finfo(dtype)
    named = {"tiny": info.tiny, "subnormal": info.smallest_subnormal, "-tiny": -info.tiny}
    value = dtype(named[start] if isinstance(start, str) else start)
    up = down = value
    # 40 steps either way cross zero from the subnormals and a binade from the powers of two.
    for steps in range(1, 41):
        up = np.nextafter(up, dtype(np.inf))
        down = np.nextafter(down, dtype(-np.inf))
        assert ulp_distance(up, value).max() == steps
        assert ulp_distance(down, value).max() == steps
        assert ulp_distance(down, up).max() == 2 * steps
        assert from_ordered(ordered(value) + steps, dtype) == up


def test_largest_distances() -> None:
    big32 = np.float32(3e38)
    assert ulp_distance(big32, -big32).max() == 4_274_217_932
    # numpy subtracts in int32 here: another number altogether.
    with pytest.raises(AssertionError) as told:
        np.testing.assert_array_max_ulp(big32, -big32, maxulp=1)
    assert "4274217932" not in str(told.value).replace(",", "")
    big64 = np.finfo(np.float64).max
    assert ulp_distance(big64, -big64).max() == 2 * (2**63 - 2**52 - 1)
    ends = np.iinfo(np.int64)
    assert ulp_distance(np.int64(ends.min), np.int64(ends.max)).max() == 2**64 - 1


def test_signed_zeros_and_infinities() -> None:
    zeros = np.array([0.0, -0.0], np.float32)
    assert ulp_distance(zeros, zeros[::-1]).steps.tolist() == [0, 0]
    infinity = np.array([np.inf, np.nan, 1.0], np.float32)
    found = ulp_distance(infinity, infinity)
    assert found.defined.tolist() == [False, False, True]
    assert found.undefined == 2
    assert found.max() == 0
    assert ordered(infinity[:1]) == ordered(np.finfo(np.float32).max) + 1


@given(st.integers(-0x7F80_0000, 0x7F80_0000), st.integers(-0x7F7F_FFFF, 0x7F7F_FFFF))
def test_float32_line_goes_there_and_back(first: int, second: int) -> None:
    values = from_ordered([first, second], np.float32)
    assert ordered(values).tolist() == [first, second]
    found = ulp_distance(values[:1], values[1:])
    if abs(first) <= 0x7F7F_FFFF:
        assert found.max() == abs(first - second)
        assert (values[0] < values[1]) == (first < second)
    else:
        assert found.max() is None


@given(st.lists(st.tuples(st.floats(width=64), st.floats(width=64)), min_size=1, max_size=8))
def test_distance_is_symmetric_and_mirrored(pairs: list[tuple[float, float]]) -> None:
    a, b = (np.array(side) for side in zip(*pairs, strict=True))
    there, back, mirrored = ulp_distance(a, b), ulp_distance(b, a), ulp_distance(-a, -b)
    assert np.array_equal(there.steps, back.steps)
    assert np.array_equal(there.steps, mirrored.steps)
    assert np.array_equal(there.defined, np.isfinite(a) & np.isfinite(b))


def exact_ulp(value: Fraction, dtype: np.dtype[Any]) -> Fraction:
    """The definition, in exact arithmetic: walk down the binades."""
    format = FORMATS[dtype]
    exponent = 1024
    while exponent > format.min_exponent and abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    return Fraction(2) ** (exponent - format.fraction)


@pytest.mark.parametrize("dtype", list(FORMATS), ids=[str(dtype) for dtype in FORMATS])
def test_ulp_error_is_the_definition(dtype: np.dtype[Any]) -> None:
    format = FORMATS[dtype]
    rng = np.random.default_rng(11)
    got = from_ordered(rng.integers(-format.max_finite, format.max_finite, 60), dtype)
    exact = got.astype(np.float64)
    exact[20:40] *= 1.0 + rng.normal(size=20) * 2.0**-format.fraction
    exact[40:44] = [0.0, 2.0 ** float(format.min_exponent), 1.0, 1.9999]
    errors = ulp_error(got, exact)
    for value, target, error in zip(got.astype(np.float64), exact, errors, strict=True):
        difference = abs(Fraction(float(value)) - Fraction(float(target)))
        expected = difference / exact_ulp(Fraction(float(target)), dtype)
        # One FP64 rounding of the difference; past FP64 the answer is inf.
        if expected > Fraction(np.finfo(np.float64).max):
            assert error == np.inf
        else:
            assert abs(Fraction(float(error)) - expected) <= expected * Fraction(2) ** -53


def test_ulp_error_examples() -> None:
    one = np.ones(3, np.float32)
    # Below a power of two the unit halves: the same distance counts twice there.
    above, below = 1.0 + 2.0**-24, 1.0 - 2.0**-24
    assert ulp_error(one, np.array([above, below, 1.0])).tolist() == [0.5, 1.0, 0.0]
    tiny = np.array([0.0, 2.0**-149], np.float32)
    assert ulp_error(tiny, np.array([2.0**-150, 0.0])).tolist() == [0.5, 1.0]
    odd = ulp_error(np.array([np.inf, np.nan, 1.0], np.float32), np.array([1.0, 1.0, np.inf]))
    assert np.isnan(odd).all()


@pytest.mark.parametrize("dtype", SMALL, ids=SMALL_IDS)
def test_rounding_is_to_nearest_with_ties_to_even(dtype: np.dtype[Any]) -> None:
    format = FORMATS[dtype]
    steps = np.arange(-format.max_finite, format.max_finite)
    low = from_ordered(steps, dtype).astype(np.float64)
    high = from_ordered(steps + 1, dtype).astype(np.float64)
    middle = (low + high) / 2
    even = np.where(steps % 2 == 0, steps, steps + 1)
    assert np.array_equal(ordered(rounded(middle, dtype)), even)
    # One FP64 step off the middle decides, however far down it is.
    assert np.array_equal(ordered(rounded(np.nextafter(middle, np.inf), dtype)), steps + 1)
    assert np.array_equal(ordered(rounded(np.nextafter(middle, -np.inf), dtype)), steps)
    assert (ulp_error(rounded(middle, dtype), middle) <= 0.5).all()


def test_rounding_happens_once() -> None:
    # By way of float32 this lands on the middle between two BF16 values, then on the even one.
    value = np.array([1.0 + 2.0**-8 + 2.0**-40])
    assert rounded(value, BF16).astype(np.float64) == 1.0 + 2.0**-7
    assert rounded(value.astype(np.float32), BF16).astype(np.float64) == 1.0


@given(st.lists(st.floats(width=64), min_size=1, max_size=20))
def test_rounding_to_float32_is_the_processors(values: list[float]) -> None:
    array = np.array(values)
    with np.errstate(over="ignore", under="ignore"):
        expected = array.astype(np.float32)
    got = rounded(array, np.float32)
    assert np.array_equal(got, expected, equal_nan=True)
    real = ~np.isnan(array)
    assert np.array_equal(np.signbit(got[real]), np.signbit(expected[real]))


@pytest.mark.parametrize("dtype", list(FORMATS), ids=[str(dtype) for dtype in FORMATS])
def test_rounding_past_the_largest_value(dtype: np.dtype[Any]) -> None:
    assert not finite(rounded(np.array([np.inf, -np.inf, np.nan]), dtype)).any()
    largest = from_ordered(FORMATS[dtype].max_finite, dtype).astype(np.float64)
    assert rounded(largest, dtype).astype(np.float64) == largest
    if dtype != np.float64:
        assert not finite(rounded(largest * 1.5, dtype))


def test_signalling_nans_are_values_like_others() -> None:
    signalling = np.array([0x7F80_0001], np.uint32).view(np.float32)
    assert np.isnan(rounded(signalling, BF16).astype(np.float64)).all()
    assert np.isnan(ulp_error(signalling, np.zeros(1))).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ordered(np.zeros(2, np.int32)), "dtype=int32, but should be one of float64"),
        (
            lambda: ulp_distance(np.zeros(2, np.float32), np.zeros(2)),
            "b.dtype=float64, but should be float32 [ulp_distance]",
        ),
        (
            lambda: ulp_distance(np.zeros(2), np.zeros(1)),
            "b.shape=(1,), but should be (2,) [ulp_distance]",
        ),
        (
            lambda: ulp_error(np.zeros(2), np.zeros((2, 1))),
            "exact.shape=(2, 1), but should be (2,) [ulp_error]",
        ),
        (
            lambda: from_ordered([0x7F], E4M3),
            "steps=127, but should be within +-126 of float8_e4m3fn [from_ordered]",
        ),
    ],
)
def test_bad_input_is_named(call: Any, message: str) -> None:
    with pytest.raises(InputError) as told:
        call()
    assert message in str(told.value)
