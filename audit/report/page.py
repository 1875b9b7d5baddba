"""What the HTML report of an audit or a gate says, before it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from .. import charts
from ..gate.record import GateRecord
from ..record import AuditRecord
from .explanations import explanation_table
from .figures import (
    Table,
    bank_table,
    claims_table,
    class_line,
    not_run,
    schedule_line,
    set_table,
    triangle_table,
    weight_table,
)
from .gate import reference_table, swap_text
from .mechanism import Mechanism, mechanism
from .near_ties import audit_gate_lines, audit_gate_table, near_tie_table, sample_text

Draw = Callable[[Mapping[str, Any], charts.Theme], charts.Chart | None]


@dataclass(frozen=True)
class Figure:
    """A chart with its heading and what a reader must know to read it.

    ``absent`` says why there may be nothing to draw; empty where other parts of the page say it.
    """

    title: str
    draw: Draw
    caption: str
    absent: str = ""


@dataclass(frozen=True)
class Page:
    """The content of one report.

    Attributes:
        kind: ``audit`` or ``gate``.
        record: what it is made from.
        swaps: certificates.
        names: role and name of both paths.
        facts: single figures under the verdict, as sentences.
        figures: the charts that may be drawn; one that has nothing to draw is left out, and what
            it says of that takes its place.
        tables: in reading order; an empty one is left out.
        beyond: what the report does not prove.
    """

    kind: str
    record: Mapping[str, Any]
    swaps: pa.Table
    names: tuple[str, str]
    facts: Sequence[str]
    figures: Sequence[Figure]
    tables: Sequence[Table]
    beyond: str

    @property
    def class_line(self) -> str:
        """The class as it is signed."""
        return class_line(self.record)

    @property
    def mechanism(self) -> Mechanism:
        """The change in plain words."""
        return mechanism(self.record)

    @property
    def not_run(self) -> list[str]:
        """What was not run, with reasons."""
        return not_run(self.record)


_TRIANGLE: Final = Figure(
    "Error triangle",
    charts.error_triangle,
    "Sides are relative RMS, drawn to scale; the angle at FP64 has the error correlation rho as "
    "its cosine. Tensors whose bits are equal on both paths have no triangle.",
)
_WEIGHTS: Final = Figure(
    "Expert weights",
    charts.weight_histogram,
    "Weights aligned by expert id on rows with equal sets, by distance in FP32 ULP; "
    "a bar per group of widths with the same figures.",
)
_RATES: Final = Figure(
    "Set rate against its limit",
    charts.set_rates,
    "Per width: the observed rate (dot, where sets differ) between its exact one-sided bounds; the "
    "tick is the upper bound, which must lie left of the limit.",
)
_AUDIT_MARGINS: Final = Figure(
    "Margins at the boundary",
    charts.margin_density,
    "Rows by the margin between slots K and K+1 of the reference, per ULP, whether or not the "
    "paths differ there. Figures on the bars are rows.",
)
_GATE_MARGINS: Final = Figure(
    "Margins at the boundary",
    charts.margin_density,
    "Rows by the margin between slots K and K+1 of the baseline's own keys, per ULP, up to 63 ULP.",
    "No margin chart: no row of the gate has a margin of 63 ULP or less.",
)

_STARTED_GATE_MARGINS: Final = Figure(
    "Margins at the boundary",
    charts.margin_density,
    "Rows of the near-tie gate by the margin between slots K and K+1 of the baseline's own keys, "
    "per ULP, up to 63 ULP.",
    _GATE_MARGINS.absent,
)
_AUDIT_TABLES: Final = (
    explanation_table, set_table, triangle_table, weight_table, audit_gate_table, bank_table,
    claims_table,
)  # fmt: skip


def audit_page(result: AuditRecord) -> Page:
    """Return the page of an audit."""
    record = result.record
    fit = schedule_line(record)
    return Page(
        kind="audit",
        record=record,
        swaps=result.swaps,
        names=(record["baseline"]["name"], record["candidate"]["name"]),
        facts=[*([fit] if fit else []), *audit_gate_lines(record)],
        figures=(_TRIANGLE, _RATES, _WEIGHTS, _margins(record)),
        tables=[t(record) for t in _AUDIT_TABLES],
        beyond="This compares the arithmetic that the paths declare or run over these rows; it "
        "proves nothing about speed, other inputs, or the model's quality.",
    )


def _margins(record: Mapping[str, Any]) -> Figure:
    """Margins of the rows that there are most of."""
    if record["gate"] is not None:
        return _STARTED_GATE_MARGINS
    why = (
        f"No margin chart: no near-tie gate was run ({record['no_gate']}), and no row of the banks "
        "was seen with a margin of 64 ULP or less."
    )
    return replace(_AUDIT_MARGINS, absent=why)


def gate_page(result: GateRecord) -> Page:
    """Return the page of a gate."""
    record = result.record
    facts = [f"swaps: {swap_text(record)}"]
    sample = sample_text(record["sample"])
    return Page(
        kind="gate",
        record=record,
        swaps=result.swaps,
        names=(record["baseline"]["spec"], record["candidate"]["spec"]),
        facts=[*facts, sample] if sample else facts,
        figures=(_RATES, _GATE_MARGINS, _WEIGHTS),
        tables=[t(record) for t in (set_table, near_tie_table, weight_table, reference_table)],
        beyond="This compares two selects' arithmetic over these rows; it proves nothing about "
        "speed, other inputs, or the model's quality.",
    )
