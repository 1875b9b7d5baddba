"""The report that a person reads in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from ..number_words import number_of
from ..record import AuditRecord
from .explanations import explanation_table
from .figures import (
    Table,
    bank_table,
    certificate_text,
    class_line,
    schedule_line,
    set_table,
    triangle_table,
    weight_table,
    worst_certificates,
)
from .near_ties import audit_gate_lines, audit_gate_table
from .shown import shown

_COLOURS = {
    "PASS": "bold green",
    "PASS_WITH_LIMITATIONS": "bold yellow",
    "FAIL": "bold red",
    "INCONCLUSIVE": "bold magenta",
    "NOT_RUN": "bold magenta",
}
_TEXT_COLUMNS = (
    "bank", "tensor", "stage", "unit", "worst at", "sha256", "hypothesis", "with",
)  # fmt: skip
_REASONS_SHOWN = 12
_CERTIFICATES_SHOWN = 3


def print_report(result: AuditRecord, console: Console) -> None:
    """Print conditions, tables, the worst certificates, reasons, verdict and class."""
    record = result.record
    console.print(
        f"[bold]{shown(record['baseline']['name'])}[/] (baseline) against "
        f"[bold]{shown(record['candidate']['name'])}[/] (candidate), "
        f"{number_of(record['ranks'], 'rank')}, {record['device']}, "
        f"policy {shown(record['policy']['name'])}"
    )
    tables = (
        bank_table, set_table, triangle_table, weight_table, audit_gate_table, explanation_table,
    )  # fmt: skip
    print_tables(record, tables, console)
    console.print()
    line = schedule_line(record)
    for text in ([line] if line is not None else []) + audit_gate_lines(record):
        console.print(shown(text))
    _certificates(result, console)
    print_reasons(record, console)


def print_tables(
    record: Mapping[str, Any],
    tables: Sequence[Callable[[Mapping[str, Any]], Table]],
    console: Console,
) -> None:
    """Print the tables that have rows, an empty line before each."""
    for table in tables:
        shown = table(record)
        if shown.rows:
            console.print()
            console.print(rich_table(shown))


def rich_table(table: Table) -> RichTable:
    """Return a table as rich draws it."""
    rich = RichTable(title=table.title, title_justify="left", title_style="bold", box=None)
    for number, column in enumerate(table.columns):
        text = number == 0 or column in _TEXT_COLUMNS
        rich.add_column(column, justify="left" if text else "right", no_wrap=number == 0)
    for row in table.rows:
        rich.add_row(*(shown(cell) for cell in row))
    return rich


def _certificates(result: AuditRecord, console: Console) -> None:
    total = result.swaps.num_rows
    if not total:
        return
    console.print(f"\n[bold]Worst certificates[/] ({_CERTIFICATES_SHOWN} at most of {total:,})")
    for certificate in worst_certificates(result.swaps, _CERTIFICATES_SHOWN):
        console.print(f"  {shown(certificate_text(certificate))}")
        console.print(f"    [dim]{shown(certificate['snippet'])}[/]")


def print_reasons(record: Mapping[str, Any], console: Console) -> None:
    """Print the reasons, failing ones first, then verdict and class."""
    reasons = record["verdict"]["reasons"]
    none = "Nothing fails, and nothing has to be disclosed."
    console.print("\n[bold]Reasons[/]" if reasons else f"\n{none}")
    order = list(_COLOURS)
    ranked = sorted(reasons, key=lambda r: order.index(r["state"]) != order.index("FAIL"))
    for reason in ranked[:_REASONS_SHOWN]:
        colour = _COLOURS[reason["state"]]
        console.print(f"  [{colour}]{reason['state']}[/] {shown(reason['text'])}")
    if len(ranked) > _REASONS_SHOWN:
        console.print(f"  and {len(ranked) - _REASONS_SHOWN} more (--json or --out shows all)")
    state = record["verdict"]["state"]
    console.print(f"verdict  [{_COLOURS[state]}]{state}[/]")
    console.print(f"class    [bold]{shown(class_line(record))}[/]")
