"""Scores of the reference: FP64 values from +, -, *, / alone, and their correct FP32 rounding."""

from __future__ import annotations

import decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..banks.geometry import ScoreFunction
from .contract import F32, F64

# ln 2 in two parts: the first has 33 significant bits, so that a step count times it is exact.
_LN2_HIGH: Final = float.fromhex("0x1.62e42feep-1")
_LN2_LOW: Final = float.fromhex("0x1.a39ef35793c76p-33")
_INVERSE_LN2: Final = float.fromhex("0x1.71547652b82fep+0")
# Adding 1.5 * 2^52 rounds to a whole number and leaves it in the low bits.
_TO_WHOLE: Final = 1.5 * 2.0**52
_TO_WHOLE_BITS: Final = int(np.float64(_TO_WHOLE).view(np.int64))
# r coth(r / 2) = 2 + r^2/6 - r^4/360 + ...: 2 B_2n / (2n)! for n = 6 .. 1 (Bernoulli numbers).
_COTH: Final = (-691 / 653837184000, 1 / 23950080, -1 / 604800, 1 / 15120, -1 / 360, 1 / 6)
# Relative error bounds of the FP64 scores with a wide margin (tests measure below half of
# them). A score nearer than this to an FP32 rounding boundary is decided in decimal arithmetic.
_MARGIN: Final[dict[ScoreFunction, float]] = {
    "sigmoid": 2.0**-50,
    "sqrtsoftplus": 2.0**-49,
    "softmax": 2.0**-47,
}
_DECIMAL = decimal.Context(prec=120, Emin=-999999, Emax=999999)


def exp_nonpositive(x: F64) -> F64:
    """exp(x) for x <= 0 in FP64, elementwise, within 2 ulp; NaN stays NaN.

    exp(r) = 1 + 2r / (r coth(r/2) - r) on |r| <= ln(2)/2, then exact scaling by powers of two.
    """
    x = np.maximum(x, -800.0)
    shifted = x * _INVERSE_LN2
    shifted += _TO_WHOLE
    steps = shifted - _TO_WHOLE
    r = x
    r -= steps * _LN2_HIGH
    r -= steps * _LN2_LOW
    square = r * r
    series = square * _COTH[0]
    for coefficient in _COTH[1:]:
        series += coefficient
        series *= square
    series += 2.0
    series -= r
    r += r
    r /= series
    r += 1.0
    whole = shifted.view(np.int64)
    whole -= _TO_WHOLE_BITS
    half = whole >> 1
    whole -= half
    # Two normal powers of two: a subnormal result is rounded once, by the second product.
    for power in (half, whole):
        power += 1023
        power <<= 52
        r *= power.view(np.float64)
    return r


def _log1p_fraction(u: F64) -> F64:
    """log(1 + u) for 0 <= u <= 1: 2 atanh(u / (2 + u)), its series summed from the small end."""
    z = u / (2.0 + u)
    square = z * z
    series = np.zeros_like(z)
    for n in range(35, 1, -2):
        series += 1.0 / n
        series *= square
    return 2.0 * z + 2.0 * z * series


def _fold_rows(values: F64) -> F64:
    """Row sums [row, 1] by halving, in one fixed order whatever the machine's vector length."""
    width = 1 << (values.shape[1] - 1).bit_length()
    sums = np.zeros((values.shape[0], width))
    sums[:, : values.shape[1]] = values
    while width > 1:
        width //= 2
        sums = sums[:, :width] + sums[:, width:]
    return sums


def _softmax(x: F64) -> F64:
    top = x.max(axis=1, keepdims=True)
    difference = x - top
    # What the subtraction lost (Knuth's two-sum), put back to first order.
    part = difference - x
    lost = (x - (difference - part)) + (-top - part)
    lost[~np.isfinite(lost)] = 0.0
    values = exp_nonpositive(difference)
    values += values * lost
    return values / _fold_rows(values)


def scores(function: ScoreFunction, x: F64) -> F64:
    """FP64 scores of logits [row, expert]; softmax runs over the experts of a row."""
    if function == "identity":
        return x.copy()
    if function == "softmax":
        return _softmax(x)
    small = exp_nonpositive(-np.abs(x))
    if function == "sqrtsoftplus":
        return np.sqrt(np.maximum(x, 0.0) + _log1p_fraction(small))
    numerator = np.where(x < 0.0, small, 1.0)
    small += 1.0
    numerator /= small
    return numerator


def _true_score(function: ScoreFunction, row: F64, column: int) -> decimal.Decimal:
    """The score of one finite logit to 50 or more digits."""
    with decimal.localcontext(_DECIMAL):
        x = decimal.Decimal(float(row[column]))
        if function == "sigmoid":
            return 1 / (1 + (-x).exp())
        if function == "sqrtsoftplus":
            return (1 + x.exp()).ln().sqrt()
        finite = [decimal.Decimal(float(value)) for value in row if np.isfinite(value)]
        top = max(finite)
        return (x - top).exp() / sum((value - top).exp() for value in finite)


def _round_decimal(value: decimal.Decimal, low: float, high: float) -> float:
    """The neighbour of ``value`` among two adjacent float32 values that is nearer."""
    middle = decimal.Decimal((low + high) / 2.0)
    return low if value < middle else high


def round_scores(function: ScoreFunction, x: F64, values: F64) -> F32:
    """The correctly rounded FP32 of the true scores, given their FP64 values.

    Where the FP64 value lies within its error margin (at least 4 ulp) of an FP32 rounding
    boundary, about 1e-8 of the elements, the true score is computed in decimal arithmetic.
    """
    rounded = values.astype(np.float32)
    if function == "identity":
        return rounded
    margin = _MARGIN[function]
    low = (values * (1.0 - margin)).astype(np.float32)
    high = (values * (1.0 + margin)).astype(np.float32)
    unsure = low != high
    if unsure.any():
        unsure &= np.isfinite(values)
        for row, column in zip(*np.nonzero(unsure), strict=True):
            true = _true_score(function, x[row], int(column))
            below, above = float(low[row, column]), float(high[row, column])
            rounded[row, column] = _round_decimal(true, below, above)
    return rounded


def ordered(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Integers in the order of the floats: -0 equals +0, NaN is below everything.

    float32 gives int32, float64 gives int64. The lowest integer stays free for a caller's mask.
    """
    integer = np.dtype(f"i{values.dtype.itemsize}")
    lowest = -(1 << (8 * integer.itemsize - 1))
    bits: npt.NDArray[Any] = np.ascontiguousarray(values).view(integer)
    # A negative float's magnitude bits, negated.
    order = np.where(bits < 0, lowest - bits, bits)
    nan = values != values
    if nan.any():
        order[nan] = lowest + 1
    return order
