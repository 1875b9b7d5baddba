"""ULP: distance as steps between neighbouring values of a dtype, and error as a fraction of a ULP.

Two numbers that must not be mixed. ``ulp_distance`` compares two values of one dtype and counts
steps on the ordered line of that dtype's values. ``ulp_error`` compares a value with an exact
result and divides by the size of one unit in the last place there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numba
import numpy as np
import numpy.typing as npt

from ...banks.errors import InputError

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
F64 = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
AnyFloat = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format.

    Attributes:
        dtype: its numpy dtype.
        bits: the unsigned integer dtype of the same size.
        fraction: stored fraction bits (7 for BF16).
        min_exponent: exponent of the smallest normal value.
        max_finite: position of the largest finite value; zero is at 0.
        has_infinity: whether the next position is infinity (e4m3fn has NaN there).
    """

    dtype: np.dtype[Any]
    bits: np.dtype[Any]
    fraction: int
    min_exponent: int
    max_finite: int
    has_infinity: bool = True


FORMATS: Final = {
    format.dtype: format
    for format in (
        Format(np.dtype(np.float64), np.dtype(np.uint64), 52, -1022, 0x7FEF_FFFF_FFFF_FFFF),
        Format(np.dtype(np.float32), np.dtype(np.uint32), 23, -126, 0x7F7F_FFFF),
        Format(np.dtype(np.float16), np.dtype(np.uint16), 10, -14, 0x7BFF),
        Format(np.dtype(ml_dtypes.bfloat16), np.dtype(np.uint16), 7, -126, 0x7F7F),
        Format(np.dtype(ml_dtypes.float8_e5m2), np.dtype(np.uint8), 2, -14, 0x7B),
        Format(np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(np.uint8), 3, -6, 0x7E, False),
    )
}

_UNDEFINED_STEPS: Final = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


def format_of(dtype: npt.DTypeLike, where: str) -> Format:
    """Return the format of a dtype.

    Raises:
        InputError: the dtype is none of ``FORMATS``.
    """
    found = FORMATS.get(np.dtype(dtype))
    if found is None:
        raise InputError("dtype", np.dtype(dtype), f"one of {', '.join(map(str, FORMATS))}", where)
    return found


def ordered(values: npt.ArrayLike) -> I64:
    """Return each value's position on the ordered line of its dtype's values.

    Zero of either sign is 0, the smallest subnormal 1, its negative -1. Infinity is one step past
    the largest finite value. A NaN has no position: what is returned for it means nothing.

    Args:
        values: any shape, a dtype of ``FORMATS``; int64 keys are positions already.

    Returns:
        int64, the shape of ``values``.

    Example:
        >>> ordered(np.array([0.0, -0.0, 1e-45, -1e-45], np.float32)).tolist()
        [0, 0, 1, -1]
    """
    array = np.asarray(values)
    if array.dtype == np.int64:
        return array
    negative, magnitude = _sign_and_magnitude(array, format_of(array.dtype, "ordered"))
    return np.where(negative, -magnitude, magnitude)


def _sign_and_magnitude(array: AnyFloat, format: Format) -> tuple[Bools, I64]:
    bits = array.view(format.bits)
    sign = format.bits.type(1 << (8 * format.bits.itemsize - 1))
    return (bits & sign) != 0, (bits & ~sign).astype(np.int64)


def from_ordered(steps: npt.ArrayLike, dtype: npt.DTypeLike) -> AnyFloat:
    """Return the value at each position: the inverse of ``ordered``, with zero as +0.

    Args:
        steps: any shape, int64 positions.
        dtype: a dtype of ``FORMATS``.

    Raises:
        InputError: a position is past infinity, or past the largest value where there is none.
    """
    array = np.asarray(steps, dtype=np.int64)
    format = format_of(dtype, "from_ordered")
    last = format.max_finite + int(format.has_infinity)
    outside = (array > last) | (array < -last)
    if outside.any():
        first = int(array[outside].flat[0])
        raise InputError("steps", first, f"within +-{last} of {format.dtype}", "from_ordered")
    sign = format.bits.type(1 << (8 * format.bits.itemsize - 1))
    magnitude = np.abs(array).astype(format.bits)
    bits: AnyFloat = np.where(array < 0, magnitude | sign, magnitude)
    return bits.view(format.dtype)


def finite(values: npt.ArrayLike) -> Bools:
    """Return where values are neither NaN nor infinite (int64 keys always are), by their bits."""
    array = np.asarray(values)
    if array.dtype == np.int64:
        return np.ones(array.shape, dtype=np.bool_)
    format = format_of(array.dtype, "finite")
    result: Bools = np.asarray(_sign_and_magnitude(array, format)[1] <= format.max_finite)
    return result


@dataclass(frozen=True, eq=False, slots=True)
class UlpDistance:
    """Steps between two arrays' values.

    Attributes:
        steps: uint64; where undefined all bits are set, so that it never reads as "equal".
        defined: bool, False where either side is non-finite.
    """

    steps: U64
    defined: Bools

    def max(self) -> int | None:
        """Largest defined distance; None where no element has one."""
        return int(self.steps[self.defined].max()) if self.defined.any() else None

    @property
    def undefined(self) -> int:
        """Elements without a distance."""
        return int(self.defined.size - np.count_nonzero(self.defined))

    def within(self, limit: int) -> Bools:
        """Where the distance is defined and at most ``limit`` (0 or more)."""
        result: Bools = np.asarray(self.defined & (self.steps <= np.uint64(limit)))
        return result


def ulp_distance(a: npt.ArrayLike, b: npt.ArrayLike) -> UlpDistance:
    """Return how many values of their dtype lie from ``a`` to ``b``, element by element.

    -0 and +0 are 0 apart, across zero it counts steps, and it is undefined where either side is
    non-finite. FP64 distances reach 2 * (2**63 - 2**52 - 1), so steps are uint64.

    Args:
        a: any shape, a dtype of ``FORMATS`` or int64.
        b: the same shape and dtype.

    Raises:
        InputError: shapes or dtypes differ.

    Example:
        >>> ulp_distance(np.float32(3e38), np.float32(-3e38)).max()
        4274217932
    """
    left, right = np.asarray(a), np.asarray(b)
    if left.dtype != right.dtype:
        raise InputError("b.dtype", right.dtype, left.dtype, "ulp_distance")
    if left.shape != right.shape:
        raise InputError("b.shape", right.shape, left.shape, "ulp_distance")
    low, high = ordered(left), ordered(right)
    # One subtraction modulo 2**64 is exact: the larger minus the smaller is below 2**64.
    with np.errstate(over="ignore"):
        steps = np.maximum(low, high).astype(np.uint64) - np.minimum(low, high).astype(np.uint64)
    defined: Bools = np.asarray(finite(left) & finite(right))
    return UlpDistance(np.where(defined, steps, _UNDEFINED_STEPS), defined)


@numba.njit(cache=True, nogil=True)
def position_of_bits(bits: int, fraction: int, min_exponent: int) -> int:
    """Return the position, in a format, of a finite FP64 value rounded to it (nearest, ties even).

    Integer arithmetic only, so one rounding and the same answer on every machine; casts by way of
    float32 would round twice. The position is not checked against the format's largest value.

    Args:
        bits: the value's 64 bits as int64.
        fraction: of the format, as in ``Format``.
        min_exponent: of the format.
    """
    magnitude = bits & 0x7FFF_FFFF_FFFF_FFFF
    field = magnitude >> 52
    drop = 52 - fraction
    # Exponent field that the format's positions start from: its smallest normal binade is 1.
    origin = min_exponent + 1022
    if field > origin:
        # Exponent and fraction are one integer, so rounding up carries into the next binade.
        kept = magnitude
        if drop > 0:
            kept = (kept + (1 << (drop - 1)) - 1 + ((kept >> drop) & 1)) >> drop
        kept -= origin << fraction
    else:
        # Subnormal in the format: the position is the significand in units of the smallest one.
        significand = magnitude & 0x000F_FFFF_FFFF_FFFF
        if field > 0:
            significand |= 0x0010_0000_0000_0000
        drop += origin + 1 - max(field, 1)
        kept = 0
        if drop == 0:
            kept = significand
        elif drop <= 53:
            # Further down everything is below half of the smallest subnormal.
            odd = (significand >> drop) & 1
            kept = (significand + (1 << (drop - 1)) - 1 + odd) >> drop
    return -kept if bits < 0 else kept


@numba.njit(cache=True, nogil=True)
def _positions(bits: I64, fraction: int, min_exponent: int, out: I64) -> None:
    for index in range(bits.size):
        out[index] = position_of_bits(bits[index], fraction, min_exponent)


def rounded(exact: npt.ArrayLike, dtype: npt.DTypeLike) -> AnyFloat:
    """Return FP64 values rounded once to a dtype: to nearest, ties to even.

    Past the largest value by half a unit or more the result is infinity (NaN where the dtype has
    none). Zero comes back with its sign; a NaN as a NaN.

    Args:
        exact: any shape, taken as float64.
        dtype: a dtype of ``FORMATS``.
    """
    format = format_of(dtype, "rounded")
    # Widening a signalling NaN is reported as invalid; it stays a NaN.
    with np.errstate(invalid="ignore"):
        values = np.ascontiguousarray(exact, dtype=np.float64)
    steps = np.empty(values.size, dtype=np.int64)
    _positions(values.reshape(-1).view(np.int64), format.fraction, format.min_exponent, steps)
    magnitude = np.minimum(np.abs(steps), format.max_finite + 1).astype(format.bits)
    nan = np.isnan(values).reshape(-1)
    # A quiet NaN: infinity with the highest fraction bit; e4m3fn has one NaN, after its largest.
    quiet = 1 << (format.fraction - 1) if format.has_infinity else 0
    magnitude[nan] = format.max_finite + 1 + quiet
    sign = format.bits.type(1 << (8 * format.bits.itemsize - 1))
    bits: AnyFloat = np.where(np.signbit(values).reshape(-1), magnitude | sign, magnitude)
    return bits.view(format.dtype).reshape(np.shape(exact))


def ulp_error(got: npt.ArrayLike, exact: npt.ArrayLike) -> F64:
    """Return |got - exact| / ulp(exact), a fraction, with ulp in ``got``'s dtype.

    ulp(x) is the unit in the last place of the binade that holds |x|: for 2**e <= |x| < 2**(e+1)
    and p significant bits it is 2**(e - p + 1), and below the smallest normal value the smallest
    subnormal. The binade rule holds past the dtype's largest value too. Correct rounding is within
    1/2. The difference is rounded to FP64 once; inf says that the quotient is past FP64.

    Args:
        got: any shape, a dtype of ``FORMATS``.
        exact: float64, the same shape.

    Returns:
        float64; NaN where either side is non-finite.

    Raises:
        InputError: shapes differ.

    Source: Goldberg's ulp extended to reals, as compared in J.-M. Muller, "On the definition of
        ulp(x)", INRIA RR-5504, 2005, https://inria.hal.science/inria-00070503

    Example:
        >>> float(ulp_error(np.float32(1.0), np.float64(1.0 + 2.0**-25)))
        0.25
    """
    array, reference = np.asarray(got), np.asarray(exact, dtype=np.float64)
    if array.shape != reference.shape:
        raise InputError("exact.shape", reference.shape, array.shape, "ulp_error")
    format = format_of(array.dtype, "ulp_error")
    defined = finite(array) & np.isfinite(reference)
    # Widening a signalling NaN is reported as invalid; it is not defined here anyway.
    with np.errstate(invalid="ignore"):
        value = np.where(defined, array.astype(np.float64), 0.0)
    target = np.where(defined, reference, 0.0)
    exponent = np.frexp(target)[1].astype(np.int64) - 1
    exponent = np.where(target == 0.0, format.min_exponent, exponent)
    unit = np.maximum(exponent, format.min_exponent) - format.fraction
    # Scaling by a power of two before the subtraction is exact and cannot overflow `target`.
    with np.errstate(over="ignore", under="ignore"):
        error = np.abs(np.ldexp(value, -unit) - np.ldexp(target, -unit))
    return np.where(defined, error, np.nan)
