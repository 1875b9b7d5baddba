"""Which stages explain each row whose expert sets differ, counted over chunks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .stage_chain import BASELINE_SIDE, CANDIDATE_SIDE, Cut, Mixture

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]

TOGETHER: Final = " with "
EITHER: Final = " or "
ALL_TOGETHER: Final = "all stages together"


@dataclass
class SetCounts:
    """Rows whose sets differ, by what explains them, and rows where differences hide each other.

    Every count but ``others`` and ``hidden`` is of rows of the whole difference alone.

    Attributes:
        cut: the stages.
        rows: rows so far.
        differing: rows whose sets differ.
        alone: by stage, differing rows where the baseline with this stage of the candidate has the
            candidate's set.
        undone: by stage, differing rows where the candidate with this stage of the baseline has
            the baseline's set.
        others: by stage, further rows whose set it changes, alone or undone: rows with equal sets
            in the whole, and rows where it gives neither path's set.
        pairs: by two stages, differing rows that they explain together and neither alone.
        unexplained: differing rows that no stage explains alone.
        causes: differing rows by the stages that explain them, see ``_cause``.
        examples: the first row of each cause, its number in the bank.
        hidden: rows with the same set although a single swapped stage changes it.
    """

    cut: Cut
    rows: int = 0
    differing: int = 0
    alone: Counter[str] = field(default_factory=Counter)
    undone: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    unexplained: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    examples: dict[str, int] = field(default_factory=dict)
    hidden: int = 0

    def add(self, sets: Mapping[Mixture, Array], numbers: npt.NDArray[np.int64]) -> None:
        """Add rows: sorted ids [row, slot] by mixture, and the rows' numbers [row] in the bank."""
        cut = self.cut
        a, b = (sets[cut.mixture(side)] for side in (BASELINE_SIDE, CANDIDATE_SIDE))
        differs = _unlike(a, b)
        self.rows += len(a)
        self.differing += int(differs.sum())
        gives, needs = {}, {}
        moved = np.zeros(len(a), np.bool_)
        for stage in cut.stages:
            alone = sets[cut.mixture(BASELINE_SIDE, stage)]
            undone = sets[cut.mixture(CANDIDATE_SIDE, stage)]
            gives[stage] = differs & ~_unlike(alone, b)
            needs[stage] = differs & ~_unlike(undone, a)
            changes = _unlike(alone, a) | _unlike(undone, b)
            moved |= _unlike(alone, a)
            self.alone[stage] += int(gives[stage].sum())
            self.undone[stage] += int(needs[stage].sum())
            self.others[stage] += int((changes & ~gives[stage] & ~needs[stage]).sum())
        for one, two in combinations(cut.stages, 2):
            both = differs & ~_unlike(sets[cut.mixture(BASELINE_SIDE, one, two)], b)
            self.pairs[one, two] += int((both & ~gives[one] & ~gives[two]).sum())
        self.unexplained += int((differs & ~np.any(list(gives.values()), axis=0)).sum())
        self.hidden += int((moved & ~differs).sum())
        for row in np.flatnonzero(differs):
            cause = _cause(
                [s for s in cut.stages if gives[s][row]], [s for s in cut.stages if needs[s][row]]
            )
            self.causes[cause] += 1
            self.examples.setdefault(cause, int(numbers[row]))


def _cause(alone: list[str], needed: list[str]) -> str:
    """Name what explains a differing set.

    Stages that give the candidate's set each by itself; else those that it needs, each of which
    gives the baseline's set back when it alone is undone; else all stages together.
    """
    if alone:
        return EITHER.join(alone)
    return TOGETHER.join(needed) if len(needed) > 1 else ALL_TOGETHER


def _unlike(a: Array, b: Array) -> Bools:
    return np.asarray((a != b).any(axis=1))
