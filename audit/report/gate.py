"""What a gate shows: tables, terminal text and the Markdown of a pull request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from ..certificates import severity
from ..gate.result import GateResult
from .figures import Table, certificate_text, class_line, set_table, weight_table
from .markdown import template
from .terminal import print_reasons, rich_table

_CERTIFICATES_SHOWN = 5


def near_tie_table(record: Mapping[str, Any]) -> Table:
    """Return near ties, swaps, and the rate that margins predict beside the observed one."""
    window = record["policy"]["window_ulp"]
    confidence = record["policy"]["confidence"]
    columns = (
        "bank", "rows", f"within {window} ULP", "swaps", "swaps / near tie", "violations",
        "density at 0", "shift (std)", "predicted rate", "observed", f"at most ({confidence:.0%})",
        "answer",
    )  # fmt: skip
    lines = [(bank["name"], bank) for bank in record["banks"]]
    if len(lines) > 1:
        lines.append(("all", record["pooled"]))
    rows = []
    for name, found in lines:
        predicted, observed = found["prediction"], found["observed"]
        rows.append(
            (
                name,
                f"{observed['units']:,}",
                _rate(found["near_tie_rate"]),
                f"{sum(found['swaps'].values()):,}",
                _plain(found["swaps_per_near_tie_row"], ".3f"),
                f"{found['violations']:,}",
                _with_error(predicted["density"], predicted["density_error"], ".0f"),
                _rate(predicted["spread"]),
                _with_error(predicted["rate"], predicted["rate_error"], ".1e"),
                _rate(observed["rate"]),
                _rate(observed["upper"]),
                predicted["agreement"],
            )
        )
    return Table("Near ties (A's own keys) and the swap rate they predict", columns, rows)


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


def sample_text(record: Mapping[str, Any]) -> str | None:
    """Return what the small sample says beside the gate."""
    sample = record["sample"]
    if sample is None:
        return None
    answer = "contradicts the gate" if sample["contradicts"] else "does not contradict the gate"
    return (
        f"a sample of {sample['events']:,} in {sample['trials']:,} {answer}: "
        f"p = {sample['p_value']:.2g} (Fisher, two-sided), and p = {sample['p_at_bound']:.2g} for "
        f"so many at the gate's upper bound"
    )


def render_gate(result: GateResult) -> str:
    """Return GitHub Markdown made from the record."""
    record = result.record
    worst = sorted(result.swaps.to_pylist(), key=severity, reverse=True)[:_CERTIFICATES_SHOWN]
    return template("gate.md.j2").render(
        record=record,
        class_line=class_line(record),
        tables=[t(record) for t in (set_table, near_tie_table, weight_table, reference_table)],
        swap_text=swap_text(record),
        device_text=device_text(record),
        sample_text=sample_text(record),
        certificates=[{"text": certificate_text(c), "snippet": c["snippet"]} for c in worst],
        swaps=f"{result.swaps.num_rows:,}",
        not_run=[
            f"{item['bank']} at width {item['width']} ({item['reason']})"
            for item in record["coverage"]
            if not item["ran"]
        ],
    )


def print_gate(result: GateResult, console: Console) -> None:
    """Print conditions, tables, the worst certificates, reasons, verdict and class."""
    record = result.record
    console.print(
        f"[bold]{escape(record['baseline']['spec'])}[/] (baseline) against "
        f"[bold]{escape(record['candidate']['spec'])}[/] (candidate), "
        f"{escape(device_text(record))}, policy {escape(record['policy']['name'])}, "
        f"seed {record['plan']['seed']}, {record['plan']['shards']:,} shards"
    )
    for table in (set_table, near_tie_table, weight_table, reference_table):
        shown = table(record)
        if shown.rows:
            console.print(rich_table(shown))
    console.print(f"swaps  {swap_text(record)}")
    sample = sample_text(record)
    if sample:
        console.print(f"sample {escape(sample)}")
    worst = sorted(result.swaps.to_pylist(), key=severity, reverse=True)[:3]
    for certificate in worst:
        console.print(f"  {escape(certificate_text(certificate))}")
        console.print(f"    [dim]{escape(certificate['snippet'])}[/]")
    print_reasons(record, console)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.2e}"


def _plain(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _with_error(value: float | None, error: float | None, form: str) -> str:
    if value is None or error is None:
        return "-"
    return f"{value:{form}} +- {error:{form}}"
