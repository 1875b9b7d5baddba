"""What a strategy works with: rows to start from, the keys that ties are planted on, a probe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ...banks.geometry import Geometry, ScoringRule
from ...kernels.scores import score
from ..metrics.ulp import from_ordered, ordered
from .scene import F32, I32, I64, Scene

# Bisection over all finite FP32 values; one step a bit.
_HALVINGS: Final = 32


@dataclass(frozen=True, eq=False)
class Space:
    """The front that is searched.

    Attributes:
        geometry: of the front.
        scoring: of the front.
        source: [row, expert] float32, the real rows to start from.
        source_bias: [expert] float32, theirs.
        width: rows per launch.
        ranks: tensor-parallel ranks.
        rows: rows of a batch, a multiple of the width.
        probe: runs one path (role) on a scene and returns its ids [row, slot]; the rows count.
    """

    geometry: Geometry
    scoring: ScoringRule
    source: F32
    source_bias: F32
    width: int
    ranks: int
    rows: int
    probe: Callable[[str, Scene], I32]

    def scene(self, logits: F32, bias: F32 | None = None) -> Scene:
        """Return rows as a scene; without a bias, with one of zeros."""
        zeros = np.zeros(self.geometry.experts, np.float32)
        return Scene(
            np.ascontiguousarray(logits, np.float32),
            zeros if bias is None else bias.astype(np.float32),
            self.width,
            self.ranks,
        )

    def drawn(self, rng: np.random.Generator, rows: int, std: float = 1.0) -> F32:
        """Return N(0, std) logits [row, expert]."""
        values = rng.standard_normal((rows, self.geometry.experts), np.float32)
        return values * np.float32(std)

    def real(self, rng: np.random.Generator, rows: int) -> F32:
        """Return rows [row, expert] of the source, drawn with repeats."""
        return self.source[rng.integers(0, len(self.source), rows)]

    def shuffled(self, rng: np.random.Generator, logits: F32) -> F32:
        """Return rows whose logits stand at other experts: other shards, other orders of ids."""
        return rng.permuted(logits, axis=1)

    @property
    def elementwise(self) -> bool:
        """Whether an expert's score depends on its own logit alone."""
        return self.scoring.function != "softmax"

    def keys(self, logits: F32, bias: F32) -> F32:
        """Return biased scores [row, expert], rounded as the reference rounds them."""
        with np.errstate(invalid="ignore", over="ignore"):
            return score(self.scoring.function, logits) + bias

    def order(self, logits: F32, bias: F32, count: int) -> I64:
        """Return the ``count`` best experts [row, place] by key, then lower id; NaN last."""
        keys = self.keys(logits, bias)
        experts = self.geometry.experts
        lowest = int(ordered(np.float32(-np.inf))) - 1
        line = np.where(np.isnan(keys), lowest, ordered(keys))
        # No two integers are equal, so a partition, which keeps no order of equals, decides it.
        line = line * experts - np.arange(experts)
        best = np.argpartition(-line, min(count, experts - 1), axis=1)[:, :count]
        sort = np.argsort(-np.take_along_axis(line, best, axis=1), axis=1)
        return np.take_along_axis(best, sort, axis=1).astype(np.int64)

    def logit_of(self, key: F32, bias: F32) -> F32:
        """Return the smallest logit [n] whose key with ``bias`` [n] reaches ``key`` [n].

        Where none does, the largest finite value. Of elementwise scores, which never fall.
        """
        low = np.full(len(key), ordered(np.float32(-3e38)), np.int64)
        high = np.full(len(key), ordered(np.float32(3e38)), np.int64)
        for _ in range(_HALVINGS):
            middle = (low + high) >> 1
            reaches = self._key_of(from_ordered(middle, np.float32), bias) >= key
            high = np.where(reaches, middle, high)
            low = np.where(reaches, low, middle + 1)
        result: F32 = from_ordered(high, np.float32)
        return result

    def _key_of(self, logits: F32, bias: F32) -> F32:
        with np.errstate(over="ignore", invalid="ignore"):
            return score(self.scoring.function, logits[:, None])[:, 0] + bias

    def close(self, logits: F32, bias: F32, high: I64, low: I64, gap: I64) -> F32:
        """Return rows whose expert ``low`` [row] stands ``gap`` [row] key steps below ``high``.

        A gap may be negative. Keys have the steps that score and bias leave them: what gap there
        is in the end the judgement measures. Softmax scores depend on each other, so there the gap
        is in steps of the logit.
        """
        rows = np.arange(len(logits))
        result = logits.copy()
        if self.elementwise:
            keys = self._key_of(logits[rows, high], bias[high])
            wanted = stepped(keys, -gap)
            result[rows, low] = self.logit_of(wanted, bias[low])
        else:
            result[rows, low] = stepped(logits[rows, high], -gap)
        return result


def stepped(values: F32, steps: I64) -> F32:
    """Return FP32 values so many steps up the ordered line, kept finite."""
    last = int(ordered(np.float32(3e38)))
    place = np.clip(ordered(np.where(np.isfinite(values), values, np.float32(0.0))) + steps,
                    -last, last)  # fmt: skip
    result: F32 = from_ordered(place, np.float32)
    return result


def ladder(rng: np.random.Generator, rows: int, most: int = 1 << 16) -> npt.NDArray[np.int64]:
    """Return gaps [row] in steps: half of them 0 to 8, the others log-uniform up to ``most``."""
    small = rng.integers(0, 9, rows)
    wide = np.floor(2.0 ** rng.uniform(3.0, np.log2(most), rows)).astype(np.int64)
    return np.where(rng.random(rows) < 0.5, small, wide).astype(np.int64)
