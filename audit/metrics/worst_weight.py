"""The weight of one row that two sides have farthest apart: where it is, and both values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .ulp import ulp_distance

F32 = npt.NDArray[np.float32]
Ids = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class WorstWeight:
    """One slot of a row whose sets are equal.

    Attributes:
        slot: from 0, where the side under test has the expert.
        expert: id.
        got: weight of the side under test, the shortest decimal of its float32.
        expected: of the other side, likewise.
        ulp: FP32 steps between them.
    """

    slot: int
    expert: int
    got: float
    expected: float
    ulp: int


def worst_weight(ids: Ids, weights: F32, other_ids: Ids, other: F32) -> WorstWeight | None:
    """Return the slot whose weight is farthest from the other side's for the same expert.

    Args:
        ids: [slot] of the side under test.
        weights: [slot] float32, its own.
        other_ids: [slot], the same set.
        other: [slot] float32, in the order of ``other_ids``.

    Returns:
        None where the sets differ, or no slot has a distance because a side is not finite.

    Example:
        >>> one = np.float32([0.5, 0.25])
        >>> worst_weight(np.array([7, 3]), one, np.array([3, 7]), np.float32([0.25, 1.0]))
        WorstWeight(slot=0, expert=7, got=0.5, expected=1.0, ulp=8388608)
    """
    mine, theirs = np.argsort(ids), np.argsort(other_ids)
    if ids.shape != other_ids.shape or (ids[mine] != other_ids[theirs]).any():
        return None
    apart = ulp_distance(weights[mine], other[theirs])
    if not apart.defined.any():
        return None
    place = int(np.argmax(np.where(apart.defined, apart.steps.astype(np.float64), -1.0)))
    slot, across = int(mine[place]), int(theirs[place])
    return WorstWeight(
        slot=slot,
        expert=int(ids[slot]),
        got=float(str(weights[slot])),
        expected=float(str(other[across])),
        ulp=int(apart.steps[place]),
    )
