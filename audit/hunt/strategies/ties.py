"""Ties and near ties at every slot boundary, across shards and binades, and between many."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..scene import F32, I64
from ..space import Space, ladder, stepped
from .base import Scenes, Strategy


def places(space: Space, rng: np.random.Generator, rows: int) -> I64:
    """Return slots [row], from 1: the boundary in half of the rows, any other in the rest."""
    geometry = space.geometry
    last = min(geometry.top_k, geometry.experts - 1)
    any_slot = rng.integers(1, last + 1, rows)
    return np.where(rng.random(rows) < 0.5, last, any_slot).astype(np.int64)


def tied(space: Space, rng: np.random.Generator, logits: F32, bias: F32, gap: I64) -> F32:
    """Return rows with a pair of neighbours in the order so many steps apart, at any slot."""
    rows, slot = np.arange(len(logits)), places(space, rng, len(logits))
    order = space.order(logits, bias, space.geometry.top_k + 1)
    return space.close(logits, bias, order[rows, slot - 1], order[rows, slot], gap)


def _slot_ties(space: Space, rng: np.random.Generator) -> Scenes:
    """In turn: real rows, real rows at other experts without a bias, rows at another level."""
    while True:
        real = space.real(rng, space.rows)
        gap = ladder(rng, space.rows)
        yield space.scene(tied(space, rng, real, space.source_bias, gap), space.source_bias)
        bias = np.zeros(space.geometry.experts, np.float32)
        moved = space.shuffled(rng, real)
        yield space.scene(tied(space, rng, moved, bias, gap), bias)
        # The boundary anywhere on the score's curve: from subnormal scores to saturated ones.
        level = rng.uniform(-30.0, 18.0, (space.rows, 1)).astype(np.float32)
        drawn = space.drawn(rng, space.rows) + level
        yield space.scene(tied(space, rng, drawn, bias, gap), bias)


def _binades(space: Space, rng: np.random.Generator) -> Scenes:
    """Both experts of the boundary within some steps of a power of two, on either side."""
    geometry, last = space.geometry, min(space.geometry.top_k, space.geometry.experts - 1)
    rows = np.arange(space.rows)
    while True:
        bias = np.full(geometry.experts, rng.choice([0.0, -0.75, 0.5, 1.5]), np.float32)
        powers = 2.0 ** rng.integers(-12, 0, space.rows).astype(np.float64)
        wanted = powers.astype(np.float32)
        if bias[0] > 0:
            wanted[:] = np.where(bias[0] < 1.0, 1.0, 2.0)
        elif bias[0] < 0:
            wanted = -(powers / 2).astype(np.float32)
        drawn = space.drawn(rng, space.rows)
        order = space.order(drawn, bias, last + 1)
        high, low = order[rows, last - 1], order[rows, last]
        # Both keys sit at the power of two, so shift the row until its boundary is there.
        target = space.logit_of(wanted, bias[high])
        moved = (drawn + (target - drawn[rows, high])[:, None]).astype(np.float32)
        step = rng.integers(-4, 5, (2, space.rows))
        moved[rows, high] = space.logit_of(stepped(wanted, step[0]), bias[high])
        moved[rows, low] = space.logit_of(stepped(wanted, -step[1]), bias[low])
        yield space.scene(moved, bias)


def _needs_elementwise(space: Space) -> str | None:
    return None if space.elementwise else "softmax scores have no level of their own"


def _many(space: Space, rng: np.random.Generator) -> Scenes:
    """More than two experts with one key: whole numbers, runs across the boundary, all equal."""
    experts, count = space.geometry.experts, space.geometry.top_k
    while True:
        levels = rng.integers(1, 5)
        whole = rng.integers(-levels, levels + 1, (space.rows, experts)).astype(np.float32)
        yield space.scene(whole)
        drawn = space.drawn(rng, space.rows)
        order = space.order(drawn, np.zeros(experts, np.float32), 2 * count)
        for row in range(space.rows):
            inside = int(rng.integers(1, count + 1))
            outside = int(rng.integers(1, max(2, min(count, experts - count + 1))))
            run = order[row, count - inside : count + outside]
            drawn[row, run] = drawn[row, run[0]]
        yield space.scene(drawn)
        equal = np.repeat(space.drawn(rng, space.rows)[:, :1], experts, axis=1)
        better = rng.integers(0, experts, (space.rows, max(1, count // 2)))
        equal[np.arange(space.rows)[:, None], better] += np.float32(1.0)
        yield space.scene(equal)


def _narrow(space: Space, rng: np.random.Generator) -> Scenes:
    """A boundary gap that BF16 or FP16 does not see, and FP32 does: 3 to 2^17 logit steps."""
    rows, last = np.arange(space.rows), min(space.geometry.top_k, space.geometry.experts - 1)
    bias = np.zeros(space.geometry.experts, np.float32)
    while True:
        level = rng.uniform(-8.0, 14.0, (space.rows, 1)).astype(np.float32)
        drawn = space.shuffled(rng, space.real(rng, space.rows)) + level
        order = space.order(drawn, bias, last + 1)
        steps = np.floor(2.0 ** rng.uniform(1.6, 17.0, space.rows)).astype(np.int64)
        drawn[rows, order[rows, last]] = stepped(drawn[rows, order[rows, last - 1]], -steps)
        yield space.scene(drawn, bias)


SLOT_TIES: Final = Strategy(
    "slot_ties", "keys 0 to 2^16 steps apart at every slot boundary, across shards", _slot_ties
)
BINADES: Final = Strategy(
    "binades", "the boundary on either side of a power of two", _binades, _needs_elementwise
)
MANY: Final = Strategy("tie_groups", "many experts with one key across the boundary", _many)
NARROW: Final = Strategy("narrow", "boundary gaps that BF16 or FP16 rounds away", _narrow)
