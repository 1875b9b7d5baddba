"""Memory of the gate's loop: made once per thread, so that the loop itself allocates nothing."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from ..select_weights import LANES as WARP
from .screen import LANES, TINY

CANDIDATES: Final = 64
"""Most experts of a row that get exact keys."""
PIECE: Final = 32
"""Scores are evaluated in pieces of so many, whose loops the compiler vectorises."""


class RowOutputs(NamedTuple):
    """What the loop writes, [row] or [row, slot]; see ``gate.PairedRows``."""

    ids_a: Any
    weights_a: Any
    ids_b: Any
    weights_b: Any
    code: Any
    margin_steps: Any
    margin: Any
    shift: Any
    weight_ulp: Any


class Scratch(NamedTuple):
    """Memory of one call of ``gate_rows``.

    ``cheap``, ``highest``, ``found``: of the screens. ``inputs`` .. ``order``: of the
    candidates, A's or B's. ``first`` .. ``weights``: of one row's
    results. ``shifts`` and ``state``: the tangent, which decides only how fast a row
    is: s(X), s'(X), X, the largest |shift|, the last limit, rows tried and missed, and the sum and
    count of boundary logits since it was moved.
    """

    cheap: Any
    highest: Any
    found: Any
    inputs: Any
    biases: Any
    scores: Any
    keys: Any
    places: Any
    order: Any
    shifts: Any
    state: Any
    first: Any
    chosen: Any
    by_expert: Any
    weight_of: Any
    marks: Any
    values: Any
    sums: Any
    ids: Any
    weights: Any


def make_scratch(experts: int, slots: int) -> Scratch:
    """Memory for ``gate_rows``, one per thread."""
    lines = (experts + LANES - 1) // LANES
    # The padding is far below every key.
    cheap = np.full((lines + 3) // 4 * 4 * LANES, TINY)
    return Scratch(
        cheap=cheap,
        highest=np.empty(LANES, np.float32),
        found=np.zeros(len(cheap) + 1, np.uint32),
        inputs=np.zeros(CANDIDATES, np.float32),
        biases=np.zeros(CANDIDATES, np.float32),
        scores=np.empty(CANDIDATES, np.float32),
        keys=np.empty(CANDIDATES, np.float32),
        places=np.empty(CANDIDATES, np.int32),
        order=np.empty(CANDIDATES, np.int64),
        shifts=np.empty(experts, np.float32),
        state=np.zeros(9),
        first=np.empty(CANDIDATES, np.uint32),
        chosen=np.empty(slots, np.int32),
        by_expert=np.zeros((2, experts), np.float32),
        weight_of=np.empty(experts, np.float32),
        marks=np.full(experts, -1, np.int64),
        values=np.empty(slots, np.float32),
        sums=np.empty(max(2 * slots, WARP), np.float32),
        ids=np.empty((2, slots), np.int32),
        weights=np.empty((2, slots), np.float32),
    )
