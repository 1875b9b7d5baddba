"""Sums and normalisation of the selected scores, in the orders that the named selects use."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from .contract import F32, I32
from .fast.uncounted import uncounted

SUMS: Final = ("left_to_right", "fold", "butterfly", "ascending")
NORMALISATIONS: Final = (
    "reciprocal_eps",
    "reciprocal_guard",
    "divide_eps",
    "divide_guard",
    "divide_fp64",
    "none",
)

LANES: Final = 32
"""Lanes of a warp, for the butterfly."""


class EngineRule(NamedTuple):
    """A select as numba sees it; the meaning of each code is in ``select.SelectArithmetic``."""

    score: int
    mask_logit: bool
    mask_bias: bool
    zero_score: bool
    nan_key: int
    uniform_if_none: bool
    weight_sum: int
    normalise: int
    ascending: bool
    precise: bool
    groups: int
    top_groups: int
    epsilon: float
    scale: float


@uncounted
def _sum(values: Any, order: int, lanes: Any) -> Any:
    """The sum of selected scores in the type of ``values``, in one of the ``SUMS`` orders."""
    zero = values.dtype.type(0.0)
    count = len(values)
    if order == 0 or order == 3:
        total = zero
        for i in range(count):
            total += values[i]
        return total
    for i in range(len(lanes)):
        lanes[i] = zero
    if order == 1:
        width = 1
        while width < count:
            width *= 2
        for i in range(count):
            lanes[i] = values[i]
        while width > 1:
            width //= 2
            for i in range(width):
                lanes[i] = lanes[i] + lanes[i + width]
        return lanes[0]
    # A warp: lane i first adds its own values i, i + 32, ..., then lanes exchange by xor.
    for i in range(count):
        lanes[i % LANES] += values[i]
    offset = LANES // 2
    while offset > 0:
        for i in range(LANES):
            if i & offset == 0:
                total = lanes[i] + lanes[i ^ offset]
                lanes[i] = total
                lanes[i ^ offset] = total
        offset //= 2
    return lanes[0]


@uncounted
def _normalise(values: Any, total: Any, rule: EngineRule) -> None:
    """Turn selected scores into weights, rounding to their type at each step."""
    one = values.dtype.type(1.0)
    scale = values.dtype.type(rule.scale)
    epsilon = values.dtype.type(rule.epsilon)
    guarded = total if total > values.dtype.type(0.0) else one
    denominator = guarded
    if rule.normalise == 0 or rule.normalise == 2:
        denominator = total + epsilon
    if rule.normalise == 5:
        for i in range(len(values)):
            values[i] = values[i] * scale
    elif rule.normalise == 4:
        # A double literal in the kernel's source: the FP32 sum, and then FP64 up to the result.
        wide = np.float64(total) + np.float64(rule.epsilon)
        for i in range(len(values)):
            values[i] = np.float64(values[i]) * np.float64(rule.scale) / wide
    elif rule.normalise <= 1:
        factor = scale / denominator
        for i in range(len(values)):
            values[i] = values[i] * factor
    else:
        for i in range(len(values)):
            values[i] = (values[i] / denominator) * scale


@uncounted
def _sort(ids: Any) -> None:
    """Sort a few ids in place, ascending."""
    for i in range(1, len(ids)):
        value = ids[i]
        slot = i
        while slot > 0 and ids[slot - 1] > value:
            ids[slot] = ids[slot - 1]
            slot -= 1
        ids[slot] = value


@uncounted
def finish(
    scores: Any, ids: Any, rule: EngineRule, values: Any, lanes: Any, out_ids: I32, out: F32
) -> None:
    """Write one row's ids and weights in the rule's slot order."""
    count = len(ids)
    for slot in range(count):
        out_ids[slot] = ids[slot]
    if rule.ascending or rule.weight_sum == 3:
        _sort(ids)
    for slot in range(count):
        values[slot] = scores[ids[slot]]
    total = _sum(values, rule.weight_sum, lanes)
    for slot in range(count):
        if rule.ascending:
            out_ids[slot] = ids[slot]
        values[slot] = scores[out_ids[slot]]
    _normalise(values, total, rule)
    for slot in range(count):
        out[slot] = np.float32(values[slot])
