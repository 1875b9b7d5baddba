import math
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neartie.banks.errors import InputError
from neartie.banks.exact_product import PreparedWeight, exact_product
from neartie.banks.exact_sum import MOST_PARTS, grow, rounded

BF16 = np.dtype(ml_dtypes.bfloat16)
F32 = np.dtype(np.float32)
Matrix = npt.NDArray[np.float32]


def matrix(seed: int, rows: int, k: int, spread: int, dtype: np.dtype[np.generic]) -> Matrix:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((rows, k)) * 2.0 ** rng.integers(-spread, spread + 1, (rows, k))
    values[rng.random((rows, k)) < 0.1] = 0.0
    made: Any = values.astype(dtype)
    matrix: Matrix = made
    return matrix


def by_fsum(x: Matrix, weight: Matrix) -> npt.NDArray[np.float64]:
    a, b = x.astype(np.float64), weight.astype(np.float64)
    return np.array([[math.fsum((row * w).tolist()) for w in b] for row in a]) + 0.0


def same_bits(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


@settings(max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 40),
    st.sampled_from([0, 3, 15, 60, 120]),
    st.sampled_from([BF16, F32]),
    st.data(),
)
def test_equals_fsum_of_exact_products(
    seed: int, k: int, spread: int, dtype: np.dtype[np.generic], data: st.DataObject
) -> None:
    x = matrix(seed, 3, k, spread, dtype)
    weight = matrix(seed + 1, 4, k, spread, dtype)
    expected = by_fsum(x, weight)
    assert same_bits(exact_product(x, weight), expected)
    order = np.asarray(data.draw(st.permutations(range(k))))
    assert same_bits(exact_product(x[:, order], weight[:, order]), expected)


@pytest.mark.parametrize("k", [512, 7168])
def test_equals_fsum_at_real_lengths(k: int) -> None:
    x, weight = matrix(1, 3, k, 0, BF16), matrix(2, 9, k, 0, BF16)
    # An outlier makes most values residuals of the first slice.
    x[1, 5] = 3e4
    weight[2, 7] = 1e6
    assert same_bits(exact_product(x, weight), by_fsum(x, weight))


def test_cancellation_down_to_the_last_bit() -> None:
    x = np.asarray([[1e30, 1.0, -1e30, 1e-30]], np.float32)
    weight = np.ones((1, 4), np.float32)
    assert exact_product(x, weight)[0, 0] == 1.0
    # A plain FP64 sum in this order loses everything: the test could fail.
    assert float((x.astype(np.float64) * weight).sum()) != 1.0


def test_rounds_to_nearest_even_on_the_whole_sum() -> None:
    half_step = 2.0**-53
    for tiny, expected in ((0.0, 1.0), (2.0**-120, 1.0 + 2.0**-52), (-(2.0**-120), 1.0)):
        parts, count = np.empty(MOST_PARTS), 0
        for term in (1.0, half_step, tiny):
            count = grow(parts, count, term)
        assert rounded(parts, count) == expected


def test_column_and_row_blocks_are_those_of_the_whole() -> None:
    x, weight = matrix(3, 5, 64, 20, BF16), matrix(4, 12, 64, 20, BF16)
    prepared = PreparedWeight(weight)
    for first, last in ((0, 64), (8, 24), (63, 64)):
        expected = by_fsum(x[:, first:last], weight[:, first:last])
        part = slice(first, last)
        assert same_bits(exact_product(x, prepared, columns=part), expected)
        assert same_bits(exact_product(x[:, part], prepared, columns=part), expected)
    whole = exact_product(x, prepared)
    assert same_bits(exact_product(x, prepared.rows(3, 7)), whole[:, 3:7].copy())


def test_nonfinite_rows_follow_ieee_and_leave_the_others_alone() -> None:
    x, weight = matrix(5, 4, 16, 5, F32), matrix(6, 4, 16, 5, F32)
    x[1, 3], x[2, 0] = np.nan, np.inf
    weight[:, 0] = 1.0
    weight[3, 2] = -np.inf
    x[:, 2] = 1.0
    got = exact_product(x, weight)
    assert np.isnan(got[1]).all()
    assert (got[2, :3] == np.inf).all()
    assert np.isnan(got[2, 3])
    assert got[0, 3] == -np.inf
    assert same_bits(got[[0, 3]][:, :3].copy(), by_fsum(x[[0, 3]], weight[:3]))


def test_exact_zero_is_positive() -> None:
    x = np.asarray([[1.0, -1.0], [-0.0, -0.0]], np.float32)
    got = exact_product(x, np.ones((1, 2), np.float32))
    assert not np.signbit(got).any()


@pytest.mark.parametrize(
    ("x", "weight", "message"),
    [
        (np.ones((1, 2)), np.ones((1, 2), np.float32), "x.dtype=float64, but should be one of"),
        (np.ones((1, 2), np.float32), np.ones((1, 2), np.int32), "weight.dtype=int32"),
        (np.ones((1, 3), np.float32), np.ones((1, 2), np.float32), "x.shape=(1, 3), but should be"),
        (np.ones(2, np.float32), np.ones((1, 2), np.float32), "x.shape=(2,), but should be two"),
        (np.ones((1, 2), np.float32), np.ones((0, 2), np.float32), "weight.shape=(0, 2)"),
    ],
)
def test_refuses(x: Matrix, weight: Matrix, message: str) -> None:
    with pytest.raises(InputError) as error:
        exact_product(x, weight)
    assert message in str(error.value)


def test_refuses_columns_and_rows_outside() -> None:
    x, prepared = np.ones((1, 4), np.float32), PreparedWeight(np.ones((3, 4), np.float32))
    with pytest.raises(InputError, match=r"a part of 0:4 with step 1"):
        exact_product(x, prepared, columns=slice(2, 2))
    with pytest.raises(InputError, match=r"rows=1:9, but should be a part of 0:3"):
        prepared.rows(1, 9)


def test_no_rows_have_no_products() -> None:
    assert exact_product(np.empty((0, 4), np.float32), np.ones((3, 4), np.float32)).shape == (0, 3)
