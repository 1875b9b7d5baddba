"""From a proven distance between score forms to the key gap beyond which no select can swap.

Everything here is FP64 on the host; no Triton.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from ..contract import F32


class ScreenConstants(NamedTuple):
    """What the screen kernels need for one bias.

    Attributes:
        shifts: [expert] float32, added to the score (times ``stretch`` where packed).
        stretch: factor of the score in a packed key; 1 otherwise.
        gap: a K-th key above the next one by more than this decides the row; in steps of
            2^-22 of a packed key, or in key units.
    """

    shifts: F32
    stretch: float
    gap: float


def key_ulp(bias: F32, bound: float) -> float:
    """FP32 spacing at the largest magnitude that a key can have."""
    low, high = float(bias.min()), float(bias.max())
    return float(np.spacing(np.float32(max(abs(low), abs(1.0 + high), 1.0) + bound)))


def float_constants(bias: F32, bound: float) -> ScreenConstants:
    """Constants for FP32 screen keys.

    Args:
        bias: [expert] float32, finite.
        bound: |screen score - score| over all finite logits, for the worse of the two selects.

    Two reals that differ by more than one spacing round to different keys. A screen key is within
    half a spacing and ``bound`` of the real score plus bias, hence 2 * bound + 2 spacings.
    """
    gap = (2.0 * bound + 2.0 * key_ulp(bias, bound)) * (1.0 + 2.0**-20)
    return ScreenConstants(bias, 1.0, float(np.nextafter(np.float32(gap), np.float32(np.inf))))


def packed_constants(bias: F32, bound: float, margin: float = 0.0) -> ScreenConstants:
    """Constants for 22-bit fixed-point screen keys; arguments as in ``float_constants``.

    A row that these decide has a boundary margin, of either select's own rounded keys, of more
    than ``margin``: 0 leaves as few rows undecided as can be.

    A key is floor(2^22 * (y - 1)) with y = fma(score, stretch, shift) in [1, 2). y errs by
    stretch * bound, half of 2^-23 for the rounded shift and half of 2^-23 for the fma; two floors
    add one step. With a difference of more than ``gap`` steps the real keys are more than one
    FP32 spacing and ``margin`` apart, so they round to different keys in the same order, more
    than ``margin`` apart.
    """
    low = float(bias.min())
    width = 1.0 + float(bias.max()) - low
    stretch = float(np.float32((1.0 - 2.0**-7) / width))
    shifts = (1.0 + 2.0**-8 + (bias.astype(np.float64) - low) * stretch).astype(np.float32)
    steps = 2.0**22 * stretch * (2.0 * bound + key_ulp(bias, bound) + margin)
    return ScreenConstants(shifts, stretch, 1 + math.ceil(steps * (1.0 + 2.0**-20)))
