"""The exact product rounded to FP64 and then to FP32, mostly from one plain FP64 product.

A BLAS may add in any order and fuse what it likes: with k exact products, what it returns is within
gamma_k |x| |w| of the exact sum, gamma_k = k u / (1 - k u) and u = 2^-53. Rounding is monotonic, so
where both ends of that interval round to one FP32 number, the exact sum does too; an element whose
ends do not is summed without error.

Source: N. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed. 2002, section 3.1; the
norms bound sum |x_i w_i| by the Cauchy-Schwarz inequality.
"""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np
import numpy.typing as npt

from .exact_product import PreparedWeight, column_range, exact_product
from .exact_sum import MOST_PARTS, grow, rounded

F32 = npt.NDArray[np.float32]

_UNIT: Final = 2.0**-53
# Elements of a row that are summed one by one; a row with more is multiplied exactly as a whole.
_FEW: Final = 16
# Norms are computed in FP64: their own rounding, k + 2 steps at most, is far below this.
_NORM_SLACK: Final = 1.0 + 2.0**-30


def exact_logits(x: npt.NDArray[Any], weight: PreparedWeight, columns: slice | None = None) -> F32:
    """Return ``exact_product(x, weight, columns)`` rounded to FP32, bit for bit.

    Args:
        x: [row, k] BF16, FP16 or FP32; with ``columns``, the whole k or only those columns.
        weight: prepared [out, k]; it keeps an FP64 copy.
        columns: a part of k to multiply (K-split), step 1.

    Returns:
        [row, out] float32.

    Raises:
        InputError: as ``exact_product``.
    """
    first, last = column_range(columns, weight.k)
    part = x[:, first:last] if x.ndim == 2 and x.shape[1] == weight.k else x
    if part.ndim != 2 or part.shape[1] != last - first:
        return exact_product(x, weight, columns).astype(np.float32)
    values, plain = part.astype(np.float64), weight.plain
    count = last - first
    gamma = count * _UNIT / (1.0 - count * _UNIT)
    with np.errstate(all="ignore"):
        product = values @ plain[:, first:last].T
        reach = np.sqrt(np.einsum("rk,rk->r", values, values)) * (gamma * _NORM_SLACK**2)
    result = np.empty(product.shape, np.float32)
    left = np.flatnonzero(
        _round(product, reach, weight.norms, values, plain[:, first:last], result)
    )
    if len(left):
        result[left] = exact_product(part[left], weight, columns).astype(np.float32)
    return result


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _round(product: Any, reach: Any, norms: Any, x: Any, weight: Any, result: Any) -> Any:
    """Write the rows' FP32 logits; return the rows [row] that are left to the exact product.

    Args:
        product: [row, out] float64, within reach[row] * norms[out] of the exact sums.
        reach: [row] float64.
        norms: [out] float64.
        x: [row, k] float64.
        weight: [out, k] float64.
        result: [row, out] float32, written.
    """
    rows, out = product.shape
    left = np.zeros(rows, np.bool_)
    ends, parts = np.empty(out, np.int32), np.empty(MOST_PARTS)
    for row in range(rows):
        undecided = np.int32(0)
        for o in range(out):
            value = product[row, o]
            # The last term pays for the rounding of the two ends themselves.
            bound = reach[row] * norms[o] + 2.0**-52 * abs(value)
            low, high = np.float32(value - bound), np.float32(value + bound)
            result[row, o] = low
            # By bits: -0 and +0 are two. What is not finite is never decided.
            same = low.view(np.int32) == high.view(np.int32)
            ends[o] = np.int32(same and abs(value) < np.inf)
            undecided += np.int32(1) - ends[o]
        left[row] = undecided > _FEW or not (reach[row] < np.inf)
        if undecided == 0 or left[row]:
            continue
        for o in range(out):
            if ends[o] == 0:
                count = 0
                for i in range(x.shape[1]):
                    count = grow(parts, count, x[row, i] * weight[o, i])
                result[row, o] = np.float32(rounded(parts, count) + 0.0)
                left[row] |= not (norms[o] < np.inf)
    return left
