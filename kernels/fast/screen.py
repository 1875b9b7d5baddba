"""Which few experts of a row can be among its first K + 1: two screens, each with a proof.

**Tangent.** The sigmoid s is concave from 0 on, so there s(x) <= s(X) + s'(X) (x - X) for any
X >= 0, and a key is at most s(X) + s'(X) (z - X) with z = x + bias / s'(X): one addition an expert.
Experts of z below a limit have keys below that line's value at the limit (or, where x < 0, below
1/2 + bias). If the (K + 1)-th key of the others is above, by more than the rounding of keys, they
hold the first K + 1. X follows the rows' own boundary; where it fits badly, the second screen runs.

**Cheap keys.** A cheap sigmoid of every expert, within ``slack`` of each side's FP32 key, gives a
value that K + 1 experts reach; an expert more than 2 ``slack`` below it is in neither side's first
K + 1.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..contract import F32
from ..elementary import exp64
from .score import cheap_sigmoid
from .uncounted import uncounted

LANES: Final = 128
"""Experts i, i + 128, ... share a lane; the lanes' maxima give the threshold."""
TINY: Final = np.float32(-3.0e38)
"""Far below every key and every z."""
_BISECTIONS: Final = 20
_INFINITE: Final = np.uint32(0x7F800000)
_MAGNITUDE: Final = np.uint32(0x7FFFFFFF)


@uncounted
def tangent(at: float, bias: F32, shifts: F32) -> tuple[float, float, float]:
    """Write shifts = bias / s'(at) [expert]; return s(at), s'(at) and the largest |shift|."""
    value = 1.0 / (1.0 + exp64(-at))
    slope = value * (1.0 - value)
    largest = 0.0
    for i in range(len(bias)):
        shifts[i] = np.float64(bias[i]) / slope
        largest = max(largest, abs(np.float64(shifts[i])))
    return value, slope, largest


@uncounted
def tangent_maxima(logits: F32, shifts: F32, highest: F32) -> bool:
    """Write the lanes' largest z; False where a logit is not finite.

    Unsigned indices instead of slices: numba counts references to slices, with atomic additions.
    """
    worst = np.uint32(0)
    for i in range(len(logits)):
        worst = max(worst, np.float32(logits[i]).view(np.uint32) & _MAGNITUDE)
    for lane in range(LANES):
        highest[lane] = TINY
    experts, width = np.uint64(len(logits)), np.uint64(LANES)
    start: Any = np.uint64(0)
    while start + width + width <= experts:
        for lane in range(LANES):
            e = start + np.uint64(lane)
            left, right = logits[e] + shifts[e], logits[e + width] + shifts[e + width]
            both = left if left > right else right
            highest[lane] = both if both > highest[lane] else highest[lane]
        start += width + width
    while start < experts:
        for lane in range(min(width, experts - start)):
            e = start + np.uint64(lane)
            z = logits[e] + shifts[e]
            highest[lane] = z if z > highest[lane] else highest[lane]
        start += width
    return bool(worst < _INFINITE)


@uncounted
def near_threshold(highest: F32, used: int, guess: Any, least: int, most: int) -> Any:
    """A value that ``least`` to ``most`` of the used lanes' maxima reach; NaN: not found."""
    low, high = np.float32(-np.inf), np.float32(np.inf)
    step = np.float32(0.05)
    value = np.float32(guess)
    for _ in range(_BISECTIONS):
        reached = np.int32(0)
        for lane in range(used):
            reached += np.int32(highest[lane] >= value)
        if reached < least:
            high = value
            value = np.float32(value - step)
        elif reached > most:
            low = value
            value = np.float32(value + step)
        else:
            return value
        step = np.float32(step * np.float32(2.0))
        if low > -np.inf and high < np.inf:
            value = np.float32(np.float32(0.5) * (low + high))
    return np.float32(np.nan)


@uncounted
def cheap_keys(logits: F32, bias: F32, keys: F32) -> bool:
    """Write cheap keys [expert]; False where a logit is not finite."""
    worst = np.uint32(0)
    for i in range(len(logits)):
        worst = max(worst, np.float32(logits[i]).view(np.uint32) & np.uint32(0x7FFFFFFF))
        keys[i] = cheap_sigmoid(logits[i]) + bias[i]
    return bool(worst < np.uint32(0x7F800000))


@uncounted
def lane_maxima(keys: F32, highest: F32) -> None:
    """Write the largest of keys lane, lane + LANES, ...; four lines a pass save stores."""
    lines = keys.reshape(-1, LANES)
    for lane in range(LANES):
        highest[lane] = TINY
    for line in range(0, len(lines), 4):
        p, q, r, s = lines[line], lines[line + 1], lines[line + 2], lines[line + 3]
        for lane in range(LANES):
            left = p[lane] if p[lane] > q[lane] else q[lane]
            right = r[lane] if r[lane] > s[lane] else s[lane]
            both = left if left > right else right
            highest[lane] = both if both > highest[lane] else highest[lane]


@uncounted
def threshold(highest: F32, used: int, count: int) -> Any:
    """A value that at least ``count`` of the lanes' maxima reach, and few more."""
    low, high = highest[0], highest[0]
    for lane in range(used):
        low = min(low, highest[lane])
        high = max(high, highest[lane])
    for _ in range(_BISECTIONS):
        middle = np.float32(np.float32(0.5) * (low + high))
        reached = np.int32(0)
        for lane in range(used):
            reached += np.int32(highest[lane] >= middle)
        if reached >= count:
            low = middle
            if reached <= count + 1:
                break
        else:
            high = middle
    return low
