"""What ``neartie paths`` shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.console import Console
from rich.markup import escape

from ..banks.errors import printable
from ..kernels.cuda.forms import DEVICE_FORMS
from ..kernels.cuda.lang import unavailable
from ..kernels.device_select import runs_on_device
from ..kernels.registry import list_paths

_DECLARED: Final = {
    "project": "project",
    "exchange": "exchange",
    "score": "score",
    "nonfinite": "non-finite",
    "weight_sum": "weight sum",
    "normalise": "normalise",
    "slot_order": "slot order",
}
"""What a listing shows of a declaration, by its labels."""


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
        console.print(
            f"[bold]{escape(_title(record))}[/]  {state}  [dim]{escape(record['origin'])}[/]"
        )
        console.print(f"  {escape(record['summary'])}", soft_wrap=True)
        for name, option in record["options"].items():
            console.print(f"  {escape(_option_text(name, option))}", soft_wrap=True)
        declared = record["declared"]
        if declared is not None:
            for field, label in _DECLARED.items():
                text = f"declares {label:<12} {printable(str(declared[field]))}"
                console.print(f"  {escape(text)}", soft_wrap=True)
    _print_device(console)


def _title(record: Mapping[str, Any]) -> str:
    """The path's name, and the option that it takes to have it where that is not the usual one."""
    name = str(record["name"])
    return name if record["device"] == "cpu" else f"{name} (--device {record['device']})"


def _print_device(console: Console) -> None:
    """Print which selects and score forms ``neartie gate --device cuda`` has, and why not here."""
    reason = unavailable()
    state = "[green]runs here[/]" if reason is None else f"[red]cannot run:[/] {escape(reason)}"
    console.print(f"[bold]neartie gate --device cuda[/]  {state}")
    named = [f"{name} ({form or 'with score=FORM'})" for name, form in runs_on_device().items()]
    console.print(f"  selects: {', '.join(named)}, auto", soft_wrap=True)
    for name, form in DEVICE_FORMS.items():
        console.print(f"  score={name}: {escape(form.steps)}", soft_wrap=True)


def _option_text(name: str, option: Mapping[str, Any]) -> str:
    if option["choices"] is not None:
        values = ", ".join(option["choices"])
    elif option["lowest"] is not None:
        values = f"a whole number from {option['lowest']} on"
    else:
        values = "any name"
    # An empty default is told by the words: what decides where the option is left out.
    default = f" = {option['default']}" if option["default"] else ""
    return printable(f"option {name}{default} ({values}): {option['words']}")
