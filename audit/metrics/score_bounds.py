"""What a bound on the difference of two scores proves about keys and selected sets.

A key is ``fl(score + bias)``: one FP32 addition, to nearest, ties to even. Let two forms give one
expert the scores s and s' with |s - s'| <= d, and let its bias be b in both.

**Keys.** Write u = s + b and v = s' + b without rounding, u <= v, so v - u <= d. Let M bound
|u| and |v|, and let g be the FP32 spacing on the binade 2^e < M <= 2^(e+1): g = 2^(e-23). An
addition rounds by at most half the spacing where it lands, which alone would give d + g. But keys
lie on a grid, so three cases bound their distance more tightly:

1. Both in binades of one spacing h <= g. Keys are multiples of h, at most d + h apart, and d + h
   only by two ties that both round away to even, so that d/h is odd. Hence at most U(h): d where
   d/h is an even whole number, else the smallest multiple of h above d. U(h) <= U(g), since a
   multiple of g is one of h.
2. In neighbouring binades, spacings h and h/2. Keys are multiples of h/2, and the roundings add at
   most h/2 + h/4: at most V(h) = the largest multiple of h/2 that is <= d + 3h/4. No h < g exceeds
   max(U(g), V(g)): if U(g) - d <= g/4 then V(g) >= U(g) + g/2 > d + 3h/4, as h <= g/2. Otherwise
   d + 3h/4 < U(g) + g/8 for h = g/2, below which the last multiple of g/4 is at most U(g); and
   d + 3h/4 < U(g) for smaller h.
3. Further apart, or of unlike signs. Then d exceeds the binade between, 2^22 steps of the larger
   spacing h, and the roundings add at most 5h/8 (unlike signs: 2^-24 of d; sums of FP32 values that
   are subnormal are exact): at most d (1 + 2^-22).

So |key - key'| <= max(U(g), V(g), d (1 + 2^-22)). It is 0 where d is 0; and at most d where every
bias is 0, since a score plus zero is not rounded.

**Sets.** Two selects of the K largest keys, ties in any order, with |key - key'| <= B for each
expert. If their sets differ, some expert e is in the first set only and some f in the second only:
key(e) >= key(f) and key'(f) >= key'(e), hence 0 <= key(e) - key(f) <= (key(e) - key'(e)) +
(key'(f) - key(f)) <= 2B. The K-th key is <= key(e) and the next one >= key(f), so the boundary gap
of the first form's own keys is <= 2B as well. A row with a larger gap has the same set in both.
This needs keys that are numbers, and the same eligible experts (groups, non-finite rules) in both.

Source: Goldberg, "What every computer scientist should know about floating-point arithmetic", 1991,
for half-a-unit rounding; IEEE 754-2019 section 4.3.1.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from ...banks.errors import InputError

_FRACTION_BITS: Final = 23
_MIN_EXPONENT: Final = -126
_MAX_FINITE: Final = Fraction(float.fromhex("0x1.fffffep+127"))
_WHERE: Final = "score_bounds"


def key_bound(
    score_abs_bound: float,
    bias_low: float,
    bias_high: float,
    *,
    score_low: float = 0.0,
    score_high: float = 1.0,
) -> float:
    """Return the largest possible |key - key'| of one expert, absolute, rounded up to FP64.

    Args:
        score_abs_bound: |score - score'| is at most this, from the certificate of two forms.
        bias_low: smallest bias of any expert.
        bias_high: largest bias.
        score_low: smallest score of either form.
        score_high: largest score; 0..1 holds for the sigmoid forms.

    Raises:
        InputError: a value is not finite or negative where it must not be, a range is reversed,
            or keys could overflow FP32.

    Example:
        >>> key_bound(2.0**-24, 0.0, 0.02) == 2.0**-23
        True
    """
    _check_finite(score_abs_bound=score_abs_bound, bias_low=bias_low, bias_high=bias_high)
    _check_finite(score_low=score_low, score_high=score_high)
    if score_abs_bound < 0.0:
        raise InputError("score_abs_bound", score_abs_bound, "at least 0", _WHERE)
    for name, low, high in (("bias", bias_low, bias_high), ("score", score_low, score_high)):
        if low > high:
            raise InputError(name, f"{low}..{high}", "a range from low to high", _WHERE)
    largest = max(
        abs(Fraction(score_low) + Fraction(bias_low)),
        abs(Fraction(score_high) + Fraction(bias_high)),
    )
    if largest > _MAX_FINITE:
        raise InputError("bias", f"{bias_low}..{bias_high}", "keys within FP32", _WHERE)
    apart = Fraction(score_abs_bound)
    if apart == 0 or bias_low == bias_high == 0.0:
        return float(score_abs_bound)
    step = _spacing_below(largest)
    steps = math.floor(apart / step)
    even = apart == steps * step and steps % 2 == 0
    same_binade = apart if even else (steps + 1) * step
    across = (apart + step * 3 / 4) // (step / 2) * (step / 2)
    far_apart = apart * (1 + Fraction(1, 1 << 22))
    return _rounded_up(max(same_binade, across, far_apart))


def swap_window(key_bound: float) -> float:
    """Return the boundary gap, on one form's own keys, above which the sets cannot differ.

    A gap equal to the window may still differ: it takes ``gap > window`` to exclude it.

    Args:
        key_bound: largest |key - key'| of any expert, absolute.

    Raises:
        InputError: a negative or non-finite bound.

    Example:
        >>> swap_window(key_bound(2.0**-24, 0.0, 0.02)) == 2.0**-22
        True
    """
    _check_finite(key_bound=key_bound)
    if key_bound < 0.0:
        raise InputError("key_bound", key_bound, "at least 0", _WHERE)
    return 2.0 * key_bound


def window_ulp(window: float, key_low: float) -> int:
    """Return the most FP32 steps between two keys no further apart than ``window``.

    FP32 values are densest near zero, so two keys of one sign are most steps apart just above the
    smaller one's least magnitude; and if keys may have either sign, around zero, where the steps up
    to a value are a concave function of it: at most twice the steps up to half the window.

    Args:
        window: absolute distance of the keys.
        key_low: both keys have the same sign and at least this magnitude; 0 says nothing of either.

    Raises:
        InputError: a negative or non-finite argument.

    Example:
        >>> [window_ulp(2.0**-22, low) for low in (1.0, 0.5, 0.25)]
        [2, 4, 8]
    """
    _check_finite(window=window, key_low=key_low)
    for name, value in (("window", window), ("key_low", key_low)):
        if value < 0.0:
            raise InputError(name, value, "at least 0", _WHERE)
    if key_low == 0.0:
        return math.floor(2 * _position(Fraction(window) / 2))
    low = Fraction(key_low)
    return math.floor(_position(low + Fraction(window)) - _position(low))


def _spacing_below(value: Fraction) -> Fraction:
    """FP32 spacing on the binade 2^e < value <= 2^(e+1); the subnormals' for all below."""
    return Fraction(2) ** (max(_exponent(value, closed_above=True), _MIN_EXPONENT) - _FRACTION_BITS)


def _position(value: Fraction) -> Fraction:
    """Steps from zero up to a value >= 0, linear between neighbouring FP32 values."""
    exponent = max(_exponent(value, closed_above=False), _MIN_EXPONENT)
    within = value / Fraction(2) ** (exponent - _FRACTION_BITS)
    return within + (exponent - _MIN_EXPONENT) * (1 << _FRACTION_BITS)


def _exponent(value: Fraction, *, closed_above: bool) -> int:
    """The e of 2^e <= value < 2^(e+1); with ``closed_above`` of 2^e < value <= 2^(e+1)."""
    if value == 0:
        return _MIN_EXPONENT
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if Fraction(2) ** exponent > value:
        exponent -= 1
    return exponent - int(closed_above and Fraction(2) ** exponent == value)


def _rounded_up(value: Fraction) -> float:
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def _check_finite(**values: float) -> None:
    for name, value in values.items():
        if not math.isfinite(value):
            raise InputError(name, value, "finite", _WHERE)
