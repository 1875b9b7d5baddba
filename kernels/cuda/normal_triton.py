"""Normal FP32 logits made on the device: the bits of ``banks.normal``, row by row.

The same integer mix and the same IEEE steps in the same order; products and sums are not contracted
(``lang.launch``) and the square root is the correctly rounded one, so the bits are the host's.
"""

from __future__ import annotations

from typing import Any

from ...banks.normal_constants import (
    EDGE,
    FAR,
    FAR_MIDDLE,
    GOLDEN,
    LN2_HIGH,
    LN2_LOW,
    LOGARITHM,
    MIDDLE,
    MIX_1,
    MIX_2,
    NEAR,
    ROOT_2,
    ROOT_HALF_BITS,
    STEP,
)
from .lang import INTERPRETED, launch, libdevice, tl, triton

_GOLDEN = tl.constexpr(GOLDEN)
_MIX_1 = tl.constexpr(MIX_1)
_MIX_2 = tl.constexpr(MIX_2)
_STEP, _ROOT_2 = tl.constexpr(STEP), tl.constexpr(ROOT_2)
_LN2_HIGH, _LN2_LOW = tl.constexpr(LN2_HIGH), tl.constexpr(LN2_LOW)
_ROOT_HALF_BITS = tl.constexpr(ROOT_HALF_BITS)
_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7, _L8 = map(tl.constexpr, LOGARITHM)
_A0, _A1, _A2, _A3, _A4, _A5, _A6, _A7, _A8 = map(tl.constexpr, NEAR)
_B0, _B1, _B2, _B3, _B4, _B5, _B6, _B7, _B8 = map(tl.constexpr, FAR)
_MIDDLE, _EDGE = tl.constexpr(MIDDLE), tl.constexpr(EDGE)
_FAR_MIDDLE = tl.constexpr(FAR_MIDDLE)
_INTERPRETED = tl.constexpr(INTERPRETED)

_BLOCK = 1024


@triton.jit
def _minus_log(q: tl.tensor) -> tl.tensor:
    bits = q.to(tl.int32, bitcast=True) - _ROOT_HALF_BITS
    power = (bits >> 23).to(tl.float32)
    fraction = ((bits & 0x7FFFFF) + _ROOT_HALF_BITS).to(tl.float32, bitcast=True)
    x = fraction - 1.0
    z = x * x
    y = _L3 + x * (_L4 + x * (_L5 + x * (_L6 + x * (_L7 + x * _L8))))
    y = x * z * (_L0 + x * (_L1 + x * (_L2 + x * y)))
    y = y + _LN2_LOW * power - 0.5 * z
    return -(x + y + _LN2_HIGH * power)


@triton.jit
def _normal(bits: tl.tensor) -> tl.tensor:
    """The normal value of 32 random bits."""
    chance = ((bits & 0x7FFFFFFF).to(tl.float32) + 0.5) * _STEP
    w = _minus_log(chance * (2.0 - chance))
    # Both are correctly rounded; the interpreter has no library of the device.
    root = tl.sqrt(w) if _INTERPRETED else libdevice.sqrt_rn(w)
    b = root - _FAR_MIDDLE
    far = _B4 + b * (_B5 + b * (_B6 + b * (_B7 + b * _B8)))
    far = _B0 + b * (_B1 + b * (_B2 + b * (_B3 + b * far)))
    a = w - _MIDDLE
    near = _A4 + a * (_A5 + a * (_A6 + a * (_A7 + a * _A8)))
    near = _A0 + a * (_A1 + a * (_A2 + a * (_A3 + a * near)))
    value = _ROOT_2 * (tl.where(w < _EDGE, near, far) * (1.0 - chance))
    # Triton's minus is 0 - x, which loses the sign of -0.0; a product keeps it.
    return tl.where(bits < 0, value * -1.0, value)


@triton.jit
def normal_kernel(
    out: tl.tensor,
    key: tl.tensor,
    start: tl.tensor,
    std: tl.tensor,
    EXPERTS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Row ``start + program`` of the stream of ``key``; out is float32 [row, EXPERTS]."""
    program = tl.program_id(0)
    pairs: tl.constexpr = (EXPERTS + 1) // 2
    golden = tl.full((BLOCK,), _GOLDEN, tl.uint64)
    row = tl.full((BLOCK,), 0, tl.uint64) + (start + program.to(tl.int64)).to(tl.uint64)
    expert = tl.arange(0, BLOCK)
    # Two values a word: the low half first.
    pair = (expert // 2).to(tl.uint64)
    z = key.to(tl.uint64) + (row * pairs + pair + 1) * golden
    z = (z ^ (z >> 30)) * tl.full((BLOCK,), _MIX_1, tl.uint64)
    z = (z ^ (z >> 27)) * tl.full((BLOCK,), _MIX_2, tl.uint64)
    z = z ^ (z >> 31)
    half = tl.where(expert % 2 == 0, z & 0xFFFFFFFF, z >> 32).to(tl.uint32)
    value = _normal(half.to(tl.int32, bitcast=True)) * std
    tl.store(out + program.to(tl.int64) * EXPERTS + expert, value, mask=expert < EXPERTS)


def fill_normal(out: Any, key: int, start: int, std: float) -> None:
    """Write rows ``start ..`` of the stream of ``key`` (``banks.normal``).

    Args:
        out: float32 [row, expert] on the device, contiguous; at most 1024 experts.
        key: 64 bits of the stream.
        start: number of the first row.
        std: standard deviation, a value of float32.
    """
    rows, experts = out.shape
    if rows:
        launch(normal_kernel, rows, out, key, start, std, experts, _BLOCK, warps=4)
