"""What a gate shows: tables, terminal text and the Markdown of a pull request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from ..gate.record import GateRecord
from .figures import (
    Table,
    certificate_text,
    class_line,
    differences,
    not_run,
    set_table,
    weight_table,
    worst_certificates,
)
from .markdown import certificate_lines, render_cut
from .mechanism import mechanism
from .near_ties import near_tie_table, sample_text
from .shown import shown
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


def device_text(record: Mapping[str, Any]) -> str:
    """Return the device, with its name and versions where it is not the CPU."""
    facts = record["device_facts"]
    if facts is None:
        return str(record["device"])
    return (
        f"{record['device']} ({facts['device']}, driver {facts['driver']}, CUDA {facts['cuda']}, "
        f"Triton {facts['triton']})"
    )


def render_gate(result: GateRecord) -> str:
    """Return GitHub Markdown made from the record."""
    record = result.record
    worst = worst_certificates(result.swaps, _CERTIFICATES_SHOWN)
    context = {
        "record": record,
        "class_line": class_line(record),
        "mechanism": mechanism(record),
        "device_text": device_text(record),
        "tables": [t(record) for t in (set_table, near_tie_table, weight_table, reference_table)],
        "swap_text": swap_text(record),
        "sample_text": sample_text(record["sample"]),
        "certificates": certificate_lines(worst),
        "swaps": f"{result.swaps.num_rows:,}",
        "reasons": differences(record),
        "not_run": not_run(record),
    }
    return render_cut("gate.md.j2", context)


def print_gate(result: GateRecord, console: Console) -> None:
    """Print conditions, tables, the worst certificates, reasons, verdict and class."""
    record = result.record
    console.print(
        f"[bold]{shown(record['baseline']['spec'])}[/] (baseline) against "
        f"[bold]{shown(record['candidate']['spec'])}[/] (candidate), "
        f"{shown(device_text(record))}, policy {shown(record['policy']['name'])}, "
        f"seed {record['plan']['seed']}, {record['plan']['shards']:,} shards"
    )
    print_tables(record, (set_table, near_tie_table, weight_table, reference_table), console)
    console.print(f"swaps  {swap_text(record)}")
    sample = sample_text(record["sample"])
    if sample:
        console.print(f"sample {shown(sample)}")
    for certificate in worst_certificates(result.swaps, 3):
        console.print(f"  {shown(certificate_text(certificate))}")
        console.print(f"    [dim]{shown(certificate['snippet'])}[/]")
    print_reasons(record, console)
