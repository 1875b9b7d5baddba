"""One chunk of a bank through both paths: launches, poison, replay, comparison, certificates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..banks.bank import NO_UNIT, Bank, RowBlock
from ..kernels.contract import CapturingPath, FrontWeights, Launch, Path, Routed
from ..kernels.scores import declared_forms
from .bank_outcome import ShardOutcome
from .certificates import Place, certificates
from .compare import BASELINE, CANDIDATE, RankRows, RowComparison, compare_rows
from .detect import Detector
from .graph_replay import REPLAY_ROUNDS, check_replay
from .judged import JudgedBlock
from .launching import (
    POISONS,
    PathError,
    alternating,
    first_rows,
    make_launch,
    run_path,
    same_bits,
    tensors,
)
from .metrics.swaps import boundary_counts
from .metrics.weights import step_bins
from .metrics.worst_weight import worst_weight
from .pairing import Pairing
from .rank_parts import aligned, distinct_ranks, rank_parts
from .tally import Tally, UnitKeys
from .value_judge import ValueJudge
from .value_table import PAIRS, Pair, Part

# Units of different banks must not meet in one set; no bank has this many rows.
UNIT_STRIDE = 1 << 40


@dataclass(frozen=True, eq=False)
class Compared:
    """Both paths' outputs at one width, and what comparing them said."""

    a: Routed
    b: Routed
    ranks: list[tuple[int, int, RowComparison]]
    weights: dict[Pair, dict[int, Part]]


class ChunkRun:
    """Runs the rows of one chunk at every width. Nothing of another chunk is known here."""

    def __init__(
        self,
        bank: Bank,
        number: int,
        pairing: Pairing,
        weights: FrontWeights,
        judged: JudgedBlock,
        found: ShardOutcome,
    ) -> None:
        self.bank, self.number, self.pairing = bank, number, pairing
        self.weights, self.judged, self.found = weights, judged, found
        self.outcome = found.counts
        self.detector = Detector(bank, pairing.paths, pairing.policy, found)
        self.value_judge = ValueJudge(
            pairing.paths, weights, pairing.ranks, found.log, found.latents
        )
        self._last: Compared | None = None

    def run(self, width: int) -> None:
        """Run one width; a path that raises ends it, and the width is no result."""
        try:
            self._width(width)
        except PathError as error:
            self.found.raised.setdefault(width, str(error))

    def rows(self) -> None:
        """Count what the rows are, whatever the paths do with them."""
        self._boundary()
        if self.judged.block.start == 0:
            self.outcome.control = self.judged.control

    def _width(self, width: int) -> None:
        block = self.judged.block
        launch = make_launch(self.bank, self.weights, block, width, self.pairing.ranks)
        a = self._outputs(self.pairing.baseline, launch, block.rows)
        b = self._outputs(self.pairing.candidate, launch, block.rows)
        if block.start == 0:
            self._replay(launch, a, b, block.rows)
        self.detector.batch(self.judged, width, a, b)
        self.value_judge.add(self.judged, width, a, b)
        self.outcome.not_compared |= self.value_judge.not_compared(a, b)
        self._bits(width, a, b)
        self._values(width, a, b)
        tally = self.outcome.tallies.setdefault(width, Tally())
        keys = self._unit_keys(block)
        compared = self._compared(a, b)
        self.outcome.values.add(width, "weights", compared.weights, self._units_of)
        for rank, replicas, comparison in compared.ranks:
            before = tally.worst_weight
            tally.add(self.bank.name, comparison, keys, rank, replicas)
            if tally.worst_weight is not None and tally.worst_weight is not before:
                row = tally.worst_weight.row - self.judged.block.start
                self._keep_worst_weight(width, rank, row, a, b)
            self._certify(width, rank, replicas, comparison, a, b)
            self.detector.rows(self.judged, width, rank, comparison, a, b)

    def _keep_worst_weight(self, width: int, rank: int, row: int, a: Routed, b: Routed) -> None:
        """Keep what the tables have no place for: slot, expert and both values."""
        found = worst_weight(
            b.ids[rank, row], b.weights[rank, row], a.ids[rank, row], a.weights[rank, row]
        )
        self.outcome.keep_worst(width, found)

    def _compared(self, a: Routed, b: Routed) -> Compared:
        """Compare the distinct ranks; outputs with the bits of the last width's are known."""
        last = self._last
        if last is not None and all(
            same_bits(x, y)
            for mine, other in ((a, last.a), (b, last.b))
            for (_, x), (_, y) in zip(tensors(mine), tensors(other), strict=True)
        ):
            return last
        distinct = distinct_ranks(a, b)
        weights = self._weight_parts([rank for rank, _ in distinct], a, b)
        ranks = [
            (
                rank,
                replicas,
                compare_rows(
                    self._rank_rows(self.pairing.baseline, a, rank),
                    self._rank_rows(self.pairing.candidate, b, rank),
                    self.judged,
                    self.bank.geometry,
                    self.bank.scoring,
                    self.pairing.policy,
                ),
            )
            for rank, replicas in distinct
        ]
        self._last = Compared(a, b, ranks, weights)
        return self._last

    def _rank_rows(self, path: Path, out: Routed, rank: int) -> RankRows:
        ids, logits = out.ids[rank], None if out.logits is None else out.logits[rank]
        forms = declared_forms(path.declared.score)
        return RankRows(
            ids, out.weights[rank], self.judged.logit_slack(out, rank, ids), forms, logits
        )

    def _outputs(self, path: Path, launch: Launch, rows: int) -> Routed:
        return first_rows(run_path(path, launch), rows)

    def _replay(self, launch: Launch, a: Routed, b: Routed, rows: int) -> None:
        """A against A: each path once more, over other poison; the same bits must come out."""
        self.outcome.replayed_rows += rows
        for role, path, first in (
            (BASELINE, self.pairing.baseline, a),
            (CANDIDATE, self.pairing.candidate, b),
        ):
            again = first_rows(run_path(path, launch, POISONS[1]), rows)
            self.detector.replay(role, launch.width, first, again)
            if isinstance(path, CapturingPath):
                self._graph_replay(role, path, launch)

    def _graph_replay(self, role: str, path: CapturingPath, launch: Launch) -> None:
        """What a path captures, replayed with alternating inputs, against its eager runs."""
        launches = alternating(launch)
        differences = check_replay(path, launches)
        if differences is not None:
            self.detector.graph_replay(role, launch.width, differences)
            self.outcome.graph_replays += len(launches) * REPLAY_ROUNDS

    def _bits(self, width: int, a: Routed, b: Routed) -> None:
        other = dict(tensors(b))
        equal = self.outcome.bits_equal.setdefault(width, {})
        for name, array in tensors(a):
            if name in other:
                equal[name] = equal.get(name, True) and same_bits(array, other[name])

    def _values(self, width: int, a: Routed, b: Routed) -> None:
        rows = np.arange(self.judged.block.rows, dtype=np.int64) + self.judged.block.start
        for tensor, exact in (("latent", self.judged.latent), ("logits", self.judged.logits)):
            x, y = getattr(a, tensor), getattr(b, tensor)
            sides: tuple[tuple[Pair, Any, Any], ...] = (
                ("candidate_reference", y, exact),
                ("baseline_reference", x, exact),
                ("candidate_baseline", y, x),
            )
            parts: dict[Pair, dict[int, Part]] = {
                pair: rank_parts(actual, expected, rows)
                for pair, actual, expected in sides
                if actual is not None and expected is not None
            }
            self.outcome.values.add(width, tensor, parts, self._units_of)

    def _weight_parts(self, ranks: list[int], a: Routed, b: Routed) -> dict[Pair, dict[int, Part]]:
        """Weights by expert id, on the rows where the pair's sets are equal."""
        exact = (self.judged.selection.ids, self.judged.selection.weights)
        parts: dict[Pair, dict[int, Part]] = {pair: {} for pair in PAIRS}
        for rank in ranks:
            mine, other = (b.ids[rank], b.weights[rank]), (a.ids[rank], a.weights[rank])
            parts["candidate_reference"][rank] = aligned(mine, exact, self.judged.block.start)
            parts["baseline_reference"][rank] = aligned(other, exact, self.judged.block.start)
            parts["candidate_baseline"][rank] = aligned(mine, other, self.judged.block.start)
        return parts

    def _certify(
        self,
        width: int,
        rank: int,
        replicas: int,
        comparison: RowComparison,
        a: Routed,
        b: Routed,
    ) -> None:
        pairing = self.pairing
        place = Place(
            self.bank.name,
            self.bank.spec,
            width,
            rank,
            replicas,
            pairing.ranks,
            pairing.specs[0] or pairing.baseline.name,
            pairing.specs[1] or pairing.candidate.name,
            self.judged.block.keys,
            self.judged.block.start,
            device=pairing.device,
        )
        self.outcome.certificates.extend(
            certificates(
                place,
                comparison,
                a.ids[rank],
                b.ids[rank],
                self.judged.selection,
                self.judged.logits,
            )
        )

    def _boundary(self) -> None:
        """Count the reference's own near ties, whether or not the paths differ on them."""
        gaps = self.judged.selection.boundary_ulp
        self.outcome.boundary.update(boundary_counts(gaps))
        self.outcome.boundary_ulp.update(step_bins(gaps[gaps >= 0]))

    def _units_of(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Units [row] that share a fate; rows that are no sample stand for themselves."""
        if self.bank.independence_unit in ("row", NO_UNIT):
            return rows
        block = self.judged.block
        return np.asarray(block.keys["unit"][rows - block.start], np.int64)

    def _unit_keys(self, block: RowBlock) -> UnitKeys:
        rows = np.arange(block.rows, dtype=np.int64) + block.start
        kind = self.bank.independence_unit
        unit = block.keys["unit"].astype(np.int64)
        return UnitKeys(rows, unit + self.number * UNIT_STRIDE, kind)
