"""Ties and near ties of expert groups."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..scene import F32
from ..space import Space, ladder, stepped
from .base import Scenes, Strategy


def _no_groups(space: Space) -> str | None:
    return None if space.geometry.groups > 1 else "the geometry has no expert groups"


def _groups(space: Space, rng: np.random.Generator) -> Scenes:
    """The two best experts of the last group that is chosen, and of the next, add up alike."""
    zeros = np.zeros(space.geometry.experts, np.float32)
    while True:
        for bias in (zeros, space.source_bias):
            real = space.shuffled(rng, space.real(rng, space.rows))
            yield space.scene(_tied_groups(space, rng, real, bias), bias)
        whole = rng.integers(-2, 3, (space.rows, space.geometry.experts)).astype(np.float32)
        yield space.scene(whole)
        yield space.scene(_one_strong(space, rng))


def _tied_groups(space: Space, rng: np.random.Generator, logits: F32, bias: F32) -> F32:
    """Return rows with the boundary's group keys exactly or nearly equal."""
    geometry, rows = space.geometry, np.arange(len(logits))
    size = geometry.experts // geometry.groups
    keys = space.keys(logits, bias).reshape(len(logits), geometry.groups, size)
    inner = np.argsort(-keys, axis=2, kind="stable")
    best = np.take_along_axis(keys, inner[:, :, : min(2, size)], axis=2)
    order = np.argsort(-best.sum(axis=2), axis=1, kind="stable")
    last = min(geometry.top_groups, geometry.groups - 1)
    inside, outside = order[:, last - 1], order[:, last]
    result = logits.copy()
    # The other group gets the same two keys, and one of them is moved by a few steps.
    gap = np.where(rng.random(len(logits)) < 0.5, 0, ladder(rng, len(logits), 1 << 10))
    for place in range(min(2, size)):
        high = inside * size + inner[rows, inside, place]
        low = outside * size + inner[rows, outside, place]
        moved = gap * rng.choice([-1, 1], len(logits)) if place else np.zeros_like(gap)
        result = space.close(result, bias, high, low, moved)
    return result


def _one_strong(space: Space, rng: np.random.Generator) -> F32:
    """Return rows whose groups have one strong expert, or two middling ones."""
    geometry, size = space.geometry, space.geometry.experts // space.geometry.groups
    logits = space.drawn(rng, space.rows, 0.5) - np.float32(4.0)
    grouped = logits.reshape(space.rows, geometry.groups, size)
    strong = rng.random((space.rows, geometry.groups)) < 0.5
    level = rng.uniform(0.0, 3.0, (space.rows, geometry.groups)).astype(np.float32)
    grouped[:, :, 0] = np.where(strong, level + 2, level)
    if size > 1:
        near = stepped(grouped[:, :, 0], rng.integers(-2, 3, strong.shape))
        grouped[:, :, 1] = np.where(strong, grouped[:, :, 1], near)
    return grouped.reshape(space.rows, geometry.experts)


GROUPS: Final = Strategy(
    "groups", "expert groups whose keys are equal or a few steps apart", _groups, _no_groups
)
