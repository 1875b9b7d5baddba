"""How far mixtures of two paths lie apart: sums of squares, added over chunks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..judged import JudgedBlock
from .pair import invalid_rows
from .stage_chain import BASELINE_SIDE, CANDIDATE_SIDE, Cut, Mixed, Mixer, Mixture
from .stage_sets import SetCounts

Array = npt.NDArray[Any]
F64 = npt.NDArray[np.float64]

LATENT, KEYS, WEIGHTS, SETS = "latent", "keys", "weights", "sets"
SQUARED: Final = (LATENT, KEYS, WEIGHTS)
"""Quantities whose differences are sums of squares; sets are counted (``SetCounts``)."""


@dataclass
class Sums:
    """Sums of one quantity over the rows so far.

    Attributes:
        apart: by two mixtures, squares of their difference.
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
    """Sums of all quantities, and counts of the sets.

    Attributes:
        cut: the stages.
        sums: by quantity; only those that both paths show.
        sets: rows whose sets differ.
        invalid: rows that breach the row contract on either path; their sets are not counted.
    """

    cut: Cut
    sums: dict[str, Sums] = field(default_factory=dict)
    sets: SetCounts = field(init=False)
    invalid: int = 0

    def __post_init__(self) -> None:
        self.sets = SetCounts(self.cut)

    def add(self, mixer: Mixer, judged: JudgedBlock) -> None:
        """Run every mixture on a chunk's rows and add what they show."""
        cut = self.cut
        found = {mixture: mixer.mixed(mixture) for mixture in mixtures(cut)}
        sets = {mixture: np.sort(one.ids, axis=1) for mixture, one in found.items()}
        self._latents(found, judged)
        self._keys(found, judged)
        self._weights(found, sets, judged)
        valid = np.ones(judged.block.rows, np.bool_)
        for side in (BASELINE_SIDE, CANDIDATE_SIDE):
            one = found[cut.mixture(side)]
            valid &= ~invalid_rows(one.ids, one.weights, judged.selection.keys.shape[1])
        self.invalid += int((~valid).sum())
        numbers = judged.block.start + np.flatnonzero(valid)
        self.sets.add({mixture: ids[valid] for mixture, ids in sets.items()}, numbers)

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
            with np.errstate(invalid="ignore"):
                # Poison that a path left is a signalling NaN: no reason to warn.
                by_expert = np.take_along_axis(one.weights, by_id, axis=1).astype(np.float64)
            values[mixture] = by_expert
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


def _square(values: Array) -> float:
    """Squared norm: numpy sums rows pairwise in one fixed order, fsum the rows exactly."""
    square = np.square(values)
    return math.fsum(np.atleast_1d(square.sum(axis=-1)).tolist())
