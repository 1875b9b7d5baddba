"""What an audit saw, as the records that a verdict may look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchFinding:
    """Something that is true of a batch and not of one row alone.

    ``fails``: it ends the audit with FAIL; otherwise it is disclosed.
    """

    name: str
    path: str
    bank: str
    width: int
    rows: int
    text: str
    fails: bool = True


@dataclass(frozen=True, slots=True)
class Coverage:
    """Whether one (bank, width) was run, or why it was not."""

    bank: str
    width: int
    ran: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ScheduleFit:
    """How well the observed latent triangle fits the declared schedule.

    ``distance`` is the largest relative difference of a side of the pooled triangle from what the
    declared pair gives on the same rows; None where it is no number. ``fits`` is None where a path
    declares no schedule that could be predicted.
    """

    declared: str
    nearest: str
    distance: float | None
    tolerance: float | None
    fits: bool | None


@dataclass(frozen=True, slots=True)
class NotCompared:
    """A tensor that one path shows and the other does not: nothing was compared there."""

    tensor: str
    path: str


@dataclass(frozen=True, slots=True)
class Conditions:
    """What an audit ran its paths on."""

    ranks: int
    device: str


@dataclass(frozen=True)
class WidthSummary:
    """Counts of one width, pooled over the banks.

    ``counts`` are over (row, rank) pairs and sum to ``rows``; ``units`` and ``differing_units``
    are independent samples, and the only denominator that a bound may use.
    """

    width: int
    rows: int
    unique_rows: int
    units: int
    differing_units: int
    counts: Mapping[str, int]
    set_rate: float | None
    set_rate_upper: float
    certified: bool
    confidence: float
    max_weight_ulp: int | None
    weight_classes: Mapping[str, int]
    flags: Mapping[str, Mapping[str, int]]
    breaches: Mapping[str, Mapping[str, int]]
    bits_equal: Mapping[str, bool]
    rho: float | None


@dataclass(frozen=True)
class Observed:
    """All that a verdict may look at.

    ``doubts`` say why rows that bound a rate may not stand for those that were recorded.
    ``conditions`` is None for a gate: it runs one select, and no ranks of a front.
    ``unanswered``: questions of the policy that stored counts cannot answer; an audit has none.
    ``uncounted``: whose rows bound no rate, because the policy asks for another unit.
    """

    widths: Sequence[WidthSummary]
    findings: Sequence[BatchFinding]
    coverage: Sequence[Coverage]
    schedule: ScheduleFit | None
    limitations: Sequence[str] = ()
    not_compared: Sequence[NotCompared] = ()
    doubts: Sequence[str] = ()
    conditions: Conditions | None = None
    unanswered: Sequence[str] = ()
    uncounted: Sequence[str] = ()
