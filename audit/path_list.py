"""What ``neartie paths`` shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape

from ..kernels.registry import list_paths


def path_records() -> list[dict[str, Any]]:
    """Return every known path with its options and declared arithmetic, JSON values."""
    return [
        {
            **entry._asdict(),
            "options": {name: option._asdict() for name, option in entry.options.items()},
            "declared": None if entry.declared is None else asdict(entry.declared),
        }
        for entry in list_paths()
    ]


def print_paths(records: Sequence[dict[str, Any]], console: Console) -> None:
    """Print each path, its options, what it declares, and why it cannot run here."""
    for record in records:
        reason = record["unavailable"]
        state = "[green]runs here[/]" if reason is None else f"[red]cannot run:[/] {escape(reason)}"
        console.print(f"[bold]{escape(record['name'])}[/]  {state}  [dim]{record['origin']}[/]")
        console.print(f"  {escape(record['summary'])}")
        for option, choices in record["options"].items():
            console.print(f"  {option:<14} {escape(str(choices))}")
