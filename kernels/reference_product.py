"""Matrix products of the reference: one fixed order over k, the same bits on every machine."""

from __future__ import annotations

from typing import Any, Literal

import numba
import numpy as np
import numpy.typing as npt

from ..banks.errors import InputError
from .contract import BFLOAT16, F32

_COLUMNS = 128
_DEPTH = 256


def _as_f32(name: str, values: npt.NDArray[Any]) -> F32:
    """The same values as contiguous float32 [row, k]; BF16 widens exactly."""
    if values.ndim != 2:
        raise InputError(name, values.shape, "a matrix [row, k]", "reference_product")
    if values.dtype == BFLOAT16:
        bits = np.ascontiguousarray(values).view(np.uint16).astype(np.uint32)
        return np.left_shift(bits, 16, out=bits).view(np.float32)
    if values.dtype == np.float32:
        return np.ascontiguousarray(values)
    raise InputError(f"{name}.dtype", values.dtype, "bfloat16 or float32", "reference_product")


# Every output element is one running sum over k = 0, 1, 2, ...: the blocks only decide when a
# part of that sum is done. Columns are the vector axis. Four steps of k share one load and store
# of the running sum, in their order.
@numba.njit(parallel=True, cache=True)
def _ordered_product(x: Any, weight: Any, out: Any) -> None:
    rows, depth = x.shape
    columns = weight.shape[0]
    for block in numba.prange((columns + _COLUMNS - 1) // _COLUMNS):
        first = block * _COLUMNS
        width = min(_COLUMNS, columns - first)
        tile = np.zeros((_DEPTH, _COLUMNS), out.dtype)
        sums = np.zeros((rows, _COLUMNS), out.dtype)
        for start in range(0, depth, _DEPTH):
            length = min(_DEPTH, depth - start)
            for j in range(width):
                for k in range(length):
                    tile[k, j] = weight[first + j, start + k]
            for i in range(rows):
                k = 0
                while k + 4 <= length:
                    x0, x1 = x[i, start + k], x[i, start + k + 1]
                    x2, x3 = x[i, start + k + 2], x[i, start + k + 3]
                    for j in range(_COLUMNS):
                        value = sums[i, j] + x0 * tile[k, j]
                        value = value + x1 * tile[k + 1, j]
                        value = value + x2 * tile[k + 2, j]
                        sums[i, j] = value + x3 * tile[k + 3, j]
                    k += 4
                while k < length:
                    x0 = x[i, start + k]
                    for j in range(_COLUMNS):
                        sums[i, j] += x0 * tile[k, j]
                    k += 1
        for i in range(rows):
            for j in range(width):
                out[i, first + j] = sums[i, j]


def reference_product(
    x: npt.NDArray[Any],
    weight: npt.NDArray[Any],
    accumulate: Literal["fp64", "fp32"] = "fp64",
) -> npt.NDArray[Any]:
    """Products x[row] . weight[out], summed over k from left to right.

    Args:
        x: [row, k] bfloat16 or float32.
        weight: [out, k] bfloat16 or float32.
        accumulate: ``fp64`` (products are exact, sums round in FP64) or ``fp32`` (a plain FP32
            product: multiply and add each round to FP32; BF16 products are exact there).

    Returns:
        [row, out] float64, or float32 for ``fp32``.

    Raises:
        InputError: a shape or dtype that does not fit.
    """
    if accumulate not in ("fp64", "fp32"):
        raise InputError("accumulate", accumulate, "fp64 or fp32", "reference_product")
    left, right = _as_f32("x", x), _as_f32("weight", weight)
    if left.shape[1] != right.shape[1]:
        raise InputError("weight.k", right.shape[1], left.shape[1], "reference_product")
    dtype = np.float64 if accumulate == "fp64" else np.float32
    out = np.empty((left.shape[0], right.shape[0]), dtype)
    _ordered_product(left.astype(dtype), right, out)
    return out
