"""Paths with a fault that random rows show about once in 100,000 rows, or never.

Each is the standalone select with its outputs changed on the rows that its condition names; the
hunt's tests and ``benchmarks/hunt.py`` take them by ``rare_faults:NAME``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import numpy.typing as npt

import neartie
from neartie.audit.metrics.ulp import ordered
from neartie.kernels.contract import Launch, Routed
from neartie.kernels.scores import score

I64 = npt.NDArray[np.int64]
F32 = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Boundary:
    """The K-th expert and the next of each row, by the keys that the select computes."""

    keys: F32
    kept: I64
    next: I64
    gap: I64


def logits_of(launch: Launch) -> F32:
    """Whole logits [row, expert] of a launch that starts at logits or at shards."""
    if launch.logits is not None:
        return launch.logits
    assert launch.logits_shards is not None
    return np.concatenate(list(launch.logits_shards), axis=1)


def boundary(logits: F32, bias: F32, top_k: int) -> Boundary:
    """The boundary of rows [row, expert]; the gap of what is not finite is -1."""
    with np.errstate(all="ignore"):
        keys = score("exp", np.ascontiguousarray(logits)) + bias
    line = np.where(np.isnan(keys), np.iinfo(np.int64).min, ordered(keys))
    # Value first, then the lower id; the ids fit below one step.
    ids = np.arange(keys.shape[1])
    composed = line * 1024 - ids
    top = np.partition(composed, (-top_k - 1, -top_k), axis=1)[:, [-top_k, -top_k - 1]]
    places = (-top) % 1024
    rows = np.arange(len(keys))[:, None]
    both = keys[rows, places]
    gap = line[rows, places[:, :1]] - line[rows, places[:, 1:]]
    gap = np.where(np.isfinite(both).all(axis=1), gap[:, 0], -1)
    return Boundary(keys, places[:, 0], places[:, 1], gap)


class RareFault:
    """The standalone select with a fault on the rows of ``fires``."""

    base: ClassVar[str] = "route:select=standalone"
    weighs_again: ClassVar[bool] = True
    """Whether weights follow from the ids that the fault leaves."""
    batches_launches = True

    def __init__(self, options: Mapping[str, str]) -> None:
        del options
        self._base = neartie.make_path(self.base)
        self.name = type(self).__name__
        self.declared = self._base.declared
        self.outputs = self._base.outputs

    def unavailable(self) -> str | None:
        return None

    def check(self, launch: Launch) -> None:
        self._base.check(launch)

    def run(self, launch: Launch, out: Routed) -> None:
        self._base.run(launch, out)
        logits = logits_of(launch)
        found = boundary(logits, launch.weights.bias, launch.geometry.top_k)
        rows = np.flatnonzero(self.fires(launch, logits, found))
        if len(rows):
            self.spoil(launch, out, rows, found)
            if self.weighs_again:
                _weigh(launch, logits, out, rows)

    def fires(self, launch: Launch, logits: F32, found: Boundary) -> Bools:
        raise NotImplementedError

    def spoil(self, launch: Launch, out: Routed, rows: I64, found: Boundary) -> None:
        """Take the next expert for the K-th."""
        del launch
        for row in rows.tolist():
            slot = out.ids[:, row] == found.kept[row]
            out.ids[:, row][slot] = found.next[row]


class HigherIdOfOneLane(RareFault):
    """An exact tie goes to the higher id where both experts are of one lane of 32."""

    def fires(self, launch: Launch, logits: F32, found: Boundary) -> Bools:
        del launch, logits
        return np.asarray((found.gap == 0) & (found.kept % 32 == found.next % 32))


class FourStepsInOneShard(RareFault):
    """A boundary of 3 or 4 ULP is taken for a tie where both experts are of one shard of 112."""

    def fires(self, launch: Launch, logits: F32, found: Boundary) -> Bools:
        del launch, logits
        near = (found.gap == 3) | (found.gap == 4)
        return np.asarray(near & (found.kept // 112 == found.next // 112))


class SaturatedInBf16(RareFault):
    """Scores from 1 - 2^-8 on are compared after rounding to BF16: the lowest ids win."""

    def fires(self, launch: Launch, logits: F32, found: Boundary) -> Bools:
        del launch, logits
        rows = np.arange(len(found.keys))
        pair = np.stack([found.keys[rows, found.kept], found.keys[rows, found.next]])
        with np.errstate(all="ignore"):
            narrow = pair.astype(ml_dtypes.bfloat16)
        alike = (pair[1] >= 1 - 2.0**-8) & (pair[0] <= 1) & (narrow[0] == narrow[1])
        return np.asarray(alike & (found.next < found.kept) & (found.gap > 0))


class Expert700AtTheLastSlot(RareFault):
    """Expert 700 is lost from the last slot where the next is at most 64 ULP behind."""

    def fires(self, launch: Launch, logits: F32, found: Boundary) -> Bools:
        del launch, logits
        return np.asarray((found.kept == 700) & (found.gap >= 0) & (found.gap <= 64))


class BiasAcrossABinade(RareFault):
    """Wrong where the bias lifts the K-th score into another binade and the next not."""

    def fires(self, launch: Launch, logits: F32, found: Boundary) -> Bools:
        rows = np.arange(len(logits))
        scores = score("exp", np.ascontiguousarray(logits))
        moved = []
        for expert in (found.kept, found.next):
            with np.errstate(all="ignore"):
                before = np.frexp(scores[rows, expert])[1]
                moved.append(before != np.frexp(found.keys[rows, expert])[1])
        del launch
        return np.asarray(moved[0] & ~moved[1] & (found.gap > 0))


class CandidatesStartAtMinusOne(RareFault):
    """The list of winners starts with (expert 0, -1.0): a key below -1 never enters."""

    def fires(self, launch: Launch, logits: F32, found: Boundary) -> Bools:
        del launch, logits
        last = found.keys[np.arange(len(found.keys)), found.kept]
        return np.asarray(last < -1.0)

    def spoil(self, launch: Launch, out: Routed, rows: I64, found: Boundary) -> None:
        del launch
        for row in rows.tolist():
            below = found.keys[row, out.ids[0, row]] < -1.0
            out.ids[:, row, below] = 0


class SeventhOfALane(RareFault):
    """Each lane of 32 keeps its six best experts: a seventh winner of one lane is lost."""

    def fires(self, launch: Launch, logits: F32, found: Boundary) -> Bools:
        del logits
        self._winners = _winners(found.keys, launch.geometry.top_k)
        lanes = np.sort(self._winners % 32, axis=1)
        return np.asarray((lanes[:, 6:] == lanes[:, :-6]).any(axis=1))

    def spoil(self, launch: Launch, out: Routed, rows: I64, found: Boundary) -> None:
        del launch
        for row in rows.tolist():
            lane = self._winners[row] % 32
            full = int(np.argmax(np.bincount(lane, minlength=32)))
            lost = self._winners[row][lane == full][6]
            slot = out.ids[:, row] == lost
            out.ids[:, row][slot] = found.next[row]


class TieInTheLastRowOfALaunch(RareFault):
    """The last row of a launch repeats the row before it where its boundary is within 4 ULP."""

    weighs_again = False

    def fires(self, launch: Launch, logits: F32, found: Boundary) -> Bools:
        last = np.arange(len(logits)) % launch.width == launch.width - 1
        near = (found.gap >= 0) & (found.gap <= 4)
        return np.asarray(last & near & (launch.width > 1))

    def spoil(self, launch: Launch, out: Routed, rows: I64, found: Boundary) -> None:
        del launch, found
        out.ids[:, rows], out.weights[:, rows] = out.ids[:, rows - 1], out.weights[:, rows - 1]


class HigherGroupAtTies(RareFault):
    """A tie of the last group's key with the next goes to the higher group."""

    base = "route:select=grouped"

    def fires(self, launch: Launch, logits: F32, found: Boundary) -> Bools:
        del logits
        geometry = launch.geometry
        keys = found.keys.reshape(len(found.keys), geometry.groups, -1)
        with np.errstate(all="ignore"):
            best = np.sort(keys, axis=2)[:, :, -2:].sum(axis=2)
        order = np.argsort(-best, axis=1, kind="stable")
        rows, last = np.arange(len(best)), geometry.top_groups
        self._pair = order[:, last - 1 : last + 1]
        tied = best[rows, order[:, last - 1]] == best[rows, order[:, last]]
        return np.asarray(tied & np.isfinite(best).all(axis=1))

    def spoil(self, launch: Launch, out: Routed, rows: I64, found: Boundary) -> None:
        """Swap the two groups' keys and select again."""
        geometry = launch.geometry
        size = geometry.experts // geometry.groups
        order = np.argsort(-found.keys, axis=1, kind="stable")
        for row in rows.tolist():
            group = order[row] // size
            chosen = set(self._groups(found.keys[row], geometry)) - {int(self._pair[row, 0])}
            chosen |= {int(self._pair[row, 1])}
            eligible = order[row][np.isin(group, list(chosen))]
            out.ids[:, row] = eligible[: geometry.top_k]

    @staticmethod
    def _groups(keys: F32, geometry: Any) -> list[int]:
        best = np.sort(keys.reshape(geometry.groups, -1), axis=1)[:, -2:].sum(axis=1)
        return list(np.argsort(-best, kind="stable")[: geometry.top_groups].tolist())


def _weigh(launch: Launch, logits: F32, out: Routed, rows: I64) -> None:
    """Renormalised scores of the ids on the rows, times the scale."""
    scores = score("exp", np.ascontiguousarray(logits[rows]))
    for rank in range(len(out.ids)):
        chosen = np.take_along_axis(scores, out.ids[rank, rows].astype(np.int64), axis=1)
        total = chosen.sum(axis=1, keepdims=True)
        weights = chosen / np.where(total > 0, total, np.float32(1.0))
        out.weights[rank, rows] = weights * np.float32(launch.scoring.scale)


def _winners(keys: F32, top_k: int) -> I64:
    """Winners [row, slot], best first."""
    some = np.argpartition(-keys, top_k - 1, axis=1)[:, :top_k]
    rows = np.arange(len(keys))[:, None]
    order = np.argsort(-keys[rows, some], axis=1, kind="stable")
    return np.take_along_axis(some, order, axis=1).astype(np.int64)


K3_FAULTS = (
    HigherIdOfOneLane, FourStepsInOneShard, SaturatedInBf16, Expert700AtTheLastSlot,
    BiasAcrossABinade, CandidatesStartAtMinusOne, SeventhOfALane, TieInTheLastRowOfALaunch,
)  # fmt: skip
"""On the K3 geometry, 896 experts and top 16; ``HigherGroupAtTies`` needs groups."""
