"""All 2^32 FP32 bit patterns on one line, in increasing order of value, and ranges of inputs.

The order is IEEE 754's totalOrder: negative NaNs, -inf, negative values, -0, +0, positive values,
+inf, NaNs. A place on the line is an int from 0 to 2^32 - 1; neighbours are one FP32 step apart.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

PLACES: Final = 1 << 32
PLUS_ZERO: Final = 1 << 31
MINUS_INFINITY: Final = 0x007F_FFFF
PLUS_INFINITY: Final = 0xFF80_0000

RANGES: Final[dict[str, tuple[float, str]]] = {
    "abs16": (16.0, "|x| <= 16"),
    "abs88": (88.0, "|x| <= 88"),
    "all": (float.fromhex("0x1.fffffep+127"), "all finite x"),
}
"""Nested input ranges, innermost first: the largest magnitude, and the range in words."""


class Stretch(NamedTuple):
    """Consecutive places of one sign that lie in one ring.

    Attributes:
        ring: the name of the innermost range that holds them.
        start: first place.
        stop: one past the last place.
    """

    ring: str
    start: int
    stop: int


def place_of(value: float) -> int:
    """Return the place of a value that FP32 holds exactly.

    Example:
        >>> place_of(0.0) - place_of(-0.0)
        1
    """
    return place_of_bits(int(np.float32(value).view(np.uint32)))


def place_of_bits(bits: int) -> int:
    """Return the place of a bit pattern, 0 to 2^32 - 1."""
    return bits + PLUS_ZERO if bits < PLUS_ZERO else PLACES - 1 - bits


def bits_at(place: int) -> int:
    """Return the bit pattern at a place: the inverse of ``place_of_bits``."""
    return place - PLUS_ZERO if place >= PLUS_ZERO else PLACES - 1 - place


def value_at(place: int) -> np.float32:
    """Return the FP32 value at a place."""
    return np.float32(np.uint32(bits_at(place)).view(np.float32))


def stretches() -> list[Stretch]:
    """Return every finite place once: per ring its negative, then its positive stretch.

    Example:
        >>> sum(part.stop - part.start for part in stretches()) == 2**32 - 2**24
        True
    """
    result = []
    inner = -1
    for name, (largest, _) in RANGES.items():
        # Positive values are as far above +0 as negative ones are below -0.
        outer = place_of(largest) - PLUS_ZERO
        result.append(Stretch(name, PLUS_ZERO - 1 - outer, PLUS_ZERO - 1 - inner))
        result.append(Stretch(name, PLUS_ZERO + inner + 1, PLUS_ZERO + outer + 1))
        inner = outer
    return result
