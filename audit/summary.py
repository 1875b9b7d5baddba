"""Make what a verdict looks at, one summary per width, from the tables of an audit or a gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from .bank_outcome import BankOutcome
from .compare import BASELINE, CANDIDATE
from .counts import Counts, Histograms, pooled_counts, pooled_triangles
from .metrics.rates import at_most_p_value, holm, upper_bound
from .metrics.swaps import SET_CLASSES
from .observed import (
    BatchFinding,
    Conditions,
    Coverage,
    NotCompared,
    Observed,
    ScheduleFit,
    WidthSummary,
)
from .policy import Policy


@dataclass(frozen=True)
class Facts:
    """What an audit saw that no table counts; the record carries it under the same names."""

    coverage: Sequence[Coverage]
    findings: Sequence[BatchFinding]
    schedule: ScheduleFit | None
    limitations: Sequence[str]
    not_compared: Sequence[NotCompared] = ()
    conditions: Conditions | None = None
    """Of an audit; its record has them as ``ranks`` and ``device``."""

    @property
    def widths(self) -> list[int]:
        """Widths that were asked for, in order."""
        return list(dict.fromkeys(item.width for item in self.coverage))

    def as_record(self) -> dict[str, Any]:
        """Return the sections that a record carries, JSON values."""
        return {name: value for name, value in asdict(self).items() if name != "conditions"}


def facts_of(
    outcomes: Sequence[BankOutcome],
    limitations: Sequence[str],
    conditions: Conditions | None = None,
) -> Facts:
    """Return the facts of all banks."""
    missing = {item for outcome in outcomes for item in outcome.not_compared}
    return Facts(
        [item for outcome in outcomes for item in outcome.coverage],
        [finding for outcome in outcomes for finding in outcome.findings],
        _schedule(outcomes),
        list(limitations),
        sorted(missing, key=lambda item: (item.tensor, item.path)),
        conditions,
    )


def summarise(
    histograms: Histograms,
    values: pa.Table | None,
    facts: Facts,
    policy: Policy,
    unanswered: Sequence[str] = (),
    doubts: Sequence[str] = (),
) -> Observed:
    """Return what the verdict looks at.

    A bound is certified by Holm's step-down over the widths: the least certain width must hold at
    alpha / widths (Holm, Scand. J. Statistics 6, 1979).

    Args:
        histograms: the counts.
        values: rows of ``VALUES_SCHEMA``; None for a gate, which compares no values.
        facts: what no table counts.
        policy: limits to judge by.
        unanswered: what the counts cannot say under this policy.
        doubts: why rows that bound a rate may not stand for those that were recorded.
    """
    unit = policy.independence_unit
    pooled = {width: pooled_counts(histograms, width, unit=unit) for width in facts.widths}
    p_values = [
        at_most_p_value(c.rate_differing, c.rate_units, policy.set_rate) for c in pooled.values()
    ]
    certified = holm(p_values, 1 - policy.confidence) if p_values else []
    triangles = {} if values is None else pooled_triangles(values)
    summaries = [
        _width_summary(width, counts, held, triangles.get(width, {}), policy)
        for (width, counts), held in zip(pooled.items(), certified, strict=True)
        if counts.rows
    ]
    return Observed(
        summaries,
        facts.findings,
        facts.coverage,
        facts.schedule,
        facts.limitations,
        facts.not_compared,
        doubts,
        facts.conditions,
        unanswered,
        _uncounted(histograms, unit),
    )


def _uncounted(histograms: Histograms, unit: str | None) -> list[str]:
    """What is said of banks whose rows bound no rate, because a policy asks for another unit."""
    units = histograms.units()
    others = [mine for mine in units.values() if unit is not None and mine != unit]
    if not others:
        return []
    return [
        f"{len(others)} of {len(units)} banks bound no rate: the policy asks for the independence "
        f"unit {unit}, theirs is {', '.join(sorted(set(others)))}"
    ]


def _width_summary(
    width: int,
    counts: Counts,
    certified: bool,
    triangle: Mapping[str, Mapping[str, Any]],
    policy: Policy,
) -> WidthSummary:
    differing, units = counts.rate_differing, counts.rate_units
    return WidthSummary(
        width=width,
        rows=counts.rows,
        unique_rows=counts.unique_rows,
        units=units,
        differing_units=differing,
        counts={str(c): counts.counts[str(c)] for c in SET_CLASSES},
        set_rate=differing / units if units else None,
        set_rate_upper=upper_bound(differing, units, policy.confidence),
        certified=certified,
        confidence=policy.confidence,
        max_weight_ulp=counts.max_weight_ulp,
        weight_classes=dict(counts.weight_classes),
        flags={role: dict(counts.flags[role]) for role in (BASELINE, CANDIDATE)},
        breaches={role: dict(counts.breaches[role]) for role in (BASELINE, CANDIDATE)},
        bits_equal=dict(counts.bits_equal),
        rho=triangle.get("latent", {}).get("rho"),
    )


def _schedule(outcomes: Sequence[BankOutcome]) -> ScheduleFit | None:
    """The fit of the bank that fits worst; a bank that could not be judged outranks the rest."""
    fits = [outcome.schedule for outcome in outcomes if outcome.schedule is not None]
    if not fits:
        return None
    order = {False: 0, None: 1, True: 2}
    return min(fits, key=lambda fit: (order[fit.fits], -(fit.distance or 0.0)))
