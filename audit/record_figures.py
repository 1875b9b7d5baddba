"""The part of ``audit.json`` that follows from the tables, the facts and the policy alone.

``run_audit`` makes it, and ``verify`` and ``report`` make it again from stored tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from .closer import Controls, ErrorTables
from .counts import Counts, Histograms, pooled_counts, pooled_triangles, read_counts
from .gate.auto_figures import gate_doubts, gate_section
from .observed import Observed, WidthSummary
from .policy import Policy
from .record import verdict_record
from .summary import Facts, summarise
from .verdict import Verdict, judge


def judge_tables(
    histograms: Histograms,
    values: pa.Table,
    facts: Facts,
    policy: Policy,
    gate: Mapping[str, Any] | None,
    unanswered: Sequence[str] = (),
    controls: Controls | None = None,
) -> tuple[Verdict, dict[str, Any]]:
    """Return the verdict, and the sections of ``audit.json`` that follow from the tables.

    Args:
        histograms: the counts.
        values: rows of ``VALUES_SCHEMA``.
        facts: what no table counts.
        policy: limits to judge by.
        gate: what is told of the gate that the audit started; None where there was none.
        unanswered: what the counts cannot say under this policy.
        controls: how far the FP32 reference is from the FP64 one, by bank and tensor.
    """
    section = None if gate is None else gate_section(gate, histograms, policy)
    doubts = [] if section is None else gate_doubts(section)
    observed = summarise(histograms, values, facts, policy, unanswered, doubts)
    verdict = judge(observed, policy)
    return verdict, {
        **verdict_record(verdict),
        "widths": _widths(histograms, values, observed, controls or {}),
        "gate": section,
    }


def bank_figures(
    histograms: Histograms,
    values: pa.Table,
    bank: str,
    widths: Sequence[int],
    controls: Controls | None = None,
) -> dict[str, Any]:
    """Return the counts of one bank, for its place in ``audit.json``."""
    found = {width: read_counts(histograms, bank, width) for width in widths}
    errors = ErrorTables(histograms, values, controls or {})
    return {
        "boundary": dict(histograms.named(bank, None, "boundary")),
        "per_width": {
            str(width): {
                "rows": counts.rows,
                "unique_rows": counts.unique_rows,
                "units": counts.units,
                "differing_units": counts.differing_units,
                "counts": {name: count for name, count in counts.counts.items() if count},
                "max_weight_ulp": counts.max_weight_ulp,
                "bits_equal": dict(counts.bits_equal),
                **_closer(errors, counts, bank, width),
            }
            for width, counts in found.items()
            if counts is not None
        },
    }


def _closer(errors: ErrorTables, counts: Counts, bank: str, width: int) -> dict[str, Any]:
    """A bank's own answers; evidence that keeps no groups of errors has none by bank."""
    found = errors.figures(counts, width, [bank])
    known = {tensor: one for tensor, one in found.items() if "ratio" in one}
    return {"closer_to_reference": known} if known else {}


def _widths(
    histograms: Histograms, values: pa.Table, observed: Observed, controls: Controls
) -> list[dict[str, Any]]:
    triangles = pooled_triangles(values)
    errors = ErrorTables(histograms, values, controls)
    return [_width(histograms, errors, triangles.get(w.width, {}), w) for w in observed.widths]


def _width(
    histograms: Histograms,
    errors: ErrorTables,
    triangle: Mapping[str, Any],
    summary: WidthSummary,
) -> dict[str, Any]:
    counts = pooled_counts(histograms, summary.width)
    worst = counts.worst_weight
    return {
        **asdict(summary),
        "invalid": summary.counts["invalid"],
        "triangle": triangle,
        "closer_to_reference": errors.figures(counts, summary.width),
        "weight_ulp_histogram": {str(s): counts.weight_ulp[s] for s in sorted(counts.weight_ulp)},
        "worst_weight": asdict(worst) if worst else None,
        "input_flags": dict(counts.input_flags),
    }
