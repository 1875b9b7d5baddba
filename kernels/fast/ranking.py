"""Exact keys of a row's few candidates, and their order."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..contract import F32
from ..scores import fill_scores
from .compare import order32
from .scratch import PIECE, Scratch
from .uncounted import uncounted

LOWEST: Final = np.iinfo(np.int64).min
LOWEST_32: Final = np.int32(np.iinfo(np.int32).min)


@uncounted
def exact_keys(code: int, logits: F32, bias: F32, ids: Any, count: int, s: Scratch) -> None:
    """Write the exact scores and keys of ``ids[:count]``, the plain select's arithmetic."""
    inputs, outputs, scores, keys = s.inputs, s.outputs, s.scores, s.keys
    ranked, places = s.ranked, s.places
    for start in range(0, count, PIECE):
        for n in range(PIECE):
            inputs[n] = logits[ids[start + n]] if start + n < count else np.float32(0.0)
        fill_scores(code, inputs, outputs)
        for n in range(PIECE):
            scores[start + n] = outputs[n]
            ranked[start + n], places[start + n] = LOWEST, LOWEST_32
    for n in range(count):
        keys[n] = scores[n] + bias[ids[n]]
        # One integer that orders by key, then by the lower id; ids are below 2^20.
        place = order32(keys[n])
        ranked[n] = (place << 20) - np.int64(ids[n])
        places[n] = np.int32(place)


@uncounted
def rank(ranked: Any, places: Any, count: int, order: Any) -> None:
    """Write into ``order`` the positions of the first ``count`` keys, best first.

    Args:
        ranked: int64, key and id in one.
        places: int32, the key alone; both are lowest from ``count`` on.
        count: how many.
        order: written.
    """
    pieces = (count + PIECE - 1) // PIECE * PIECE
    total: Any = 0
    for n in range(count):
        place = places[n]
        above: Any = np.int32(0)
        for other in range(pieces):
            above += np.int32(places[other] > place)
        order[above] = n
        total += np.int64(above)
    if 2 * total == count * (count - 1):
        return
    # Equal keys: the lower id is first.
    for n in range(count):
        value = ranked[n]
        before: Any = 0
        for other in range(count):
            before += np.int64(ranked[other] > value)
        order[before] = n


@uncounted
def rank_again(ranked: Any, places: Any, count: int, order: Any) -> None:
    """Rank B's experts, given in A's order: mostly they are in B's order already."""
    for n in range(count - 1):
        if ranked[n] <= ranked[n + 1]:
            rank(ranked, places, count, order)
            return
    for n in range(count):
        order[n] = n
