"""Sums of FP64 values that merge in any order and are rounded once, at the end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]

# Every finite FP64 value is a whole number of 2**-1074, the smallest one.
_SMALLEST: Final = -1074
_MANTISSA_BITS: Final = 53
_HALF_BITS: Final = 27
_MOST_AT_ONCE: Final = 1 << 30
"""Values whose half mantissas, below 2**27, add up in 64 bits with room to spare."""


@dataclass(slots=True)
class ExactSum:
    """The sum of FP64 values that ``math.fsum`` gives, of values that come in parts.

    Attributes:
        units: sum of the finite values, in units of 2**-1074.
        special: sum of the others, infinite or NaN; 0 without any.
    """

    units: int = 0
    special: float = 0.0

    def add(self, values: F64) -> None:
        """Add values of any shape."""
        flat = np.asarray(values, np.float64).ravel()
        finite = np.isfinite(flat)
        if not finite.all():
            with np.errstate(invalid="ignore"):
                self.special += float(flat[~finite].sum())
            flat = flat[finite]
        for start in range(0, flat.size, _MOST_AT_ONCE):
            self._add_finite(flat[start : start + _MOST_AT_ONCE])

    def _add_finite(self, values: F64) -> None:
        fractions, exponents = np.frexp(values)
        whole = np.ldexp(fractions, _MANTISSA_BITS).astype(np.int64)
        for exponent in np.unique(exponents).tolist():
            chosen = whole[exponents == exponent]
            # Arithmetic shift and mask: high * 2**27 + low is the mantissa, of either sign.
            high = int((chosen >> _HALF_BITS).sum())
            low = int((chosen & ((1 << _HALF_BITS) - 1)).sum())
            total = (high << _HALF_BITS) + low
            shift = exponent - _MANTISSA_BITS - _SMALLEST
            # A subnormal's mantissa has zeros where it is shifted out of.
            self.units += total << shift if shift >= 0 else total >> -shift

    def merge(self, other: ExactSum) -> None:
        """Add another sum."""
        self.units += other.units
        self.special += other.special

    def value(self) -> float:
        """Return the sum rounded once, to nearest, ties to even; NaN or infinite where it is.

        Raises:
            OverflowError: finite values add up beyond FP64.
        """
        if self.special or math.isnan(self.special):
            return self.special
        # Python divides integers with one correct rounding.
        return self.units / (1 << -_SMALLEST)
