"""Rows as they come: the baseline budget."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..space import Space
from .base import Scenes, Strategy

# As the gaussian generator's default.
_BIAS_STD: Final = 0.02


def _random(space: Space, rng: np.random.Generator) -> Scenes:
    bias = rng.standard_normal(space.geometry.experts, np.float32) * np.float32(_BIAS_STD)
    while True:
        yield space.scene(space.drawn(rng, space.rows), bias)


def _real(space: Space, rng: np.random.Generator) -> Scenes:
    while True:
        order = rng.permutation(len(space.source))
        for first in range(0, len(order), space.rows):
            yield space.scene(space.source[order[first : first + space.rows]], space.source_bias)


RANDOM: Final = Strategy("random", "N(0,1) logits, N(0,0.02) bias: the baseline budget", _random)
REAL: Final = Strategy("real", "the bank's rows as they are", _real)
