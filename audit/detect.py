"""Batch findings of an audit: what only several rows, ranks, runs or widths together show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..banks.bank import Bank
from ..kernels.contract import Path, Routed
from .bank_outcome import ShardOutcome
from .compare import BASELINE, CANDIDATE, RowComparison
from .graph_replay import ReplayDifference
from .hypotheses import Explained, lost_ties
from .judged import JudgedBlock
from .launching import poisoned_rows, same_bits, tensors
from .metrics import findings as find
from .metrics.findings import bits
from .metrics.flags import RowFlag
from .metrics.rule_weights import rule_weights
from .metrics.swaps import SET_CODE, SetClass, SetDifferences, classify_sets
from .metrics.weights import step_bins
from .observed import BatchFinding
from .places import Places
from .policy import Policy
from .width_dependence import WidthDependence

Bools = npt.NDArray[np.bool_]
_TIES = (SetClass.EXACT_TIE, SetClass.GROUP_TIE, SetClass.TIE_GROUP)
FAR = (SET_CODE[SetClass.FAR_SWAP], SET_CODE[SetClass.MULTI_SWAP])


class Detector:
    """Collects the findings of one chunk over its widths and ranks; at the end, those of a bank."""

    def __init__(
        self, bank: Bank, paths: dict[str, Path], policy: Policy, found: ShardOutcome
    ) -> None:
        self.bank, self.paths, self.policy = bank, paths, policy
        self.found, self.log = found, found.log
        self.width_dependence = WidthDependence(
            paths, bank.geometry, policy, found.log, found.widths
        )
        self.explained: list[Explained] = []
        """What explains the failing rows of each path that has some; filled by ``findings``."""
        self._places = Places(bank, found.log)

    def replay(self, role: str, width: int, first: Routed, again: Routed) -> None:
        """Compare two runs of one path on the same launch: the bits must be the same."""
        named = dict(tensors(again))
        for tensor, array in tensors(first):
            other = named[tensor]
            differs = (bits(array) != bits(other)).any(axis=(0, 2))
            # Poison that both runs left is told as unwritten, not as nondeterminism.
            differs &= ~poisoned_rows(array, 0) | ~poisoned_rows(other, 1)
            text = f"{tensor} differs between two runs on the same input"
            self.log.note(find.Finding.NONDETERMINISTIC, role, width, differs, text, tensor=tensor)

    def graph_replay(self, role: str, width: int, differences: Sequence[ReplayDifference]) -> None:
        """Keep what replays of a captured launch did otherwise than eager runs."""
        for one in differences:
            self.log.note(one.finding, role, width, one.rows, one.text, tensor=one.tensor)

    def batch(self, judged: JudgedBlock, width: int, a: Routed, b: Routed) -> None:
        """Look at all ranks of one width together."""
        for role, out in ((BASELINE, a), (CANDIDATE, b)):
            for tensor, array in tensors(out):
                self._unwritten(role, width, tensor, array, judged.block.start)
                self._ranks(role, width, tensor, array)
            self.width_dependence.add(judged, role, width, out)
        self._places.shown(judged, width, a, b)

    def rows(
        self,
        judged: JudgedBlock,
        width: int,
        rank: int,
        comparison: RowComparison,
        a: Routed,
        b: Routed,
    ) -> None:
        """Look at one rank's rows together: stale outputs, permuted ids, echoes, named causes."""
        valid = comparison.sets.set_class != SET_CODE[SetClass.INVALID]
        wrong = {}
        for role, out in ((BASELINE, a), (CANDIDATE, b)):
            wrong[role] = self._wrong(judged, width, comparison, role, out.ids[rank]) & valid
            self._stale(judged, role, width, rank, wrong[role], out, b if role == BASELINE else a)
            self._places.selected(judged, role, width, wrong[role], out, rank)
            self._tail(role, width, wrong[role], judged.block.start)
            self._other_slots(judged, role, width, comparison, out, rank)
            self._count_experts(role, width, out.ids[rank][valid])
        for role, out in ((BASELINE, a), (CANDIDATE, b)):
            logits = None if out.logits is None else out.logits[rank]
            ids, weights = out.ids[rank], out.weights[rank]
            apart = self._apart(comparison, wrong) | lost_ties(judged, ids, self.policy)
            failing = wrong[role] | apart & valid
            self.found.failing[role].add(
                self.bank, self.policy, judged, width, logits, ids, weights, failing
            )
        self.found.experts.rows[width] += int(np.count_nonzero(valid))
        same = (comparison.sets.set_class < SET_CODE[SetClass.EXACT_TIE]) & valid
        same &= comparison.weight_ulp <= self.policy.weight_budget_ulp
        echo = find.oracle_echo(same, wrong[BASELINE], wrong[CANDIDATE])
        text = "both paths agree and both differ from the reference beyond the window"
        self.log.note(find.Finding.ORACLE_ECHO, "both", width, echo, text)
        self._permuted(width, comparison, a.ids[rank], b.ids[rank])

    def findings(self) -> list[BatchFinding]:
        """Return what was found, with the causes that explain wrong rows."""
        self._expert_counts()
        found = self.log.findings()
        told = [
            rows.explained(self.bank, self.log.labels[role], role)
            for role, rows in self.found.failing.items()
        ]
        self.explained = [one for one in told if one is not None]
        for one in self.explained:
            found += one.findings()
        return found

    def _apart(self, comparison: RowComparison, wrong: dict[str, Bools]) -> Bools:
        """Rows on which the paths are too far apart, though neither is wrong by the reference."""
        apart = np.isin(comparison.sets.set_class, FAR)
        apart |= comparison.weight_ulp > self.policy.weight_budget_ulp
        return np.asarray(apart & ~wrong[BASELINE] & ~wrong[CANDIDATE])

    def _unwritten(
        self, role: str, width: int, tensor: str, array: npt.NDArray[Any], start: int
    ) -> None:
        left = poisoned_rows(array, 0)
        if left.any():
            first = start + int(np.flatnonzero(left)[0])
            text = f"{tensor} holds poison that the path did not overwrite, first at row {first}"
            self.log.note(find.Finding.UNWRITTEN_ROWS, role, width, left, text, tensor=tensor)

    def _ranks(self, role: str, width: int, tensor: str, array: npt.NDArray[Any]) -> None:
        if all(same_bits(array[rank], array[0]) for rank in range(1, len(array))):
            return
        differs = (bits(array) != bits(array[:1])).any(axis=2)
        ranks = ", ".join(str(r) for r in np.flatnonzero(differs.any(axis=1)))
        text = f"{tensor} of rank {ranks} differs from rank 0"
        self.log.note(
            find.Finding.RANK_DISAGREEMENT, role, width, differs.any(axis=0), text, tensor=tensor
        )

    def _other_slots(
        self,
        judged: JudgedBlock,
        role: str,
        width: int,
        comparison: RowComparison,
        out: Routed,
        rank: int,
    ) -> None:
        flagged = np.flatnonzero(
            (comparison.flags[role] & np.uint16(RowFlag.WEIGHTS_NOT_FROM_IDS)) != 0
        )
        if not flagged.size:
            return
        rule = rule_weights(
            out.ids[rank][flagged], judged.selection.scores[flagged], self.bank.scoring
        )
        moved = np.zeros(len(judged.logits), np.bool_)
        moved[flagged] = find.other_slots(
            out.weights[rank][flagged], rule, self.policy.weight_budget_ulp
        )
        text = "weights are right for the ids, but lie in other slots"
        self.log.note(find.Finding.WEIGHTS_IN_OTHER_SLOTS, role, width, moved, text)

    def _wrong(
        self,
        judged: JudgedBlock,
        width: int,
        comparison: RowComparison,
        role: str,
        ids: npt.NDArray[np.int32],
    ) -> Bools:
        """Rows with a set beyond the window of the reference's, or weights that do not follow."""
        selection, policy = judged.selection, self.policy
        wrong = (comparison.flags[role] & int(RowFlag.WEIGHTS_NOT_FROM_IDS)) != 0
        other = np.flatnonzero(~find.same_as_expected(ids, selection.ids))
        if other.size:
            group_keys = selection.group_keys
            sets = classify_sets(
                selection.ids[other],
                ids[other],
                selection.keys[other],
                window_ulp=policy.window_ulp,
                noise_abs=policy.noise_abs,
                invalid=comparison.breach[role][other] != 0,
                group_keys=None if group_keys is None else group_keys[other],
                groups=self.bank.geometry.groups,
            )
            wrong[other] |= np.isin(sets.set_class, FAR)
            self._count_gaps(width, role, sets)
        return np.asarray(wrong)

    def _count_gaps(self, width: int, role: str, sets: SetDifferences) -> None:
        """Count what another window would judge otherwise; ties of any kind are at gap 0."""
        kind = sets.set_class[sets.rows]
        gap = np.where(sets.n_swapped == 1, sets.gap_ulp, -1)
        gap[np.isin(kind, [SET_CODE[k] for k in _TIES])] = 0
        counts = self.found.counts.reference_gaps.setdefault(width, {}).setdefault(role, Counter())
        counts.update(step_bins(gap[gap >= 0]))
        if (gap < 0).any():
            counts[-1] += int(np.count_nonzero(gap < 0))

    def _stale(
        self,
        judged: JudgedBlock,
        role: str,
        width: int,
        rank: int,
        wrong: Bools,
        out: Routed,
        other: Routed,
    ) -> None:
        inputs = judged.block.hidden if judged.block.hidden is not None else judged.logits
        if wrong.any():
            ids, weights = out.ids[rank], out.weights[rank]
            stale = find.stale_output(ids, weights, np.asarray(inputs), wrong, width)
            # What lay there before may never have been in this path's own outputs.
            stale |= wrong & find.repeats_expected(
                ids, weights, other.ids[rank], other.weights[rank], width
            )
            text = "ids and weights repeat the same place of the launch before"
            self.log.note(find.Finding.STALE_OUTPUT, role, width, stale, text)

    def _tail(self, role: str, width: int, wrong: Bools, start: int) -> None:
        """Wrong rows that sit at the end of every full launch: never written there."""
        full = len(wrong) // width * width
        # A misread layout gets worse from row to row too, and is the better explanation.
        if not wrong.any() or not full or self._places.explain(role, width):
            return
        places = wrong[:full].reshape(-1, width)
        tail = find.unwritten_rows(np.asarray(places.any(axis=0)))
        if tail is not None and places[:, tail.first :].all():
            text = f"every launch is wrong from its row {tail.first} on"
            self.log.note(find.Finding.UNWRITTEN_ROWS, role, width, wrong, text)

    def _count_experts(self, role: str, width: int, ids: npt.NDArray[np.int32]) -> None:
        experts, chosen = self.bank.geometry.experts, self.found.experts.chosen
        counts = np.bincount(ids.ravel(), minlength=experts)[:experts]
        chosen[role, width] = chosen.get((role, width), 0) + counts

    def _expert_counts(self) -> None:
        """Experts that the candidate never chooses, or always."""
        counts, experts_all = self.found.experts, self.bank.geometry.experts
        mine, other = counts.of(CANDIDATE, experts_all), counts.of(BASELINE, experts_all)
        for kind, experts, words in (
            (
                find.Finding.NEVER_SELECTED,
                find.never_selected(other, mine),
                "that the baseline uses are never chosen",
            ),
            (
                find.Finding.ALWAYS_SELECTED,
                find.always_selected(other, mine, counts.rows.total()),
                "are chosen in every row, unlike by the baseline",
            ),
        ):
            if len(experts):
                text = f"{len(experts)} experts {words}: {_span(experts)}"
                self.log.note(kind, CANDIDATE, 0, np.ones(len(experts), np.bool_), text)

    def _permuted(
        self,
        width: int,
        comparison: RowComparison,
        ids_a: npt.NDArray[np.int32],
        ids_b: npt.NDArray[np.int32],
    ) -> None:
        far = np.isin(comparison.sets.set_class, FAR)
        if np.count_nonzero(far) < 2:
            return
        # A map moves an expert wherever it is chosen: rows with the baseline's own ids refute it.
        told = far | (comparison.sets.set_class == SET_CODE[SetClass.IDENTICAL])
        mapping = find.id_permutation(ids_a[told], ids_b[told])
        if mapping is not None:
            moved = [f"{a}->{b}" for a, b in mapping.items() if a != b]
            shown = ", ".join(moved[:4])
            text = f"one map of ids turns the baseline's selections into these: {shown}, ..."
            self.log.note(find.Finding.ID_PERMUTATION, CANDIDATE, width, far, text)


def _span(experts: npt.NDArray[np.int64]) -> str:
    contiguous = int(experts[-1] - experts[0]) == len(experts) - 1
    if contiguous and len(experts) > 1:
        return f"{experts[0]}..{experts[-1]}"
    return ", ".join(str(e) for e in experts[:8].tolist()) + (", ..." if len(experts) > 8 else "")
