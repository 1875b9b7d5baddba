"""Closing the boundary gap of real rows until a path itself changes its mind."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ...compare import BASELINE, CANDIDATE
from ...metrics.ulp import from_ordered, ordered
from ..scene import F32, I64
from ..space import Space
from .base import Scenes, Strategy

# 24 halvings bring any two logits of one sign and neighbouring binades to one step.
_HALVINGS: Final = 26
_AROUND: Final = (-3, -2, -1, 0, 1, 2, 3)
# Rows that are bisected at once: each costs two probes a halving.
_PAIRS: Final = 24


def _crossings(space: Space, rng: np.random.Generator) -> Scenes:
    """Bisect on the ordered float line where each path takes ``low`` for ``high``.

    No score function is asked: the path's own selection is. Rows around both crossings, and half
    way between them, are then compared.
    """
    last = min(space.geometry.top_k, space.geometry.experts - 1)
    while True:
        logits, bias = space.real(rng, _PAIRS), space.source_bias
        if rng.random() < 0.5:
            logits, bias = space.shuffled(rng, logits), np.zeros_like(bias)
        rows, order = np.arange(_PAIRS), space.order(logits, bias, last + 8)
        # The next expert in half of the pairs, in the others one from further down.
        further = rng.integers(last, min(space.geometry.experts, last + 8), _PAIRS)
        place = np.where(rng.random(_PAIRS) < 0.5, last, further)
        high, low = order[rows, last - 1], order[rows, place]
        start, stop = ordered(logits[rows, low]), ordered(logits[rows, order[rows, 0]])
        at = [
            _bisected(space, role, logits, bias, (high, low), (start, stop))
            for role in (BASELINE, CANDIDATE)
        ]
        steps = [at[0] + n for n in _AROUND] + [at[1] + n for n in _AROUND]
        steps.append((at[0] + at[1]) >> 1)
        tried = np.repeat(logits, len(steps), axis=0)
        tried[np.arange(len(tried)), np.repeat(low, len(steps))] = _values(np.stack(steps, axis=1))
        yield space.scene(tried, bias)


def _values(steps: I64) -> F32:
    last = int(ordered(np.float32(3e38)))
    result: F32 = from_ordered(np.clip(steps, -last, last), np.float32).ravel()
    return result


def _bisected(
    space: Space,
    role: str,
    logits: F32,
    bias: F32,
    pair: tuple[I64, I64],
    ends: tuple[I64, I64],
) -> I64:
    """Return the first position [row] of ``low``'s logit at which the path prefers it."""
    rows, tried = np.arange(len(logits)), logits.copy()
    below, above = np.minimum(*ends), np.maximum(*ends)
    for _ in range(_HALVINGS):
        middle = (below + above) >> 1
        tried[rows, pair[1]] = _values(middle)
        ids = space.probe(role, space.scene(tried, bias))
        preferred = _holds(ids, pair[1]) & ~_holds(ids, pair[0])
        above = np.where(preferred, middle, above)
        below = np.where(preferred, below, middle + 1)
        below = np.minimum(below, above)
    return above


def _holds(ids: npt.NDArray[np.int32], expert: I64) -> npt.NDArray[np.bool_]:
    return np.asarray((ids == expert[:, None]).any(axis=1))


CROSSINGS: Final = Strategy(
    "crossings", "real rows at the very step where each path changes its selection", _crossings
)
