"""One bank through both paths: launches, poison, replay, comparison, certificates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..banks.bank import NO_UNIT, Bank, RowBlock
from ..kernels.contract import CapturingPath, Launch, Path, Routed
from ..kernels.scores import declared_forms
from .certificates import Place, certificates
from .compare import BASELINE, CANDIDATE, RankRows, RowComparison, compare_rows
from .detect import Detector
from .finding_log import FindingLog
from .graph_replay import REPLAY_ROUNDS, check_replay
from .judged import JudgedBlock, judge_block
from .launching import (
    POISONS,
    PathError,
    alternating,
    first_rows,
    front_weights,
    make_launch,
    refusal,
    run_path,
    same_bits,
    tensors,
)
from .metrics.swaps import boundary_counts
from .metrics.weights import step_bins
from .metrics.worst_weight import WorstWeight, worst_weight
from .observed import BatchFinding, Coverage, NotCompared, ScheduleFit
from .policy import Policy
from .rank_parts import aligned, distinct_ranks, rank_parts
from .tally import Tally, UnitKeys
from .value_judge import ValueJudge
from .value_table import PAIRS, Pair, Part, ValueTable

# Bounds the two paths' outputs of one chunk to some tens of megabytes each.
CHUNK_BYTES = 48 << 20
MAX_CHUNK_ROWS = 4096
# Units of different banks must not meet in one set; no bank has this many rows.
UNIT_STRIDE = 1 << 40


@dataclass(frozen=True)
class Pairing:
    """The two paths and the conditions that they are compared under."""

    baseline: Path
    candidate: Path
    widths: tuple[int, ...]
    ranks: int
    policy: Policy
    device: str = "cpu"
    specs: tuple[str | None, str | None] = (None, None)
    """What makes baseline and candidate again; None where only their names are known."""


@dataclass
class BankOutcome:
    """All that one bank contributes to an audit."""

    bank: str
    tallies: dict[int, Tally] = field(default_factory=dict)
    values: ValueTable = field(default_factory=lambda: ValueTable("", 1))
    certificates: list[dict[str, Any]] = field(default_factory=list)
    findings: list[BatchFinding] = field(default_factory=list)
    coverage: list[Coverage] = field(default_factory=list)
    boundary: Counter[str] = field(default_factory=Counter)
    boundary_ulp: Counter[int] = field(default_factory=Counter)
    reference_gaps: dict[int, dict[str, Counter[int]]] = field(default_factory=dict)
    tightest: dict[str, Any] | None = None
    bits_equal: dict[int, dict[str, bool]] = field(default_factory=dict)
    control: dict[str, float | None] = field(default_factory=dict)
    replayed_rows: int = 0
    graph_replays: int = 0
    """Replays of captured launches that were held against eager runs."""
    width_dependence: list[dict[str, Any]] = field(default_factory=list)
    explanations: list[dict[str, Any]] = field(default_factory=list)
    """Which hypotheses explain the failing rows of each path, see ``hypotheses.Explained``."""
    worst_weights: dict[int, WorstWeight] = field(default_factory=dict)
    """By width, the weight at the row that the tally calls the worst; the baseline is expected."""
    schedule: ScheduleFit | None = None
    not_compared: set[NotCompared] = field(default_factory=set)
    full_chain: bool = True
    """Whether the rows ran project and exchange too, and not the select alone."""
    independence_unit: str | None = None
    """The bank's own; None where the outcome's maker does not say."""
    row_units: list[npt.NDArray[np.int64]] = field(default_factory=list)
    """Independence unit of each row run, chunk by chunk; empty where errors are not resampled."""


@dataclass(frozen=True, eq=False)
class Compared:
    """Both paths' outputs at one width, and what comparing them said."""

    a: Routed
    b: Routed
    ranks: list[tuple[int, int, RowComparison]]
    weights: dict[Pair, dict[int, Part]]


class BankRun:
    """Runs one bank. Rows stream in chunks, so memory does not grow with the bank."""

    def __init__(self, bank: Bank, number: int, pairing: Pairing) -> None:
        self.bank, self.number, self.pairing = bank, number, pairing
        self.weights = front_weights(bank)
        paths = {BASELINE: pairing.baseline, CANDIDATE: pairing.candidate}
        labels = {role: f"{role} {path.name}" for role, path in paths.items()}
        self.log = FindingLog(bank.name, labels)
        self.detector = Detector(bank, paths, pairing.policy, self.log)
        self.value_judge = ValueJudge(paths, self.weights, pairing.ranks, self.log)
        self._last: Compared | None = None
        self._raised: set[int] = set()
        self.outcome = BankOutcome(
            bank.name,
            values=ValueTable(bank.name, pairing.ranks),
            full_chain=bank.stage != "logits",
            independence_unit=bank.independence_unit,
        )

    def run(self, progress: Callable[[int], None]) -> BankOutcome:
        """Return the bank's outcome; ``progress`` is told how many rows x widths are done."""
        widths = self._runnable_widths()
        step = chunk_rows(self.bank, self.pairing.ranks)
        for start in range(0, self.bank.rows, step) if widths else ():
            block = self.bank.read(start, min(start + step, self.bank.rows))
            judged = judge_block(self.bank, self.weights, block, with_control=start == 0)
            self._boundary(judged)
            self.outcome.row_units.append(self._units_to_resample(block))
            if start == 0:
                self.outcome.control = judged.control
            for width in [w for w in widths if w not in self._raised]:
                try:
                    self._width(judged, width)
                except PathError as error:
                    self._forget_width(width, str(error))
                progress(block.rows)
            self.detector.forget_chunk()
            self.value_judge.forget_chunk()
            self._last = None
        self.outcome.findings = self.detector.findings()
        self.outcome.explanations = [one.record() for one in self.detector.explained]
        self.outcome.reference_gaps = self.detector.reference_gaps
        self.outcome.width_dependence = self.detector.width_dependence.records()
        self.outcome.schedule = self.value_judge.result()
        self.outcome.not_compared = self.value_judge.not_compared
        return self.outcome

    def _forget_width(self, width: int, reason: str) -> None:
        """A path could not compute this width: what was counted of it is no result."""
        self._raised.add(width)
        outcome = self.outcome
        outcome.tallies.pop(width, None)
        outcome.worst_weights.pop(width, None)
        outcome.bits_equal.pop(width, None)
        self.detector.reference_gaps.pop(width, None)
        outcome.values.forget(width)
        outcome.certificates = [c for c in outcome.certificates if c["width"] != width]
        self.log.forget_width(width)
        self.detector.width_dependence.forget_width(width)
        outcome.coverage = [
            Coverage(c.bank, c.width, False, reason) if c.width == width else c
            for c in outcome.coverage
        ]

    def _runnable_widths(self) -> list[int]:
        """Ask both paths about every width first; what one refuses is recorded as not run."""
        widths = []
        for width in self.pairing.widths:
            reason = self._refusal(width)
            self.outcome.coverage.append(Coverage(self.bank.name, width, not reason, reason))
            if not reason:
                widths.append(width)
        return widths

    def _refusal(self, width: int) -> str:
        block = self.bank.read(0, min(width, self.bank.rows))
        launch = make_launch(self.bank, self.weights, block, width, self.pairing.ranks)
        return refusal((self.pairing.baseline, self.pairing.candidate), launch)

    def _width(self, judged: JudgedBlock, width: int) -> None:
        block = judged.block
        launch = make_launch(self.bank, self.weights, block, width, self.pairing.ranks)
        a = self._outputs(self.pairing.baseline, launch, block.rows)
        b = self._outputs(self.pairing.candidate, launch, block.rows)
        if block.start == 0:
            self._replay(launch, a, b, block.rows)
        self.detector.batch(judged, width, a, b)
        self.value_judge.add(judged, width, a, b)
        self._bits(width, a, b)
        self._values(judged, width, a, b)
        tally = self.outcome.tallies.setdefault(width, Tally())
        keys = self._unit_keys(block)
        compared = self._compared(judged, a, b)
        for pair, parts in compared.weights.items():
            self.outcome.values.of(width, "weights", pair).add(parts)
        for rank, replicas, comparison in compared.ranks:
            before = tally.worst_weight
            tally.add(self.bank.name, comparison, keys, rank, replicas)
            if tally.worst_weight is not None and tally.worst_weight is not before:
                row = tally.worst_weight.row - judged.block.start
                self._keep_worst_weight(width, rank, row, a, b)
            self._certify(judged, width, rank, replicas, comparison, a, b)
            self.detector.rows(judged, width, rank, comparison, a, b)

    def _keep_worst_weight(self, width: int, rank: int, row: int, a: Routed, b: Routed) -> None:
        """Keep what the tables have no place for: slot, expert and both values."""
        found = worst_weight(
            b.ids[rank, row], b.weights[rank, row], a.ids[rank, row], a.weights[rank, row]
        )
        if found is not None:
            self.outcome.worst_weights[width] = found

    def _compared(self, judged: JudgedBlock, a: Routed, b: Routed) -> Compared:
        """Compare the distinct ranks; outputs with the bits of the last width's are known."""
        last = self._last
        if last is not None and all(
            same_bits(x, y)
            for mine, other in ((a, last.a), (b, last.b))
            for (_, x), (_, y) in zip(tensors(mine), tensors(other), strict=True)
        ):
            return last
        distinct = distinct_ranks(a, b)
        weights = self._weight_parts(judged, [rank for rank, _ in distinct], a, b)
        ranks = [
            (
                rank,
                replicas,
                compare_rows(
                    self._rank_rows(judged, self.pairing.baseline, a, rank),
                    self._rank_rows(judged, self.pairing.candidate, b, rank),
                    judged,
                    self.bank.geometry,
                    self.bank.scoring,
                    self.pairing.policy,
                ),
            )
            for rank, replicas in distinct
        ]
        self._last = Compared(a, b, ranks, weights)
        return self._last

    def _rank_rows(self, judged: JudgedBlock, path: Path, out: Routed, rank: int) -> RankRows:
        ids, logits = out.ids[rank], None if out.logits is None else out.logits[rank]
        forms = declared_forms(path.declared.score)
        return RankRows(ids, out.weights[rank], judged.logit_slack(out, rank, ids), forms, logits)

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

    def _values(self, judged: JudgedBlock, width: int, a: Routed, b: Routed) -> None:
        rows = np.arange(judged.block.rows, dtype=np.int64) + judged.block.start
        for tensor, exact in (("latent", judged.latent), ("logits", judged.logits)):
            x, y = getattr(a, tensor), getattr(b, tensor)
            sides: tuple[tuple[Pair, Any, Any], ...] = (
                ("candidate_reference", y, exact),
                ("baseline_reference", x, exact),
                ("candidate_baseline", y, x),
            )
            for pair, actual, expected in sides:
                if actual is not None and expected is not None:
                    parts = rank_parts(actual, expected, rows)
                    self.outcome.values.of(width, tensor, pair).add(parts)

    def _weight_parts(
        self, judged: JudgedBlock, ranks: list[int], a: Routed, b: Routed
    ) -> dict[Pair, dict[int, Part]]:
        """Weights by expert id, on the rows where the pair's sets are equal."""
        exact = (judged.selection.ids, judged.selection.weights)
        parts: dict[Pair, dict[int, Part]] = {pair: {} for pair in PAIRS}
        for rank in ranks:
            mine, other = (b.ids[rank], b.weights[rank]), (a.ids[rank], a.weights[rank])
            parts["candidate_reference"][rank] = aligned(mine, exact, judged.block.start)
            parts["baseline_reference"][rank] = aligned(other, exact, judged.block.start)
            parts["candidate_baseline"][rank] = aligned(mine, other, judged.block.start)
        return parts

    def _certify(
        self,
        judged: JudgedBlock,
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
            judged.block.keys,
            judged.block.start,
            device=pairing.device,
        )
        self.outcome.certificates.extend(
            certificates(
                place, comparison, a.ids[rank], b.ids[rank], judged.selection, judged.logits
            )
        )

    def _boundary(self, judged: JudgedBlock) -> None:
        """Count the reference's own near ties, whether or not the paths differ on them."""
        gaps = judged.selection.boundary_ulp
        self.outcome.boundary.update(boundary_counts(gaps))
        self.outcome.boundary_ulp.update(step_bins(gaps[gaps >= 0]))

    def _units_to_resample(self, block: RowBlock) -> npt.NDArray[np.int64]:
        """Units [row] that share a fate; rows that are no sample stand for themselves."""
        if self.bank.independence_unit in ("row", NO_UNIT):
            return np.arange(block.start, block.start + block.rows, dtype=np.int64)
        return block.keys["unit"].astype(np.int64)

    def _unit_keys(self, block: RowBlock) -> UnitKeys:
        rows = np.arange(block.rows, dtype=np.int64) + block.start
        kind = self.bank.independence_unit
        unit = block.keys["unit"].astype(np.int64)
        return UnitKeys(rows, unit + self.number * UNIT_STRIDE, kind)


def chunk_rows(bank: Bank, ranks: int) -> int:
    """Rows per chunk that keep every rank's outputs within ``CHUNK_BYTES``."""
    geometry = bank.geometry
    if bank.stage == "logits":
        return MAX_CHUNK_ROWS
    per_row = ranks * (2 * geometry.latent + 4 * geometry.experts)
    return max(1, min(MAX_CHUNK_ROWS, CHUNK_BYTES // per_row))
