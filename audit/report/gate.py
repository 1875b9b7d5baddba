"""What a gate shows: tables, terminal text and the Markdown of a pull request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from ..certificates import severity
from ..gate.record import GateRecord
from .figures import Table, certificate_text, class_line, set_table, weight_table
from .markdown import template
from .near_ties import near_tie_table, sample_text
from .terminal import print_reasons, print_tables

_CERTIFICATES_SHOWN = 5


def reference_table(record: Mapping[str, Any]) -> Table:
    """Return the sampled rows that the reference checked, by class and side."""
    found = record["pooled"]["reference"]
    rows = []
    for role in ("baseline", "candidate"):
        counts = ", ".join(f"{name} {count:,}" for name, count in found[role].items())
        rows.append((role, f"{found['sampled']:,}", counts))
    columns = ("side", "rows", "set against the reference")
    return Table("Random rows checked by the reference", columns, rows)


def swap_text(record: Mapping[str, Any]) -> str:
    """Return the swaps by kind, and how many are violations."""
    found = record["pooled"]
    if not found["swaps"]:
        return "no set differs"
    kinds = ", ".join(f"{name} {count:,}" for name, count in found["swaps"].items())
    return f"{kinds}; violations {found['violations']:,}"


def render_gate(result: GateRecord) -> str:
    """Return GitHub Markdown made from the record."""
    record = result.record
    worst = sorted(result.swaps.to_pylist(), key=severity, reverse=True)[:_CERTIFICATES_SHOWN]
    return template("gate.md.j2").render(
        record=record,
        class_line=class_line(record),
        tables=[t(record) for t in (set_table, near_tie_table, weight_table, reference_table)],
        swap_text=swap_text(record),
        sample_text=sample_text(record["sample"]),
        certificates=[{"text": certificate_text(c), "snippet": c["snippet"]} for c in worst],
        swaps=f"{result.swaps.num_rows:,}",
        not_run=[
            f"{item['bank']} at width {item['width']} ({item['reason']})"
            for item in record["coverage"]
            if not item["ran"]
        ],
    )


def print_gate(result: GateRecord, console: Console) -> None:
    """Print conditions, tables, the worst certificates, reasons, verdict and class."""
    record = result.record
    console.print(
        f"[bold]{escape(record['baseline']['spec'])}[/] (baseline) against "
        f"[bold]{escape(record['candidate']['spec'])}[/] (candidate), "
        f"{record['device']}, policy {escape(record['policy']['name'])}, "
        f"seed {record['plan']['seed']}, {record['plan']['shards']:,} shards"
    )
    print_tables(record, (set_table, near_tie_table, weight_table, reference_table), console)
    console.print(f"swaps  {swap_text(record)}")
    sample = sample_text(record["sample"])
    if sample:
        console.print(f"sample {escape(sample)}")
    worst = sorted(result.swaps.to_pylist(), key=severity, reverse=True)[:3]
    for certificate in worst:
        console.print(f"  {escape(certificate_text(certificate))}")
        console.print(f"    [dim]{escape(certificate['snippet'])}[/]")
    print_reasons(record, console)
