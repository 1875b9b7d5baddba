"""Weights of selected scores on one warp, one slot a lane, in the orders of the named selects.

The sums and normalisations are those of ``kernels.select_weights``, by the same names; there is no
``ascending``. Each step rounds to FP32.
"""

from __future__ import annotations

from .lang import tl, triton


@triton.jit
def _total(scores: tl.tensor, lane: tl.tensor, K: tl.constexpr, SUM: tl.constexpr) -> tl.tensor:
    if SUM == 0:
        # [32]; every lane adds the same values in the same order
        total = tl.gather(scores, lane * 0, 0)
        for slot in tl.static_range(1, K):
            total = total + tl.gather(scores, lane * 0 + slot, 0)
    else:
        total = tl.where(lane < K, scores, 0.0)
        if SUM == 2 or K > 16:
            total = total + tl.gather(total, lane ^ 16, 0)
        if SUM == 2 or K > 8:
            total = total + tl.gather(total, lane ^ 8, 0)
        if SUM == 2 or K > 4:
            total = total + tl.gather(total, lane ^ 4, 0)
        if SUM == 2 or K > 2:
            total = total + tl.gather(total, lane ^ 2, 0)
        if SUM == 2 or K > 1:
            total = total + tl.gather(total, lane ^ 1, 0)
        total = tl.gather(total, lane * 0, 0)
    return total


@triton.jit
def weights_of(
    scores: tl.tensor,
    lane: tl.tensor,
    epsilon: tl.tensor,
    scale: tl.tensor,
    K: tl.constexpr,
    SUM: tl.constexpr,
    NORMALISE: tl.constexpr,
) -> tl.tensor:
    """The weights [32] of scores [32] in slot order, of which the first K count.

    ``epsilon`` and ``scale`` are FP32; SUM and NORMALISE index the lists of ``selects``.
    """
    if NORMALISE == 4:
        weights = scores * scale
    else:
        total = _total(scores, lane, K, SUM)
        if NORMALISE == 0 or NORMALISE == 2:
            denominator = total + epsilon
        else:
            denominator = tl.where(total > 0.0, total, 1.0)
        if NORMALISE <= 1:
            weights = scores * tl.div_rn(tl.zeros_like(scores) + scale, denominator)
        else:
            weights = tl.div_rn(scores, denominator) * scale
    return weights


@triton.jit
def ordered(value: tl.tensor) -> tl.tensor:
    """An int32 in the order of FP32 values; -0 equals +0, and NaN has no meaning."""
    bits = value.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


@triton.jit
def ulp_bin(mine: tl.tensor, other: tl.tensor) -> tl.tensor:
    """Integer ULP between FP32 values as an int64, and -1 where either is not finite."""
    apart = ordered(mine).to(tl.int64) - ordered(other).to(tl.int64)
    apart = tl.where(apart < 0, -apart, apart)
    undefined = (mine - mine != 0.0) | (other - other != 0.0)
    return tl.where(undefined, -1, apart)
