"""Bias vectors that routers do not have on a good day, over real rows with a planted boundary."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Final

import ml_dtypes
import numpy as np

from ..scene import F32
from ..space import Space, ladder, stepped
from .base import Scenes, Strategy
from .ties import tied

# One value for all experts: at -2 every key of a sigmoid lies below an initial candidate of -1.
_LEVELS: Final = (-2.0, 7.0, 1.0, -(2.0**24), 2.0**24, -1.0, -0.0, 12.0, 1024.0, 3e38)

Make = Callable[[Space, np.random.Generator], F32]


def _spread(space: Space, rng: np.random.Generator) -> F32:
    """Values of many magnitudes and both signs: some swallow the score."""
    size = np.exp2(rng.uniform(-30.0, 30.0, space.geometry.experts))
    sign = rng.choice(np.asarray([-1.0, 1.0], np.float32), space.geometry.experts)
    values: F32 = size.astype(np.float32) * sign
    return values


def _two_binades(space: Space, rng: np.random.Generator) -> F32:
    """Offsets that lift half of the experts into the next binade."""
    offset = np.float32(rng.choice([0.25, 0.5, 1.0, 3.0]))
    return rng.integers(0, 2, space.geometry.experts).astype(np.float32) * offset


def _narrow(space: Space, rng: np.random.Generator) -> F32:
    """A bias of the source's kind, rounded to BF16 in half of the draws."""
    values: F32 = rng.standard_normal(space.geometry.experts, np.float32) * np.float32(0.1)
    if rng.random() < 0.5:
        values = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    return values


def _subnormal(space: Space, rng: np.random.Generator) -> F32:
    return (rng.standard_normal(space.geometry.experts) * 1e-40).astype(np.float32)


def _some(value: float) -> Make:
    def make(space: Space, rng: np.random.Generator) -> F32:
        """The source's bias with one value at a few, at half, or at all but a few experts."""
        experts, count = space.geometry.experts, space.geometry.top_k
        bias = space.source_bias.copy()
        # Around top_k: so many experts are left, or one too few.
        left = int(rng.choice([1, experts // 2, experts - count - 1, experts - count,
                               experts - count + 1, experts]))  # fmt: skip
        bias[rng.permutation(experts)[: max(left, 1)]] = value
        return bias

    return make


def _rounding(space: Space, rng: np.random.Generator) -> Scenes:
    """Keys just above and below the power of two where adding the bias rounds to a coarser grid."""
    rows, last = np.arange(space.rows), min(space.geometry.top_k, space.geometry.experts - 1)
    while True:
        real = space.real(rng, space.rows)
        order = space.order(real, np.zeros_like(space.source_bias), last)
        base = space.keys(real, np.zeros_like(space.source_bias))[0, order[0, last - 1]]
        if not np.isfinite(base):
            base = np.float32(0.5)
        power = float(2.0 ** np.ceil(np.log2(max(float(base), 2.0**-100))))
        bias = np.full(space.geometry.experts, power - float(base), np.float32)
        # Neighbours in the bias too: what is added decides which way the sum rounds.
        bias = stepped(bias, rng.integers(-8, 9, len(bias)))
        order = space.order(real, bias, last + 1)
        gap = rng.integers(0, 6, space.rows)
        high, low = order[rows, last - 1], order[rows, last]
        real = real.copy()
        if space.elementwise:
            wanted = stepped(
                np.full(space.rows, power, np.float32), rng.integers(-5, 6, space.rows)
            )
            shift = space.logit_of(wanted, bias[high]) - real[rows, high]
            real = (real + shift[:, None]).astype(np.float32)
        yield space.scene(space.close(real, bias, high, low, gap), bias)


_KINDS: Final[dict[str, Make]] = {
    "spread": _spread,
    "two_binades": _two_binades,
    "narrow": _narrow,
    "subnormal": _subnormal,
    "minus_inf": _some(-np.inf),
    "plus_inf": _some(np.inf),
    "nan": _some(np.nan),
    "lowest": _some(-3e38),
}


def _biases(space: Space, rng: np.random.Generator) -> Scenes:
    """A level and a vector in turn, each list in its order."""
    for level, make in zip(cycle(_LEVELS), cycle(_KINDS.values()), strict=False):
        flat = np.full(space.geometry.experts, level, np.float32)
        for bias in (flat, make(space, rng)):
            half = max(space.width, space.rows // 2)
            real = space.real(rng, half)
            near = real
            if np.isfinite(bias).all():
                near = tied(space, rng, real, bias, ladder(rng, half))
            yield space.scene(np.concatenate([real, near]), bias)


BIASES: Final = Strategy(
    "biases", "large, negative, infinite, NaN, BF16 and subnormal biases, keys below -1", _biases
)
ROUNDING: Final = Strategy(
    "bias_rounding", "score + bias at the binade where the sum rounds otherwise", _rounding
)
