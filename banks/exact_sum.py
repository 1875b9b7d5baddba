"""A sum of FP64 numbers without error, rounded once at its end.

Source: J. Shewchuk, "Adaptive precision floating-point arithmetic and fast robust geometric
predicates", Discrete Comput. Geom. 18 (1997), grow-expansion.
"""

from __future__ import annotations

from typing import Final

import numba
import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]

MOST_PARTS: Final = 32
"""Room for parts: FP32 products span 2**-298..2**270, at most 12 parts without overlap."""


@numba.njit(cache=True)
def grow(parts: F64, count: int, term: float) -> int:
    """Add ``term`` to the non-overlapping ``parts`` without error; return their new count."""
    kept = 0
    for i in range(count):
        other = parts[i]
        if abs(term) < abs(other):
            term, other = other, term
        high = term + other
        low = other - (high - term)
        if low != 0.0:
            parts[kept] = low
            kept += 1
        term = high
    parts[kept] = term
    return kept + 1


@numba.njit(cache=True)
def rounded(parts: F64, count: int) -> float:
    """Return the sum of non-overlapping parts, smallest first, rounded once."""
    if count == 0:
        return 0.0
    i = count - 1
    high = parts[i]
    low = 0.0
    while i > 0:
        i -= 1
        previous = high
        high = previous + parts[i]
        low = parts[i] - (high - previous)
        if low != 0.0:
            break
    # A tie went to even although a smaller part says which side is nearer.
    if i > 0 and ((low < 0.0 and parts[i - 1] < 0.0) or (low > 0.0 and parts[i - 1] > 0.0)):
        further = high + 2.0 * low
        if further - high == 2.0 * low:
            high = further
    return float(high + 0.0)
