"""How two selections of one row compare: codes, and distances of weights."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .uncounted import uncounted

IDENTICAL: Final = 0
REORDERED: Final = 1
DIFFERENT: Final = 2
PLAIN: Final = 3
"""Codes of a row; ``PLAIN`` asks for the plain path."""

ULP_BINS: Final = 320
"""Bins 0..256 are FP32 steps, bin 257 + p is 2^p steps and up, below 2^(p + 1)."""


@uncounted
def order32(key: Any) -> Any:
    """An integer in the order of finite float32 keys; -0 equals +0."""
    bits = np.int64(np.float32(key).view(np.int32))
    return bits if bits >= 0 else -(bits & 0x7FFFFFFF)


@uncounted
def _bin(steps: int) -> int:
    """The bin of a distance, see ``ULP_BINS``."""
    if steps <= 256:
        return steps
    power = 0
    while steps >> (power + 1):
        power += 1
    return 257 + power


@uncounted
def row_weight_ulp(ids_a: Any, w_a: Any, ids_b: Any, w_b: Any, scratch: Any, bins: Any) -> int:
    """The largest FP32 distance of two weights of one expert, counted into ``bins``; -1: none."""
    largest = 0
    for slot in range(len(ids_a)):
        if w_a[slot] - w_a[slot] != np.float32(0.0) or w_b[slot] - w_b[slot] != np.float32(0.0):
            return -1
    for slot in range(len(ids_a)):
        scratch[ids_a[slot]] = w_a[slot]
    for slot in range(len(ids_b)):
        steps = abs(order32(w_b[slot]) - order32(scratch[ids_b[slot]]))
        bins[_bin(steps)] += 1
        largest = max(largest, steps)
    return largest


@uncounted
def row_code(ids_a: Any, ids_b: Any, marks: Any, mark: int) -> int:
    """The code of two rows of distinct ids."""
    count = len(ids_a)
    alike: Any = 0
    for slot in range(count):
        alike += np.int64(ids_a[slot] == ids_b[slot])
    if alike == count:
        return IDENTICAL
    for slot in range(count):
        marks[ids_a[slot]] = mark
    found: Any = 0
    for slot in range(count):
        found += np.int64(marks[ids_b[slot]] == mark)
    return REORDERED if found == count else DIFFERENT
