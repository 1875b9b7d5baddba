"""A bench as a table beside the sign-off's figures, with what is and is not comparable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from .run import WHAT


def print_bench(record: Mapping[str, Any], console: Console) -> None:
    """Print the bench; a row that was refused or not run has no time."""
    console.print(f"{_heading(record)}\n")
    console.print(_table(record["rows"], record["signoff"]["saved_us"]))
    for line in (*_reasons(record["rows"]), *_comparable(record)):
        console.print(line)


def _heading(record: Mapping[str, Any]) -> str:
    devices = record["machine"].get("devices") or []
    on = f" ({', '.join(dict.fromkeys(devices))})" if devices else ""
    method = record["method"]
    return (
        f"{WHAT}: exchange and select, {record['geometry']}, {record['ranks']} ranks, "
        f"{record['device']}{on}; slowest rank, median of {method['blocks']} or more blocks x "
        f"{method['replays']} replays of {method['steps']} steps"
    )


def _table(rows: Sequence[Mapping[str, Any]], signoff: Mapping[str, float]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("rows", "baseline", "candidate", "state"):
        table.add_column(name, no_wrap=True)
    for name in ("baseline us", "candidate us", "saved us", "sign-off saved us"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            str(row["width"]),
            row["baseline"],
            row["candidate"],
            row["state"],
            *_times(row, signoff),
        )
    return table


def _times(row: Mapping[str, Any], signoff: Mapping[str, float]) -> list[str]:
    if row["state"] != "MEASURED":
        return ["-"] * 4
    sides = [f"{row[side]['median_us']:.2f}" for side in ("baseline_us", "candidate_us")]
    push = "transport=push" in row["candidate"] and "row_blocks" not in row["candidate"]
    stated = signoff.get(str(row["width"])) if push else None
    return [*sides, f"{row['saved_us']:+.2f}", "-" if stated is None else f"{stated:.2f}"]


def _reasons(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["state"] != "MEASURED":
            key = row["state"], row["reason"]
            reasons.setdefault(key, []).append(f"{row['candidate']} at {row['width']}")
    yield ""
    for (state, reason), places in reasons.items():
        yield f"{state} {reason} [{len(places)} of {len(rows)}: {places[0]}, ...]"


def _comparable(record: Mapping[str, Any]) -> Iterator[str]:
    if record["device"] != "cuda":
        yield "Processes on a CPU: this tries the method out and says nothing about a GPU."
        return
    yield (
        "The sign-off's figures are of eight GPUs over PCIe, with its own kernels: comparable are "
        "the method and the sign of what is saved; not comparable are the times, which depend on "
        "ranks, links and kernels."
    )
    yield "Both arms use the same top-k kernel, so what is saved is the exchange's share alone."
