"""The product of two low-precision matrices, exact before its one rounding to FP64.

Each operand is split row by row into slices on a power-of-two grid so coarse that a slice product
summed over k stays below 2**53 grid units: every partial sum is an exact FP64 number, so the order
in which a BLAS adds cannot change a bit. What does not fit on the grid (small values beside large
ones) is kept as a sparse residual. Slice products and residual products, all exact, are then added
without error and rounded once.

Source: K. Ozaki, T. Ogita, S. Oishi, S. Rump, "Error-free transformations of matrix multiplication
by using fast routines of matrix multiplication and its applications", Numer. Algorithms 59 (2012).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numba
import numpy as np
import numpy.typing as npt

from .errors import InputError
from .exact_sum import MOST_PARTS, grow, rounded

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

_SIGNIFICAND: Final = 53
# A residual denser than this is cheaper as another dense slice.
_SPARSE_ENOUGH: Final = 1 / 64
_MOST_SLICES: Final = 3
_DTYPES: Final = (np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32))


@dataclass(frozen=True, eq=False)
class _Split:
    """value = sum of ``slices`` + residual, exactly; rows with a non-finite value are all zero.

    Attributes:
        slices: [slice, row, k] float64, integers of at most ``bits`` bits times 2**n of the row.
        start: [row + 1] int64, where each row's residuals start.
        column: [residual] int64.
        value: [residual] float64.
        bad: [n] int64, rows that hold a NaN or an infinity.
    """

    bits: int
    slices: F64
    start: I64
    column: I64
    value: F64
    bad: I64


class PreparedWeight:
    """A weight matrix split once, for many products.

    Args:
        weight: [out, k] BF16, FP16 or FP32.

    Raises:
        InputError: another dtype, not two axes, or an empty axis.
    """

    def __init__(self, weight: npt.NDArray[Any]) -> None:
        self.original = _checked(weight, "weight")
        self.out, self.k = weight.shape
        self._split = _split(
            self.original.astype(np.float64), (_SIGNIFICAND - _log2_ceiling(self.k)) // 2
        )

    def rows(self, start: int, stop: int) -> PreparedWeight:
        """Return output rows start..stop as their own weight, sharing memory (N-split)."""
        if not 0 <= start < stop <= self.out:
            raise InputError("rows", f"{start}:{stop}", f"a part of 0:{self.out}", "weight")
        part = object.__new__(PreparedWeight)
        part.original = self.original[start:stop]
        part.out, part.k = stop - start, self.k
        whole = self._split
        first, last = int(whole.start[start]), int(whole.start[stop])
        inside = (whole.bad >= start) & (whole.bad < stop)
        part._split = _Split(
            whole.bits,
            whole.slices[:, start:stop],
            whole.start[start : stop + 1] - first,
            whole.column[first:last],
            whole.value[first:last],
            whole.bad[inside] - start,
        )
        return part


def exact_product(
    x: npt.NDArray[Any],
    weight: npt.NDArray[Any] | PreparedWeight,
    columns: slice | None = None,
) -> F64:
    """Return x @ weight.T, each element the exact sum rounded once to FP64 (ties to even).

    The result is what ``math.fsum`` gives for the exact products, so it does not depend on the
    machine, the BLAS, the number of threads or the order of k. An exact zero is +0. A row with a
    NaN or an infinity gives what IEEE arithmetic gives, with one NaN bit pattern.

    Args:
        x: [row, k] BF16, FP16 or FP32; with ``columns``, the whole k or only those columns.
        weight: [out, k] of the same dtypes, or prepared.
        columns: a part of k to multiply (K-split), step 1.

    Returns:
        [row, out] float64.

    Raises:
        InputError: dtypes, shapes or columns that do not fit.

    Example:
        >>> exact_product(np.float32([[1e30, 1.0, -1e30]]), np.float32([[1.0, 1.0, 1.0]]))
        array([[1.]])
    """
    prepared = weight if isinstance(weight, PreparedWeight) else PreparedWeight(weight)
    _checked(x, "x")
    first, last = _column_range(columns, prepared.k)
    if x.shape[1] == prepared.k:
        x = x[:, first:last]
    elif x.shape[1] != last - first:
        raise InputError("x.shape", x.shape, f"(rows, {last - first})", "exact product")
    values = x.astype(np.float64)
    whole = prepared._split
    left = _split(values, _SIGNIFICAND - _log2_ceiling(last - first) - whole.bits)
    parts = np.matmul(
        left.slices[:, np.newaxis], whole.slices[:, :, first:last].transpose(0, 2, 1)
    ).reshape(len(left.slices) * len(whole.slices), len(x), prepared.out)
    if len(parts) == 1 and not len(left.value) and not len(whole.value):
        result: F64 = parts[0] + 0.0
    else:
        result = _add_exactly(
            parts, values, (left.start, left.column, left.value), whole.slices,
            (whole.start, whole.column, whole.value), first, last,
        )  # fmt: skip
    if len(left.bad) or len(whole.bad):
        right = prepared.original[:, first:last].astype(np.float64)
        result[left.bad] = _plain(values[left.bad], right)
        result[:, whole.bad] = _plain(values, right[whole.bad])
    return result


def _checked(array: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    if array.dtype not in _DTYPES:
        names = ", ".join(str(dtype) for dtype in _DTYPES)
        raise InputError(f"{what}.dtype", array.dtype, f"one of {names}", "exact product")
    if array.ndim != 2 or (what == "weight" and 0 in array.shape):
        raise InputError(f"{what}.shape", array.shape, "two axes, not empty", "exact product")
    return array


def _column_range(columns: slice | None, k: int) -> tuple[int, int]:
    first, last, step = (columns or slice(None)).indices(k)
    if step != 1 or first >= last:
        raise InputError("columns", columns, f"a part of 0:{k} with step 1", "exact product")
    return first, last


def _log2_ceiling(count: int) -> int:
    return (count - 1).bit_length()


def _split(values: F64, bits: int) -> _Split:
    # A row with a non-finite value is set apart: it has no grid.
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    rest = values
    if len(bad):
        rest = values.copy()
        rest[bad] = 0.0
    slices = []
    while True:
        piece, rest, count = _slice(rest, bits)
        slices.append(piece)
        if count <= values.size * _SPARSE_ENOUGH or len(slices) == _MOST_SLICES:
            break
    start = np.zeros(len(values) + 1, np.int64)
    column = np.empty(0, np.int64)
    value = np.empty(0, np.float64)
    if count:
        row, column = np.nonzero(rest)
        np.cumsum(np.bincount(row, minlength=len(values)), out=start[1:])
        value = rest[row, column]
    stacked = slices[0][np.newaxis] if len(slices) == 1 else np.stack(slices)
    return _Split(bits, stacked, start, column, value, bad)


@numba.njit(cache=True, parallel=True)
def _slice(values: F64, bits: int) -> tuple[F64, F64, int]:
    """Return values rounded to 2**bits grid units of each row, the rest, and its nonzeros."""
    rows, k = values.shape
    piece = np.empty_like(values)
    rest = np.empty_like(values)
    counts = np.zeros(rows, np.int64)
    for row in numba.prange(rows):
        largest = 0.0
        for i in range(k):
            largest = max(largest, abs(values[row, i]))
        # largest < 2**exponent, and both powers of two are normal numbers.
        exponent = math.frexp(largest)[1]
        unit = math.ldexp(1.0, exponent - bits)
        inverse = math.ldexp(1.0, bits - exponent)
        count = 0
        for i in range(k):
            piece[row, i] = np.rint(values[row, i] * inverse) * unit
            rest[row, i] = values[row, i] - piece[row, i]
            count += rest[row, i] != 0.0
        counts[row] = count
    return piece, rest, counts.sum()


@numba.njit(cache=True, parallel=True)
def _add_exactly(
    products: F64,
    x: F64,
    left: tuple[I64, I64, F64],
    heads: F64,
    right: tuple[I64, I64, F64],
    first: int,
    last: int,
) -> F64:
    """Return slice products + x residual * weight slices + x * weight residual, rounded once.

    ``products`` [slice pair, row, out] are exact; ``left`` and ``right`` are the residuals of x and
    the weight as (start, column, value); ``heads`` [slice, out, k] are the weight's slices.
    """
    pairs, rows, out = products.shape
    # Only the residuals of the columns in use.
    begin = np.empty(out, np.int64)
    end = np.empty(out, np.int64)
    for o in range(out):
        inside = right[1][right[0][o] : right[0][o + 1]]
        begin[o] = right[0][o] + np.searchsorted(inside, first)
        end[o] = right[0][o] + np.searchsorted(inside, last)
    result = np.empty((rows, out))
    for row in numba.prange(rows):
        parts = np.empty(MOST_PARTS)
        usable = np.isfinite(x[row]).all()
        alone = pairs == 1 and left[0][row] == left[0][row + 1]
        for o in range(out):
            if alone and begin[o] == end[o]:
                result[row, o] = products[0, row, o] + 0.0
                continue
            count = 0
            for pair in range(pairs):
                count = grow(parts, count, products[pair, row, o])
            for i in range(left[0][row], left[0][row + 1]):
                for head in range(len(heads)):
                    term = left[2][i] * heads[head, o, first + left[1][i]]
                    count = grow(parts, count, term)
            if usable:
                for i in range(begin[o], end[o]):
                    count = grow(parts, count, x[row, right[1][i] - first] * right[2][i])
            result[row, o] = rounded(parts, count)
    return result


@numba.njit(cache=True)
def _plain(x: F64, weight: F64) -> F64:
    """Return x @ weight.T by IEEE rules where an operand is not finite, NaN as one pattern."""
    result = np.zeros((len(x), len(weight)))
    for row in range(len(x)):
        for o in range(len(weight)):
            total = 0.0
            for i in range(x.shape[1]):
                total += x[row, i] * weight[o, i]
            result[row, o] = np.nan if np.isnan(total) else total
    return result
