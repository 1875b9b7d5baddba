"""The comparison of two evidence directories, as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from ..evidence.diff import EvidenceDiff
from ..evidence.diff_widths import WidthDiff
from .shown import shown

_RATE_TITLE: Final = (
    "Set rate: exact intervals; Newcombe's of the difference; one-sided p-value of growth"
)


def print_diff(diff: EvidenceDiff, console: Console) -> None:
    """Print what is alike, the figures side by side, and whether the second run is worse."""
    for label, run in (("first ", diff.first), ("second", diff.second)):
        name = f"{run.directory}  {run.date}  sha256 {run.digest[:12]}"
        console.print(shown(f"{label}  {name}  {run.verdict}  {run.numerics_class}"))
    rows = "the same rows" if diff.same_rows else "not the same rows: rates are compared alone"
    console.print(f"{diff.kind}s of {rows}")
    _lines(console, "not alike", diff.unlike)
    console.print()
    if diff.widths:
        console.print(_RATE_TITLE)
        console.print(_rate_table(diff.widths))
        console.print("Largest weight difference (FP32 ULP) and relative RMS, first > second")
        console.print(_figure_table(diff.widths))
    _print_certificates(diff, console)
    _lines(console, "new reasons", diff.new_reasons)
    _lines(console, "gone reasons", diff.gone_reasons)
    console.print()
    for worse in diff.worse:
        console.print(shown(f"  worse by {worse.rule}: {worse.text}"))
    state = "[red]worse[/]" if diff.worse else "[green]no worse[/]"
    console.print(f"second  {state}")


def _lines(console: Console, title: str, lines: Sequence[str]) -> None:
    if lines:
        console.print(f"{title}:")
    for line in lines:
        console.print(shown(f"  {line}"))


def _rate_table(widths: Sequence[WidthDiff]) -> Table:
    columns = ("width", "first", "interval", "second", "interval", "difference", "interval", "p")
    table = _table(columns)
    for diff in widths:
        rate = diff.rate
        test = "Fisher" if diff.paired_p is None else "McNemar"
        table.add_row(
            str(diff.width),
            _count(rate.first),
            _interval(rate.first_bounds),
            _count(rate.second),
            _interval(rate.second_bounds),
            "-" if rate.difference is None else f"{rate.difference:+.2e}",
            "-" if rate.difference_bounds is None else _interval(rate.difference_bounds),
            f"{diff.p_value:.2g} ({test}){', grew' if diff.rate_grew else ''}",
        )
    return table


def _figure_table(widths: Sequence[WidthDiff]) -> Table:
    table = _table(())
    tensors = list(dict.fromkeys(tensor for diff in widths for tensor in diff.triangle))
    for column in ("width", "weights", *(f"{tensor}, candidate - FP64" for tensor in tensors)):
        table.add_column(column, justify="right")
    for diff in widths:
        sides: Mapping[str, Mapping[str, tuple[float | None, float | None]]] = diff.triangle
        table.add_row(
            str(diff.width),
            " > ".join("-" if steps is None else f"{steps:,}" for steps in diff.max_weight_ulp),
            *(
                " > ".join(map(_figure, sides[tensor]["candidate_reference"]))
                if tensor in sides
                else "-"
                for tensor in tensors
            ),
        )
    return table


def _print_certificates(diff: EvidenceDiff, console: Console) -> None:
    found = diff.certificates
    counts = f"{found.new:,} new, {found.vanished:,} vanished, {found.changed:,} of another class"
    console.print(f"certificates (row, width, rank): {counts}")
    if found.transitions:
        first = list(dict.fromkeys(t.first for t in found.transitions))
        second = list(dict.fromkeys(t.second for t in found.transitions))
        console.print("Set class, first (down) to second (across)")
        table = _table(("", *second))
        cells = {(t.first, t.second): t.rows for t in found.transitions}
        for name in first:
            table.add_row(name, *(f"{cells.get((name, other), 0):,}" for other in second))
        console.print(table)
    for title, worst in (("new", found.worst_new), ("vanished", found.worst_vanished)):
        _lines(console, f"worst {title}", [_certificate(record) for record in worst])


def _certificate(record: Mapping[str, Any]) -> str:
    gap = "gap undefined" if record["gap_ulp"] is None else f"gap {record['gap_ulp']} ULP"
    where = f"{record['bank']} row {record['row']} width {record['width']} rank {record['rank']}"
    return f"{record['set_class']}: {where}: -{record['dropped']} +{record['added']}, {gap}"


def _table(columns: Sequence[str]) -> Table:
    table = Table(box=None, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _count(sample: tuple[int, int]) -> str:
    return f"{sample[0]:,} / {sample[1]:,}"


def _interval(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:.1e}..{bounds[1]:.1e}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3e}"
