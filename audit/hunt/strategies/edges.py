"""Edges of the score forms, and values that are no numbers."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...metrics.ulp import from_ordered
from ..scene import F32
from ..space import Space, stepped
from .base import Scenes, Strategy

SMALLEST: Final = float.fromhex("0x1p-149")
_POINTS: Final = (
    # FP32: 1 + exp(-x) rounds to 1 from about 16.64, and 1 / (1 + exp(-x)) from about 17.33 on.
    8.0, 16.0, 16.635532, 17.0, 17.328680,
    # exp(x) overflows and exp(-x) is subnormal from about 88 on; 0 from about 103.97 on.
    87.0, 87.33655, 88.0, 88.72283, 89.0, 103.0, 103.278929, 103.972084, 104.0,
    0.0, SMALLEST, 1e-40, float.fromhex("0x1p-126"), 1e-10, float.fromhex("0x1p-24"),
    0.5, 1.0, 2.0, 4.0, 1e4, 1e30, 3e38,
)  # fmt: skip
SPECIAL: Final = (np.nan, np.inf, -np.inf, 0.0, -0.0, SMALLEST, -SMALLEST, 3e38, -3e38)


def around_edges(rng: np.random.Generator, shape: tuple[int, ...]) -> F32:
    """Return values of either sign within 8 steps of an edge."""
    points = np.asarray([*_POINTS, *(-p for p in _POINTS)], np.float32)
    return stepped(rng.choice(points, shape), rng.integers(-8, 9, shape))


def _edges(space: Space, rng: np.random.Generator) -> Scenes:
    experts, count = space.geometry.experts, space.geometry.top_k
    rows = np.arange(space.rows)[:, None]
    while True:
        # All experts of a row around one edge.
        one = around_edges(rng, (space.rows, 1))
        yield space.scene(stepped(np.repeat(one, experts, 1), rng.integers(-64, 65, (1, experts))))
        # Some clear winners, and the boundary among values of every edge.
        mixed = around_edges(rng, (space.rows, experts))
        yield space.scene(mixed)
        # A clear order but for two experts of the boundary, both at one edge.
        drawn = (space.drawn(rng, space.rows) + np.sign(one) * 8.0).astype(np.float32)
        order = space.order(drawn, np.zeros(experts, np.float32), count + 1)
        pair = order[:, count - 1 :]
        shift = one - drawn[rows, pair[:, :1]]
        near = np.clip(drawn + shift, -3e38, 3e38).astype(np.float32)
        near[rows, pair] = stepped(
            np.repeat(one, pair.shape[1], 1), rng.integers(-3, 4, pair.shape)
        )
        yield space.scene(near)
        # The last binades before saturation: scores that differ in FP32 and not in BF16.
        high = np.abs(space.drawn(rng, space.rows, 2.0)) + rng.uniform(4.0, 14.0)
        yield space.scene(high.astype(np.float32))


def _specials(space: Space, rng: np.random.Generator) -> Scenes:
    """In turn: few special values, so many that few numbers are left, signed zeros, subnormals."""
    experts, count = space.geometry.experts, space.geometry.top_k
    while True:
        rows = space.real(rng, space.rows).copy()
        for row in rows:
            few = int(rng.integers(1, min(experts, count + 1) + 1))
            row[rng.permutation(experts)[:few]] = rng.choice(SPECIAL, few)
        yield space.scene(rows, space.source_bias)
        rows = space.real(rng, space.rows).copy()
        for row in rows:
            # So many numbers are left, or fewer than there are slots.
            left = int(rng.choice([0, 1, count - 1, count, count + 1]))
            value = rng.choice(SPECIAL[:3])
            row[rng.permutation(experts)[left:]] = value
        yield space.scene(rows, space.source_bias if rng.random() < 0.5 else None)
        signs = np.where(rng.random((space.rows, experts)) < 0.5, -0.0, 0.0).astype(np.float32)
        yield space.scene(signs)
        tiny = from_ordered(rng.integers(-64, 65, (space.rows, experts)), np.float32)
        yield space.scene(tiny)
        extreme = rng.choice(np.asarray(SPECIAL, np.float32), (space.rows, experts))
        yield space.scene(extreme)


def _mutations(space: Space, rng: np.random.Generator) -> Scenes:
    """Real rows with a few experts, the boundary's among them, at values of any kind."""
    last = min(space.geometry.top_k, space.geometry.experts - 1)
    rows = np.arange(space.rows)
    while True:
        logits = space.real(rng, space.rows).copy()
        order = space.order(logits, space.source_bias, last + 3)
        for _ in range(int(rng.integers(1, 5))):
            expert = rng.integers(0, space.geometry.experts, space.rows)
            near = np.clip(last + rng.integers(-2, 3, space.rows), 0, order.shape[1] - 1)
            expert = np.where(rng.random(space.rows) < 0.5, order[rows, near], expert)
            other = logits[rows, order[rows, rng.integers(0, last, space.rows)]]
            value = np.where(
                rng.random(space.rows) < 0.5,
                stepped(other, rng.integers(-4, 5, space.rows)),
                around_edges(rng, (space.rows,)),
            )
            logits[rows, expert] = value
        yield space.scene(logits, space.source_bias)


EDGES: Final = Strategy("edges", "logits where score forms saturate, overflow or vanish", _edges)
SPECIALS: Final = Strategy(
    "specials", "NaN, infinities, signed zeros, subnormals; fewer numbers than slots", _specials
)
MUTATIONS: Final = Strategy("mutations", "real rows with a few logits replaced", _mutations)
