"""Exact keys of a row's few candidates, and their order."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..contract import F32
from ..scores import fill_scores
from .compare import order32
from .score import cheap_sigmoid
from .scratch import PIECE, Scratch
from .uncounted import uncounted

LOWEST_32: Final = np.int32(np.iinfo(np.int32).min)


@uncounted
def exact_keys(code: int, logits: F32, bias: F32, ids: Any, count: int, s: Scratch) -> None:
    """Write the exact scores and keys of ``ids[:count]``, the plain select's arithmetic."""
    _gather(logits, bias, ids, count, s)
    for piece in range((count + PIECE - 1) // PIECE):
        first = piece * PIECE
        fill_scores(code, s.inputs[first : first + PIECE], s.scores[first : first + PIECE])
    _order_keys(count, s)


@uncounted
def few_cheap_keys(logits: F32, bias: F32, ids: Any, count: int, s: Scratch) -> None:
    """Write the cheap scores and keys of ``ids[:count]``."""
    _gather(logits, bias, ids, count, s)
    inputs, scores = s.inputs, s.scores
    n: Any = np.uint32(0)
    for _ in range((count + PIECE - 1) // PIECE):
        for _ in range(PIECE):
            scores[n] = cheap_sigmoid(inputs[n])
            n += np.uint32(1)
    _order_keys(count, s)


@uncounted
def _gather(logits: F32, bias: F32, ids: Any, count: int, s: Scratch) -> None:
    """Write logits and biases of the experts.

    The loops behind it run over whole pieces, in vectors; what an earlier row left behind the last
    expert is scored once more and not looked at.
    """
    for n in range(count):
        s.inputs[n] = logits[ids[n]]
        s.biases[n] = bias[ids[n]]


@uncounted
def _order_keys(count: int, s: Scratch) -> None:
    """Write keys = scores + biases, and their ``order32``, lowest behind the last."""
    scores, biases, keys, places, used = s.scores, s.biases, s.keys, s.places, np.uint32(count)
    n: Any = np.uint32(0)
    for _ in range((count + PIECE - 1) // PIECE):
        for _ in range(PIECE):
            keys[n] = scores[n] + biases[n]
            place = np.int32(order32(keys[n]))
            places[n] = place if n < used else LOWEST_32
            n += np.uint32(1)


@uncounted
def rank(places: Any, ids: Any, count: int, order: Any) -> None:
    """Write into ``order`` the positions of the first ``count`` keys, best first.

    Args:
        places: int32, keys by ``order32``; lowest from ``count`` to the end of its piece.
        ids: the keys' experts: of equal keys the lower id is first.
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
    for n in range(count):
        before: Any = 0
        for other in range(count):
            before += np.int64(places[other] > places[n])
            before += np.int64(places[other] == places[n] and ids[other] < ids[n])
        order[before] = n


@uncounted
def rank_again(places: Any, ids: Any, count: int, order: Any) -> None:
    """Rank B's experts, given in A's order: mostly they are in B's order already."""
    for n in range(count - 1):
        if places[n] < places[n + 1] or (places[n] == places[n + 1] and ids[n] > ids[n + 1]):
            rank(places, ids, count, order)
            return
    for n in range(count):
        order[n] = n
