"""The reference's product: exact terms, one order of addition."""

import math
from typing import Any

import numpy as np
import pytest

from neartie.banks.errors import InputError
from neartie.kernels.contract import BFLOAT16
from neartie.kernels.reference import reference_product


def _operands(rows: int, k: int, out: int, dtype: Any) -> tuple[Any, Any]:
    random = np.random.default_rng(rows + k)
    x = random.normal(size=(rows, k)) * np.exp2(random.integers(-30, 30, (rows, k)))
    return x.astype(np.float32).astype(BFLOAT16), random.normal(size=(out, k)).astype(dtype)


@pytest.mark.parametrize(("rows", "k", "out"), [(1, 1, 1), (3, 259, 130), (5, 770, 129), (2, 6, 3)])
@pytest.mark.parametrize("dtype", [BFLOAT16, np.float32])
@pytest.mark.parametrize("accumulate", ["fp64", "fp32"])
def test_adds_from_left_to_right(rows: int, k: int, out: int, dtype: Any, accumulate: Any) -> None:
    x, weight = _operands(rows, k, out, dtype)
    kind = np.float64 if accumulate == "fp64" else np.float32
    expected = np.zeros((rows, out), kind)
    for column in range(k):
        expected = expected + x[:, column, None].astype(kind) * weight[:, column].astype(kind)
    got = reference_product(x, weight, accumulate)
    assert got.dtype == kind
    assert np.array_equal(got, expected)


def test_close_to_the_exact_sum() -> None:
    x, weight = _operands(2, 700, 5, BFLOAT16)
    got = reference_product(x, weight)
    for i in range(2):
        for j in range(5):
            terms = [float(a) * float(b) for a, b in zip(x[i], weight[j], strict=True)]
            size = math.fsum(abs(term) for term in terms)
            assert abs(got[i, j] - math.fsum(terms)) <= 700 * 2.0**-53 * size


def test_bad_input() -> None:
    x, weight = _operands(2, 8, 3, BFLOAT16)
    with pytest.raises(InputError, match=r"x.dtype=float64, but should be bfloat16 or float32"):
        reference_product(x.astype(np.float64), weight)
    with pytest.raises(InputError, match=r"weight.k=7, but should be 8"):
        reference_product(x, weight[:, :7])
    with pytest.raises(InputError, match="accumulate=bf16"):
        reference_product(x, weight, "bf16")  # type: ignore[arg-type]
