"""Between float32 and BF16: ties to even, as ml_dtypes rounds (a test compares), but in vectors."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from .contract import BFLOAT16, F32, F64, Bf16


@numba.njit(cache=True)
def _round_bits(bits: Any, out: Any, shift: int) -> None:
    """Upper half of each float32 pattern after rounding, times 2^16 >> shift."""
    for i in range(len(bits)):
        value = bits[i]
        # Half of the last kept bit, and a tie only carries into an odd one.
        upper = (value + np.uint32(0x7FFF) + ((value >> np.uint32(16)) & np.uint32(1))) & np.uint32(
            0xFFFF0000
        )
        if (value & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000):
            upper = (value & np.uint32(0x80000000)) | np.uint32(0x7FC00000)
        out[i] = upper >> np.uint32(shift)


def _bits(values: F32) -> npt.NDArray[np.uint32]:
    return np.ascontiguousarray(values, np.float32).view(np.uint32).reshape(-1)


def widen(values: Bf16) -> F32:
    """BF16 values as float32, exactly."""
    bits = np.ascontiguousarray(values).view(np.uint16).astype(np.uint32)
    bits <<= 16
    return bits.view(np.float32)


def to_fp64(values: Bf16) -> F64:
    """BF16 values as float64 in C order: the order of a norm's sum, also where ranks are broadcast.

    A signalling NaN, such as poison that a path left, is no reason to warn.
    """
    with np.errstate(invalid="ignore"):
        return values.astype(np.float64, order="C")


def narrow(values: F32) -> Bf16:
    """float32 values rounded to BF16; NaN becomes the quiet NaN of its sign."""
    out = np.empty(values.shape, np.uint16)
    _round_bits(_bits(values), out.reshape(-1), 16)
    return out.view(BFLOAT16)


def rounded(values: F32) -> F32:
    """float32 values rounded to BF16 and widened again."""
    out = np.empty(values.shape, np.uint32)
    _round_bits(_bits(values), out.reshape(-1), 0)
    return out.view(np.float32)
