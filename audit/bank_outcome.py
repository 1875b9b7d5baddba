"""What one bank, or some of its rows, contributes to an audit: counts that merge in row order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .attribute import LatentSums
from .compare import BASELINE, CANDIDATE
from .finding_log import FindingLog
from .hypotheses import FailingRows
from .metrics.worst_weight import WorstWeight
from .observed import BatchFinding, Coverage, NotCompared, ScheduleFit
from .tally import Tally
from .value_table import ValueTable
from .width_dependence import WidthCounts

GapCounts = dict[int, dict[str, Counter[int]]]


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
    reference_gaps: GapCounts = field(default_factory=dict)
    """Rows by the gap of their set to the reference's, by width and path; -1: no gap."""
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

    def merge(self, other: BankOutcome) -> None:
        """Add the counts of later rows; what follows from all rows is not merged but made anew."""
        for width, tally in other.tallies.items():
            self._merge_tally(width, tally, other.worst_weights.get(width))
        self.values.merge(other.values)
        self.certificates += other.certificates
        self.boundary.update(other.boundary)
        self.boundary_ulp.update(other.boundary_ulp)
        for width, by_path in other.reference_gaps.items():
            for path, gaps in by_path.items():
                mine = self.reference_gaps.setdefault(width, {}).setdefault(path, Counter())
                mine.update(gaps)
        for width, tensors in other.bits_equal.items():
            equal = self.bits_equal.setdefault(width, {})
            for name, same in tensors.items():
                equal[name] = equal.get(name, True) and same
        self.control = self.control or other.control
        self.replayed_rows += other.replayed_rows
        self.graph_replays += other.graph_replays
        self.not_compared |= other.not_compared

    def _merge_tally(self, width: int, tally: Tally, worst: WorstWeight | None) -> None:
        mine = self.tallies.setdefault(width, Tally())
        before = mine.worst_weight
        mine.merge(tally)
        if mine.worst_weight is not before:
            self.keep_worst(width, worst)

    def keep_worst(self, width: int, worst: WorstWeight | None) -> None:
        """Keep the weight at the row that the tally now calls the worst; None where it has none."""
        if worst is None:
            self.worst_weights.pop(width, None)
        else:
            self.worst_weights[width] = worst

    def forget_width(self, width: int, reason: str) -> None:
        """A path could not compute this width: what was counted of it is no result."""
        for by_width in (self.tallies, self.worst_weights, self.bits_equal, self.reference_gaps):
            by_width.pop(width, None)
        self.values.forget(width)
        self.certificates = [c for c in self.certificates if c["width"] != width]
        self.coverage = [
            Coverage(c.bank, c.width, False, reason) if c.width == width else c
            for c in self.coverage
        ]


@dataclass
class ExpertCounts:
    """How often each path chose each expert.

    Attributes:
        chosen: [expert] int64 by (path, width), over valid (row, rank) pairs.
        rows: those pairs, by width.
    """

    chosen: dict[tuple[str, int], npt.NDArray[np.int64]] = field(default_factory=dict)
    rows: Counter[int] = field(default_factory=Counter)

    def merge(self, other: ExpertCounts) -> None:
        """Add other rows of the same bank."""
        for key, counts in other.chosen.items():
            self.chosen[key] = self.chosen[key] + counts if key in self.chosen else counts
        self.rows.update(other.rows)

    def forget_width(self, width: int) -> None:
        """Drop what was counted at a width that could not be finished."""
        self.chosen = {key: counts for key, counts in self.chosen.items() if key[1] != width}
        self.rows.pop(width, None)

    def of(self, path: str, experts: int) -> npt.NDArray[np.int64]:
        """Return [expert] int64 of one path over all widths."""
        counts = [c for (role, _), c in self.chosen.items() if role == path]
        return np.asarray(sum(counts, np.zeros(experts, np.int64)))


@dataclass
class ShardOutcome:
    """What one shard of an audit, a range of a bank's rows, gave; plain values.

    Shards merge in row order, and a bank's outcome follows from the merged one: so it has the same
    bits whoever ran the shards.

    Attributes:
        counts: the bank's outcome so far, without what follows from all of its rows.
        log: findings of rows.
        widths: the same rows at two widths.
        experts: how often each was chosen.
        failing: by path, the first rows that fail.
        latents: what judges the declared schedules.
        raised: by width, what a path raised there first.
    """

    counts: BankOutcome
    log: FindingLog
    widths: WidthCounts = field(default_factory=WidthCounts)
    experts: ExpertCounts = field(default_factory=ExpertCounts)
    failing: dict[str, FailingRows] = field(
        default_factory=lambda: {BASELINE: FailingRows(), CANDIDATE: FailingRows()}
    )
    latents: LatentSums = field(default_factory=LatentSums)
    raised: dict[int, str] = field(default_factory=dict)

    def merge(self, other: ShardOutcome, widths: Sequence[int]) -> None:
        """Add later rows of the same bank; ``widths`` are the audit's, in its order."""
        self.counts.merge(other.counts)
        self.log.merge(other.log)
        self.widths.merge(other.widths)
        self.experts.merge(other.experts)
        for path, rows in self.failing.items():
            rows.merge(other.failing[path], widths)
        self.latents.merge(other.latents)
        self.raised = {**other.raised, **self.raised}

    def forget_raised(self) -> None:
        """Drop every width that a path could not compute on some of the rows."""
        for width, reason in self.raised.items():
            self.counts.forget_width(width, reason)
            for part in (self.log, self.widths, self.experts, self.latents):
                part.forget_width(width)
            for rows in self.failing.values():
                rows.forget_width(width)
