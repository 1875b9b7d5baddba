"""Value differences: the sides of the triangle, pooled and by row, and their correlation.

Sums of squares run left to right over a row in FP64, one row after the other, and rows are pooled
by an exact sum, rounded once: the same bits on every machine, in any order of merging.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

import ml_dtypes
import numba
import numpy as np
import numpy.typing as npt

from ...banks.errors import InputError
from .exact_sum import ExactSum
from .ulp import Bools, Format, format_of, position_of_bits

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

GAUSSIAN_ROUNDING: Final = 0.42538571980120743
"""Relative RMS error, in unit roundoffs, of rounding N(0, 1) data once.

An error uniform over one unit in the last place has variance ulp**2 / 12, and ulp = 2 u 2**e in
the binade of exponent e, so the square is (4 / 12) * sum over e of 4**e P(2**e <= |x| < 2**(e+1)).
Another standard deviation shifts the data against the binades and moves the figure a little.
"""


def unit_roundoff(dtype: npt.DTypeLike) -> float:
    """Return u, the largest relative error of rounding a normal value: 2**-p with p bits."""
    return math.ldexp(0.5, -format_of(dtype, "unit_roundoff").fraction)


def epsilon(dtype: npt.DTypeLike) -> float:
    """Return the step from 1 to the next value: 2 u."""
    return 2.0 * unit_roundoff(dtype)


BF16_UNIT_ROUNDOFF: Final = unit_roundoff(ml_dtypes.bfloat16)

# Rows are widened to FP64 in pieces of about this many elements, which stay in the cache.
_PIECE: Final = 1 << 17
# 2**k at [k + 1074], for all k where it is a FP64 value.
_POWERS: Final[F64] = np.ldexp(1.0, np.arange(-1074, 1024))


@dataclass(frozen=True, eq=False, slots=True)
class RowMeasures:
    """What one pair of tensors shows, row by row; every array is [row].

    Attributes:
        error_square: float64, squared norm of actual - expected.
        reference_square: float64, squared norm of expected.
        comparable: bool, False where a non-finite element is not the same on both sides (or a
            norm overflows): the row's norms say nothing then.
        max_ulp: uint64, largest distance in actual's dtype; means nothing where ``undefined`` is
            the whole row.
        max_ulp_error: float64, largest fractional error; NaN where none is asked for or defined.
        undefined: int64, elements without a ULP distance.
        elements: elements per row.
    """

    error_square: F64
    reference_square: F64
    comparable: Bools
    max_ulp: U64
    max_ulp_error: F64
    undefined: I64
    elements: int

    def relative_rms(self) -> F64:
        """Return float64 [row], NaN where not comparable or the reference's norm is 0."""
        defined = self.comparable & (self.reference_square > 0.0)
        quotient = np.full(len(defined), np.nan)
        np.divide(self.error_square, self.reference_square, out=quotient, where=defined)
        result: F64 = np.sqrt(quotient)
        return result


@numba.njit(cache=True, nogil=True)
def _measure(
    actual: F64,
    expected: F64,
    actual_bits: I64,
    expected_bits: I64,
    fraction: int,
    min_exponent: int,
    max_finite: int,
    powers: F64,
    squares: F64,
    steps: U64,
    error: F64,
    counts: I64,
) -> None:
    """Fill squares [row, 2], steps [row], error [row] and counts [row, 2] for finite elements.

    counts[:, 0] are elements without a distance, counts[:, 1] those that are non-finite.
    """
    infinite = 0x7FF0_0000_0000_0000
    for row in range(actual.shape[0]):
        error_square = 0.0
        reference_square = 0.0
        for column in range(actual.shape[1]):
            bits = actual_bits[row, column]
            target = expected_bits[row, column]
            if (bits & infinite) == infinite or (target & infinite) == infinite:
                counts[row, 0] += 1
                counts[row, 1] += 1
                continue
            value = actual[row, column]
            exact = expected[row, column]
            difference = value - exact
            error_square += difference * difference
            reference_square += exact * exact
            here = position_of_bits(bits, fraction, min_exponent)
            there = position_of_bits(target, fraction, min_exponent)
            if abs(there) > max_finite:
                # The expected value is past the dtype's largest: it rounds to infinity.
                counts[row, 0] += 1
            elif here > there:
                steps[row] = max(steps[row], np.uint64(here) - np.uint64(there))
            else:
                steps[row] = max(steps[row], np.uint64(there) - np.uint64(here))
            exponent = max(((target & infinite) >> 52) - 1023, min_exponent)
            # 1 / ulp in two factors, because 2**1074 is not a FP64 value.
            scale = fraction - exponent
            first = powers[(scale >> 1) + 1074]
            second = powers[scale - (scale >> 1) + 1074]
            error[row] = max(error[row], abs(value * first * second - exact * first * second))
        squares[row, 0] = error_square
        squares[row, 1] = reference_square


def measure_rows(
    actual: npt.NDArray[Any], expected: npt.NDArray[Any], *, fractional: bool | None = None
) -> RowMeasures:
    """Return the norms and ULP distances of each row.

    The ULP distance is measured in ``actual``'s dtype, to ``expected`` rounded to it once (to
    nearest, ties to even). Non-finite elements have no distance and are counted; where they are
    the same on both sides they add nothing to the norms, elsewhere the row is not comparable.
    The same means: infinities of one sign, or NaNs (of the same bits, where the dtypes agree).

    Args:
        actual: [row, ...], a dtype of ``ulp.FORMATS``.
        expected: [row, ...] of the same shape, a dtype of ``ulp.FORMATS``.
        fractional: also measure |actual - expected| / ulp(expected); left out, only where
            ``expected`` is float64, which is how exact references come.

    Raises:
        InputError: shapes differ or a dtype is unknown.
    """
    if actual.shape != expected.shape or actual.ndim == 0:
        raise InputError("actual.shape", actual.shape, expected.shape, "measure_rows")
    format = format_of(actual.dtype, "measure_rows")
    format_of(expected.dtype, "measure_rows")
    if fractional is None:
        fractional = expected.dtype == np.float64
    rows = actual.shape[0]
    columns = math.prod(actual.shape[1:])
    squares, counts = np.zeros((rows, 2)), np.zeros((rows, 2), dtype=np.int64)
    steps, error = np.zeros(rows, dtype=np.uint64), np.full(rows, -1.0)
    comparable = np.ones(rows, dtype=np.bool_)
    left, right = actual.reshape(rows, columns), expected.reshape(rows, columns)
    height = max(1, _PIECE // max(columns, 1))
    for start in range(0, rows, height):
        part = slice(start, start + height)
        outputs = (squares[part], steps[part], error[part], counts[part])
        _measure_piece(left[part], right[part], format, outputs, comparable[part])
    comparable &= np.isfinite(squares).all(axis=1)
    error[error < 0.0] = np.nan
    if not fractional:
        error[:] = np.nan
    return RowMeasures(
        squares[:, 0], squares[:, 1], comparable, steps, error, counts[:, 0], columns
    )


def _measure_piece(
    actual: npt.NDArray[Any],
    expected: npt.NDArray[Any],
    format: Format,
    outputs: tuple[F64, U64, F64, I64],
    comparable: Bools,
) -> None:
    # Widening a signalling NaN is reported as invalid; it stays a NaN and is counted as such.
    with np.errstate(invalid="ignore"):
        left = np.ascontiguousarray(actual, dtype=np.float64)
        right = np.ascontiguousarray(expected, dtype=np.float64)
    bits = (left.view(np.int64), right.view(np.int64))
    limits = (format.fraction, format.min_exponent, format.max_finite)
    squares, steps, error, counts = outputs
    _measure(left, right, *bits, *limits, _POWERS, squares, steps, error, counts)
    odd = np.flatnonzero(counts[:, 1])
    if odd.size:
        finite = np.isfinite(left[odd]) & np.isfinite(right[odd])
        if actual.dtype == expected.dtype:
            same = actual[odd].view(format.bits) == expected[odd].view(format.bits)
        else:
            same = (left[odd] == right[odd]) | (np.isnan(left[odd]) & np.isnan(right[odd]))
        comparable[odd] = (finite | same).all(axis=1)


@dataclass(frozen=True, slots=True)
class PairValues:
    """One side of the triangle over all rows added; None where nothing is defined.

    Attributes:
        rows, elements: what was compared.
        relative_rms: ||actual - expected|| / ||expected||, pooled over the comparable rows.
        worst_row: row of the largest relative RMS of one row; the lowest such row.
        worst_row_relative_rms: that row's.
        max_ulp: largest distance in actual's dtype.
        max_ulp_row: the lowest row that shows it.
        undefined: elements without a distance (a side is non-finite).
        max_ulp_error: largest |actual - expected| / ulp(expected); only against an exact reference.
        undefined_rows: rows without a relative RMS: not comparable (these are left out of the
            pooled figure), or a reference norm of 0 (these stay in it).
        error_square: ||actual - expected||^2 over the comparable rows, an exactly rounded sum.
        reference_square: ||expected||^2, likewise; ``relative_rms`` is the root of their quotient.
    """

    rows: int
    elements: int
    relative_rms: float | None
    worst_row: int | None
    worst_row_relative_rms: float | None
    max_ulp: int | None
    max_ulp_row: int | None
    undefined: int
    max_ulp_error: float | None
    undefined_rows: int
    error_square: float
    reference_square: float


@dataclass(frozen=True, slots=True)
class _Largest:
    """A largest value and the lowest row that shows it."""

    value: float | int
    row: int


@dataclass(slots=True)
class PairTally:
    """Collects rows of one pair; any order of adding and merging gives the same result.

    It holds sums and largest values only, so its size does not grow with the rows.
    """

    _rows: int = 0
    _elements: int = 0
    _undefined: int = 0
    _undefined_rows: int = 0
    _errors: ExactSum = field(default_factory=ExactSum)
    _references: ExactSum = field(default_factory=ExactSum)
    _worst: _Largest | None = None
    _widest: _Largest | None = None
    _fraction: float | None = None

    def add(
        self, actual: npt.NDArray[Any], expected: npt.NDArray[Any], rows: npt.NDArray[np.int64]
    ) -> RowMeasures:
        """Add rows and return their measures (for ``closer``).

        Args:
            actual: [row, ...], see ``measure_rows``.
            expected: [row, ...], the same shape.
            rows: [row] int64, the bank's row numbers.

        Raises:
            InputError: shapes differ, a dtype is unknown, or ``rows`` is of another length.
        """
        if np.shape(rows) != actual.shape[:1]:
            raise InputError("rows.shape", np.shape(rows), actual.shape[:1], "PairTally.add")
        measures = measure_rows(actual, expected)
        relative = measures.relative_rms()
        fractions = measures.max_ulp_error[~np.isnan(measures.max_ulp_error)]
        self._rows += len(rows)
        self._elements += len(rows) * measures.elements
        self._undefined += int(measures.undefined.sum())
        self._undefined_rows += int(np.count_nonzero(np.isnan(relative)))
        self._errors.add(measures.error_square[measures.comparable])
        self._references.add(measures.reference_square[measures.comparable])
        self._worst = _larger(self._worst, _largest(relative, ~np.isnan(relative), rows))
        defined = measures.undefined < measures.elements
        self._widest = _larger(self._widest, _largest(measures.max_ulp, defined, rows))
        if fractions.size:
            self._fraction = max(float(fractions.max()), self._fraction or 0.0)
        return measures

    def merge(self, other: PairTally) -> None:
        """Add the rows of another tally of the same pair."""
        self._rows += other._rows
        self._elements += other._elements
        self._undefined += other._undefined
        self._undefined_rows += other._undefined_rows
        self._errors.merge(other._errors)
        self._references.merge(other._references)
        self._worst = _larger(self._worst, other._worst)
        self._widest = _larger(self._widest, other._widest)
        if other._fraction is not None:
            self._fraction = max(other._fraction, self._fraction or 0.0)

    def copy(self) -> PairTally:
        """Return a tally of the same rows, on its own."""
        result = PairTally()
        result.merge(self)
        return result

    def result(self) -> PairValues:
        """Return the figures over all rows so far."""
        total, norm = self._errors.value(), self._references.value()
        worst, widest = self._worst, self._widest
        return PairValues(
            rows=self._rows,
            elements=self._elements,
            relative_rms=relative_rms(total, norm),
            worst_row=None if worst is None else worst.row,
            worst_row_relative_rms=None if worst is None else float(worst.value),
            max_ulp=None if widest is None else int(widest.value),
            max_ulp_row=None if widest is None else widest.row,
            undefined=self._undefined,
            max_ulp_error=self._fraction,
            undefined_rows=self._undefined_rows,
            error_square=total,
            reference_square=norm,
        )


def relative_rms(error_square: float, reference_square: float) -> float | None:
    """Return ||actual - expected|| / ||expected||; None where the reference's norm is 0."""
    return math.sqrt(error_square / reference_square) if reference_square > 0.0 else None


def log_ratio(x: float, y: float) -> float:
    """Return |ln(x / y)|; 0 where both are equal, infinite where one is 0 or no number."""
    if x == y:
        return 0.0
    if not (math.isfinite(x) and math.isfinite(y) and x and y):
        return math.inf
    return abs(math.log(x / y))


def _largest(values: npt.NDArray[Any], defined: Bools, rows: I64) -> _Largest | None:
    """Return the largest defined value [row] with the lowest row number among equals."""
    candidates = np.flatnonzero(defined)
    if not candidates.size:
        return None
    candidates = candidates[values[candidates] == values[candidates].max()]
    # A distance is a whole number beyond 2**53: it must not become a float.
    return _Largest(values[candidates[0]].item(), int(rows[candidates].min()))


def _larger(a: _Largest | None, b: _Largest | None) -> _Largest | None:
    """Return the larger of two, of equals the lower row."""
    if a is None or b is None:
        return b if a is None else a
    return min(a, b, key=lambda one: (-one.value, one.row))


def rho(a: float | None, b: float | None, d: float | None) -> float | None:
    """Return the error correlation (a**2 + b**2 - d**2) / (2 a b) of the triangle.

    Args:
        a: one path's relative RMS distance from the reference.
        b: the other path's.
        d: the paths' distance from each other, relative to the same norm as ``a`` and ``b``.

    Returns:
        1 for one shared error, 0 for independent errors; None where a side is missing or
        non-finite, or ``a`` or ``b`` is 0.
    """
    if a is None or b is None or d is None or not all(map(math.isfinite, (a, b, d))):
        return None
    if a <= 0.0 or b <= 0.0:
        return None
    # Scaled by one power of two, exactly, so that squares of tiny distances do not underflow.
    shift = -math.frexp(max(a, b))[1]
    a, b, d = math.ldexp(a, shift), math.ldexp(b, shift), math.ldexp(d, shift)
    return (a * a + b * b - d * d) / (2.0 * a * b) if a * b > 0.0 else None
