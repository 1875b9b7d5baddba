"""Every expert at every slot, every row of a launch, and winners that crowd one block or lane."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..scene import F32, I64
from ..space import Space, ladder
from .base import Scenes, Strategy

_LANES: Final = (2, 4, 7, 8, 16, 28, 32, 64, 112, 128, 256)


def _winners(space: Space, rng: np.random.Generator) -> Scenes:
    """Each expert at each slot, the boundary first: as it is, then a near tie with the next."""
    experts, count = space.geometry.experts, space.geometry.top_k
    bias = np.zeros(experts, np.float32)
    while True:
        for slot in [count - 1, *range(count - 1)]:
            for tie in (False, True):
                wanted = rng.permutation(experts)
                for first in range(0, experts, space.rows):
                    some = wanted[first : first + space.rows]
                    logits = _at_slot(space, rng, some, slot)
                    if tie and slot + 1 < experts:
                        rows, order = np.arange(len(some)), space.order(logits, bias, slot + 2)
                        gap = ladder(rng, len(some), 1 << 8)
                        logits = space.close(logits, bias, some, order[rows, slot + 1], gap)
                    yield space.scene(logits, bias)


def _at_slot(space: Space, rng: np.random.Generator, experts: I64, slot: int) -> F32:
    """Return drawn rows in which the given experts [row] stand at a slot, from 0."""
    logits = space.shuffled(rng, space.real(rng, len(experts)))
    rows = np.arange(len(experts))
    there = space.order(logits, np.zeros(space.geometry.experts, np.float32), slot + 1)[:, slot]
    logits[rows, experts], logits[rows, there] = logits[rows, there], logits[rows, experts]
    return logits


def _neighbours(space: Space, rng: np.random.Generator) -> Scenes:
    """Boundary ties between experts a fixed distance apart: the next id, lane, block or shard."""
    experts = space.geometry.experts
    last = min(space.geometry.top_k, experts - 1)
    bias = np.zeros(experts, np.float32)
    distances = [d for d in (1, *_LANES, experts // space.ranks, experts - 1) if d < experts]
    while True:
        for distance in distances:
            rows = np.arange(space.rows)
            first = rng.integers(0, experts - distance, space.rows)
            pair = np.stack([first, first + distance], axis=1)
            pair = np.where(rng.random((space.rows, 1)) < 0.5, pair, pair[:, ::-1])
            logits = _at_slot(space, rng, pair[:, 0], last - 1)
            there = space.order(logits, bias, last + 1)[:, last]
            low = pair[:, 1]
            logits[rows, low], logits[rows, there] = logits[rows, there], logits[rows, low]
            gap = ladder(rng, space.rows, 1 << 6)
            yield space.scene(space.close(logits, bias, pair[:, 0], low, gap), bias)


def _blocks(space: Space, rng: np.random.Generator) -> Scenes:
    """All winners in one block of ids, in one lane of a stride, or in rising or falling order."""
    experts = space.geometry.experts
    ids = np.arange(experts)
    sizes = [s for s in {*_LANES, experts // space.ranks, max(1, experts // 8)} if s < experts]
    while True:
        for size in sorted(sizes):
            logits = space.drawn(rng, space.rows, 0.5)
            chosen = np.zeros((space.rows, experts), np.bool_)
            for row in range(space.rows):
                if row % 2:
                    chosen[row] = ids // size == rng.integers(0, -(-experts // size))
                else:
                    chosen[row] = ids % size == rng.integers(0, size)
            logits += chosen * np.float32(6.0)
            yield space.scene(logits)
        steps = np.sort(space.drawn(rng, space.rows), axis=1)
        steps[::2] = steps[::2, ::-1]
        shift = rng.integers(0, experts, space.rows)
        yield space.scene(np.take_along_axis(steps, (ids + shift[:, None]) % experts, axis=1))


def _positions(space: Space, rng: np.random.Generator) -> Scenes:
    """One hard row at each place of a launch among easy ones, and one row at every place."""
    width, last = space.width, min(space.geometry.top_k, space.geometry.experts - 1)
    bias = np.zeros(space.geometry.experts, np.float32)
    launches = max(1, space.rows // width)
    while True:
        hard = space.shuffled(rng, space.real(rng, launches))
        rows, order = np.arange(launches), space.order(hard, bias, last + 1)
        gap = ladder(rng, launches, 16)
        hard = space.close(hard, bias, order[rows, last - 1], order[rows, last], gap)
        easy = space.drawn(rng, launches * width)
        place = rows * width + (rows + rng.integers(0, width)) % width
        easy[place] = hard
        yield space.scene(easy, bias)
        yield space.scene(np.repeat(hard, width, axis=0), bias)


WINNERS: Final = Strategy("winners", "every expert at every slot, with and without a tie", _winners)
NEIGHBOURS: Final = Strategy(
    "neighbours", "boundary ties of experts one id, lane, block or shard apart", _neighbours
)
BLOCKS: Final = Strategy("blocks", "all winners in one block, lane or run of ids", _blocks)
POSITIONS: Final = Strategy("positions", "one hard row at each place of a launch", _positions)
