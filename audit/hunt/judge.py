"""Which rows' differences the policy fails: the audit's comparison and verdict rules, by row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from ...banks.geometry import Geometry, ScoringRule
from ...kernels.contract import Routed
from ..compare import BASELINE, CANDIDATE, RankRows, RowComparison, compare_rows
from ..judged import JudgedBlock
from ..metrics.flags import Breach, RowFlag, names
from ..metrics.swaps import SET_CLASSES, SetClass
from ..metrics.weights import WEIGHT_CLASSES
from ..metrics.worst_weight import worst_weight
from ..policy import Policy
from ..verdict import State, set_reason
from .difference import Difference, Faulty

_EQUAL = (SetClass.IDENTICAL, SetClass.REORDERED)


class RowJudge:
    """Judges rows of both paths on one rank, and each path against the reference."""

    def __init__(
        self,
        judged: JudgedBlock,
        geometry: Geometry,
        scoring: ScoringRule,
        policy: Policy,
        score_forms: Mapping[str, tuple[str, ...]],
    ) -> None:
        self.judged, self.policy, self._score_forms = judged, policy, score_forms
        self._geometry, self._scoring = geometry, scoring

    def differences(
        self, a: Routed, b: Routed, rank: int, rows: npt.NDArray[np.int64]
    ) -> Iterator[Difference]:
        """Yield a difference for each row of the block that has one.

        Args:
            a: the baseline's outputs of the block's rows.
            b: the candidate's.
            rank: whose outputs.
            rows: [row] the scene's numbers of the block's rows.
        """
        outputs = {BASELINE: a, CANDIDATE: b}
        sides = {role: self._rows(role, out, rank) for role, out in outputs.items()}
        found = self._compare(sides[BASELINE], sides[CANDIDATE])
        kinds = [self._kind(found, sides, row) for row in range(len(rows))]
        if not any(kinds):
            return
        against = {role: self._compare(self._reference(), side) for role, side in sides.items()}
        place = {int(row): n for n, row in enumerate(found.sets.rows)}
        for row, kind in enumerate(kinds):
            if kind is not None:
                yield self._difference(
                    found, against, kind, row, place.get(row), sides, rank, int(rows[row]),
                )  # fmt: skip

    def _rows(self, role: str, out: Routed, rank: int) -> RankRows:
        ids, forms = out.ids[rank], self._score_forms[role]
        return RankRows(ids, out.weights[rank], self.judged.logit_slack(out, rank, ids), forms)

    def _reference(self) -> RankRows:
        """The reference as one side; where it has no finite weights, they are not compared."""
        selection = self.judged.selection
        with np.errstate(over="ignore", invalid="ignore"):
            weights = selection.weights.astype(np.float32)
        return RankRows(
            selection.ids,
            np.where(np.isfinite(weights), weights, np.float32(0.0)),
            np.zeros(len(weights)),
        )

    def _compare(self, baseline: RankRows, candidate: RankRows) -> RowComparison:
        return compare_rows(
            baseline, candidate, self.judged, self._geometry, self._scoring, self.policy
        )

    def _fails(self, name: SetClass) -> bool:
        """Whether the policy fails rows of a class; two sides without a breach."""
        if name in (*_EQUAL, SetClass.INVALID):
            return False
        return set_reason(name, "", self.policy)[0] is State.FAIL

    def _kind(self, found: RowComparison, sides: dict[str, RankRows], row: int) -> str | None:
        breach = {role: int(found.breach[role][row]) for role in sides}
        if any(breach.values()):
            ids = [set(side.ids[row].tolist()) for side in sides.values()]
            if breach[BASELINE] == breach[CANDIDATE] and ids[0] == ids[1]:
                return None
            told = names(Breach(breach[BASELINE] | breach[CANDIDATE]))
            return f"breach:{'+'.join(told)}"
        name = SET_CLASSES[int(found.sets.set_class[row])]
        if self._fails(name):
            return f"set:{name}"
        if name in _EQUAL:
            if found.weight_ulp[row] > self.policy.weight_budget_ulp:
                return f"weights:{WEIGHT_CLASSES[int(found.weight_class[row])]}"
            return None
        # Sets that differ by a tie: their weights cannot be aligned, so each side's own flags tell.
        alone = int(found.flags[BASELINE][row]) ^ int(found.flags[CANDIDATE][row])
        return f"flag:{'+'.join(names(RowFlag(alone)))}" if alone else None

    def _wrong(self, found: RowComparison, row: int) -> bool:
        """Whether a path, compared with the reference as the baseline, is wrong in a row."""
        if found.breach[CANDIDATE][row] or found.flags[CANDIDATE][row]:
            return True
        name = SET_CLASSES[int(found.sets.set_class[row])]
        defined = np.isfinite(self.judged.selection.weights[row]).all()
        apart = found.weight_ulp[row] > self.policy.weight_budget_ulp
        return self._fails(name) or bool(name in _EQUAL and defined and apart)

    def _faulty(
        self, kind: str, found: RowComparison, against: dict[str, RowComparison], row: int
    ) -> Faulty:
        if kind.startswith("breach"):
            # A breach needs no reference to be wrong.
            wrong = [found.breach[role][row] != 0 for role in (BASELINE, CANDIDATE)]
        else:
            wrong = [self._wrong(against[role], row) for role in (BASELINE, CANDIDATE)]
        if all(wrong):
            return "both"
        if any(wrong):
            return "baseline" if wrong[0] else "candidate"
        return "neither"

    def _difference(
        self,
        found: RowComparison,
        against: dict[str, RowComparison],
        kind: str,
        row: int,
        place: int | None,
        sides: Mapping[str, RankRows],
        rank: int,
        number: int,
    ) -> Difference:
        dropped: tuple[int, ...] = ()
        added: tuple[int, ...] = ()
        gap = -1
        if place is not None:
            dropped = tuple(int(e) for e in found.sets.dropped[place] if e >= 0)
            added = tuple(int(e) for e in found.sets.added[place] if e >= 0)
            gap = int(found.sets.gap_ulp[place])
        weight, steps = int(found.weight_class[row]), int(found.weight_ulp[row])
        ids, mine = sides[BASELINE].ids[row], sides[CANDIDATE]
        boundary = int(self.judged.selection.boundary_ulp[row])
        return Difference(
            kind=kind,
            faulty=self._faulty(kind, found, against, row),
            row=number,
            rank=rank,
            set_class=str(SET_CLASSES[int(found.sets.set_class[row])]),
            dropped=dropped,
            added=added,
            slots=tuple(int(np.flatnonzero(ids == e)[0]) for e in dropped),
            gap_ulp=None if gap < 0 else gap,
            weight_class=None if weight < 0 else str(WEIGHT_CLASSES[weight]),
            weight_ulp=None if steps < 0 else steps,
            flags=tuple(names(RowFlag(int(found.input_flags[row])))),
            boundary_ulp=None if boundary < 0 else boundary,
            worst_weight=worst_weight(
                mine.ids[row], mine.weights[row], ids, sides[BASELINE].weights[row]
            ),
        )
