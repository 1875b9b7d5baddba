"""How far mixtures of two paths lie apart: sums of squares and rows, added over chunks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..judged import JudgedBlock
from .stage_chain import BASELINE_SIDE, CANDIDATE_SIDE, Cut, Mixed, Mixer, Mixture

Array = npt.NDArray[Any]
F64 = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

LATENT, KEYS, WEIGHTS, SETS = "latent", "keys", "weights", "sets"
QUANTITIES: Final = (LATENT, KEYS, WEIGHTS, SETS)
TOGETHER: Final = " with "
EITHER: Final = " or "
ALL_TOGETHER: Final = "all stages together"


@dataclass
class Sums:
    """Sums of one quantity over the rows so far.

    Attributes:
        apart: by two mixtures, squares of their difference, or rows whose sets differ.
        errors: by mixture, squares of its difference from the reference.
        norms: squares of the reference, one a chunk; elements for ``keys``.
        rows: rows that count.
    """

    apart: dict[tuple[Mixture, Mixture], list[float]] = field(default_factory=dict)
    errors: dict[Mixture, list[float]] = field(default_factory=dict)
    norms: list[float] = field(default_factory=list)
    rows: int = 0


@dataclass
class StageSums:
    """Sums of all quantities, and the stages that each differing set needs.

    Attributes:
        cut: the stages.
        sums: by quantity; only those that both paths show.
        causes: differing rows by the stages that explain them, see ``_cause``.
        examples: the first row of each cause, its number in the bank.
        hidden: rows with the same set although a single swapped stage changes it.
    """

    cut: Cut
    sums: dict[str, Sums] = field(default_factory=dict)
    causes: Counter[str] = field(default_factory=Counter)
    examples: dict[str, int] = field(default_factory=dict)
    hidden: int = 0

    def add(self, mixer: Mixer, judged: JudgedBlock) -> None:
        """Run every mixture on a chunk's rows and add what they show."""
        cut = self.cut
        found = {mixture: mixer.mixed(mixture) for mixture in mixtures(cut)}
        sets = {mixture: np.sort(one.ids, axis=1) for mixture, one in found.items()}
        self._latents(found, judged)
        self._keys(found, judged)
        self._weights(found, sets, judged)
        self._sets(sets, judged.block.start)

    def _latents(self, found: Mapping[Mixture, Mixed], judged: JudgedBlock) -> None:
        values = _present({mixture: one.latent for mixture, one in found.items()})
        if values is None or judged.latent is None:
            return
        rows = np.isfinite(judged.latent).all(axis=1)
        for value in values.values():
            rows &= np.isfinite(value).all(axis=1)
        sums = self._of(LATENT, judged.latent[rows], int(rows.sum()))
        self._squares(sums, {m: v[rows] for m, v in values.items()}, judged.latent[rows])

    def _keys(self, found: Mapping[Mixture, Mixed], judged: JudgedBlock) -> None:
        values = _present({mixture: one.keys for mixture, one in found.items()})
        if values is None:
            return
        exact = judged.selection.keys64
        known = np.isfinite(exact)
        for value in values.values():
            known &= np.isfinite(value)
        sums = self._of(KEYS, np.ones(int(known.sum())), int(known.any(axis=1).sum()))
        self._squares(sums, {m: v[known] for m, v in values.items()}, exact[known])

    def _weights(
        self, found: Mapping[Mixture, Mixed], sets: Mapping[Mixture, Array], judged: JudgedBlock
    ) -> None:
        """Weights by expert, on rows where every mixture and the reference have one set."""
        selection = judged.selection
        order = np.argsort(selection.ids, axis=1)
        exact = np.take_along_axis(selection.weights, order, axis=1)
        same = np.isfinite(exact).all(axis=1)
        values = {}
        for mixture, one in found.items():
            same &= (sets[mixture] == np.sort(selection.ids, axis=1)).all(axis=1)
            by_id = np.argsort(one.ids, axis=1, kind="stable")
            values[mixture] = np.take_along_axis(one.weights, by_id, axis=1).astype(np.float64)
            same &= np.isfinite(values[mixture]).all(axis=1)
        sums = self._of(WEIGHTS, exact[same], int(same.sum()))
        self._squares(sums, {m: v[same] for m, v in values.items()}, exact[same])

    def _of(self, quantity: str, exact: Array, rows: int) -> Sums:
        sums = self.sums.setdefault(quantity, Sums())
        sums.norms.append(_square(exact))
        sums.rows += rows
        return sums

    def _squares(self, sums: Sums, values: Mapping[Mixture, Array], exact: Array) -> None:
        for pair in compared(self.cut):
            square = _square(values[pair[0]] - values[pair[1]])
            sums.apart.setdefault(pair, []).append(square)
        for mixture, value in values.items():
            sums.errors.setdefault(mixture, []).append(_square(value - exact))

    def _sets(self, sets: Mapping[Mixture, Array], start: int) -> None:
        sums = self.sums.setdefault(SETS, Sums())
        sums.rows += len(next(iter(sets.values())))
        for pair in compared(self.cut):
            unlike = _unlike(sets[pair[0]], sets[pair[1]])
            sums.apart.setdefault(pair, []).append(int(unlike.sum()))
        cut = self.cut
        a, b = (sets[cut.mixture(side)] for side in (BASELINE_SIDE, CANDIDATE_SIDE))
        alone = {s: sets[cut.mixture(BASELINE_SIDE, s)] for s in cut.stages}
        left = {s: sets[cut.mixture(CANDIDATE_SIDE, s)] for s in cut.stages}
        differs = _unlike(a, b)
        moved = np.any([_unlike(a, one) for one in alone.values()], axis=0)
        self.hidden += int(np.count_nonzero(moved & ~differs))
        for row in np.flatnonzero(differs):
            cause = _cause(
                [s for s in cut.stages if (alone[s][row] == b[row]).all()],
                [s for s in cut.stages if (left[s][row] == a[row]).all()],
            )
            self.causes[cause] += 1
            self.examples.setdefault(cause, start + int(row))


def _cause(alone: list[str], needed: list[str]) -> str:
    """Name what explains a differing set.

    Stages that give the candidate's set each by itself; else those that it needs, each of which
    gives the baseline's set back when it alone is undone; else all stages together.
    """
    if alone:
        return EITHER.join(alone)
    return TOGETHER.join(needed) if len(needed) > 1 else ALL_TOGETHER


def mixtures(cut: Cut) -> list[Mixture]:
    """Return the mixtures that are run: all of a side but for up to two stages of the other."""
    found = {
        cut.mixture(side, *stages): None
        for side in (BASELINE_SIDE, CANDIDATE_SIDE)
        for stages in ((), *((s,) for s in cut.stages))
    }
    found.update({cut.mixture(BASELINE_SIDE, *two): None for two in combinations(cut.stages, 2)})
    return list(found)


def compared(cut: Cut) -> list[tuple[Mixture, Mixture]]:
    """Return the pairs of mixtures whose distance is taken."""
    a, b = cut.mixture(BASELINE_SIDE), cut.mixture(CANDIDATE_SIDE)
    pairs = {(a, mixture): None for mixture in mixtures(cut)}
    pairs.update({(b, cut.mixture(CANDIDATE_SIDE, s)): None for s in cut.stages})
    return list(pairs)


def _present(values: Mapping[Mixture, Array | None]) -> dict[Mixture, F64] | None:
    """The values in FP64; None where a mixture has none."""
    found: dict[Mixture, F64] = {}
    for mixture, value in values.items():
        if value is None:
            return None
        with np.errstate(invalid="ignore"):
            found[mixture] = value.astype(np.float64)
    return found


def _unlike(a: Array, b: Array) -> Bools:
    return np.asarray((a != b).any(axis=1))


def _square(values: Array) -> float:
    """Squared norm: numpy sums rows pairwise in one fixed order, fsum the rows exactly."""
    square = np.square(values)
    return math.fsum(np.atleast_1d(square.sum(axis=-1)).tolist())
