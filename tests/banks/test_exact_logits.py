"""The quick way to exact FP32 logits gives the bits of the exact product, whatever the rows."""

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neartie.banks.exact_logits import exact_logits
from neartie.banks.exact_product import PreparedWeight, exact_product

BF16 = np.dtype(ml_dtypes.bfloat16)
Matrix = npt.NDArray[Any]


def check(x: Matrix, weight: Matrix, columns: slice | None = None) -> None:
    prepared = PreparedWeight(weight)
    expected = exact_product(x, prepared, columns).astype(np.float32)
    got = exact_logits(x, prepared, columns)
    assert got.dtype == np.float32
    assert (got.view(np.uint32) == expected.view(np.uint32)).all()


def matrix(rng: np.random.Generator, rows: int, k: int, spread: int, dtype: Any) -> Matrix:
    powers = np.ldexp(1.0, rng.integers(-spread, spread + 1, (rows, k)))
    return (rng.standard_normal((rows, k)) * powers).astype(dtype)


@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**31),
    rows=st.integers(1, 7),
    k=st.integers(1, 80),
    out=st.integers(1, 9),
    spread=st.sampled_from([0, 3, 40, 120]),
    dtype=st.sampled_from([BF16, np.dtype(np.float32)]),
    cancel=st.booleans(),
)
def test_bits_are_those_of_the_exact_product(
    seed: int, rows: int, k: int, out: int, spread: int, dtype: Any, cancel: bool
) -> None:
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        x, weight = matrix(rng, rows, k, spread, dtype), matrix(rng, out, k, spread, dtype)
        if cancel and k > 1:
            # Whole sums that vanish, or nearly so.
            weight[:, k // 2] = weight[:, 0]
            x[:, k // 2] = -x[:, 0]
        first = int(rng.integers(0, k))
        check(x, weight)
        check(x, weight, slice(first, k))


def test_what_an_fp64_product_cannot_decide_is_summed_without_error() -> None:
    """1 + 2^-24 is halfway between two FP32 numbers; the tail is below its FP64 steps, or is not.

    As the definition says, the exact sum is rounded to FP64 first: a tail that vanishes there
    leaves the half, which goes to even.
    """
    up = float(np.nextafter(np.float32(1), np.float32(2)))
    cases = {0.0: 1.0, 2.0**-60: 1.0, -(2.0**-60): 1.0, 2.0**-50: up, -(2.0**-50): 1.0}
    x = np.zeros((len(cases), 4), np.float32)
    x[:, :2] = 1.0, 2.0**-24
    x[:, 2] = list(cases)
    # What cancels exactly makes the bound wide: no end of the interval decides.
    weight = np.array([[1.0, 1.0, 1.0, 0.0]], np.float32)
    check(x, weight)
    assert exact_logits(x, PreparedWeight(weight))[:, 0].tolist() == list(cases.values())


@pytest.mark.parametrize("wide", [3, 16, 17, 40])
def test_rows_with_few_and_with_many_undecided_elements(wide: int) -> None:
    """Sums that cancel to nothing: up to 16 of a row are summed alone, more as a whole row."""
    rng = np.random.default_rng(wide)
    x = rng.standard_normal((5, 24)).astype(BF16)
    weight = rng.standard_normal((48, 24)).astype(BF16)
    x[:, 12:] = np.negative(x[:, :12])
    weight[:wide, 12:] = weight[:wide, :12]
    check(x, weight)
    assert (exact_logits(x, PreparedWeight(weight))[:, :wide] == 0).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38])
def test_special_values(value: float) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((6, 5)).astype(np.float32)
    weight = rng.standard_normal((4, 5)).astype(np.float32)
    x[1] = value
    x[2, 3] = value
    weight[3, 1] = value
    with np.errstate(all="ignore"):
        check(x, weight)


def test_no_rows() -> None:
    weight = PreparedWeight(np.ones((3, 4), np.float32))
    assert exact_logits(np.empty((0, 4), np.float32), weight).shape == (0, 3)
