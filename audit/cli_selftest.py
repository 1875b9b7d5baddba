"""``neartie selftest``: known faults are planted, and the audit has to catch and name each."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer
from rich.console import Console

from ..banks.errors import InputError
from .progress import progress_bar

_MOST_WORKERS = 4


def selftest(
    widths: Annotated[str, typer.Option(help="Rows per launch, comma-separated.")] = "1,9,12,16,20",
    ranks: Annotated[str, typer.Option(help="Rank counts, comma-separated.")] = "1,4,8",
    only: Annotated[str | None, typer.Option(help="Plant this fault alone.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes; default: the cores, at most 4.")
    ] = None,
    catalogue: Annotated[
        bool, typer.Option("--list", help="Print the catalogue of faults and plant none.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout.")
    ] = False,
) -> None:
    """Plant known faults in a path and score how many the audit catches and rightly names."""
    from .selftest.run import selftest as run_selftest
    from .selftest.table import catalogue_markdown, print_score

    if catalogue:
        print(catalogue_markdown(), end="")
        return
    if workers is not None and workers < 1:
        raise InputError("workers", workers, "at least 1", "--workers")
    with progress_bar("self-test") as advance:
        score = run_selftest(
            widths=_numbers(widths, "widths"),
            ranks=_numbers(ranks, "ranks"),
            only=only,
            workers=workers or min(os.cpu_count() or 1, _MOST_WORKERS),
            progress=advance,
        )
    if as_json:
        print(json.dumps(score.as_dict(), indent=1))
    else:
        print_score(score, Console(width=None if sys.stdout.isatty() else 160, highlight=False))
        print(f"{len(score.results):,} audits in {score.seconds:.0f} s", file=sys.stderr)
    raise typer.Exit(score.exit_status)


def _numbers(text: str, option: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        expected = "integers separated by commas"
        raise InputError(option, text, expected, f"--{option}") from None
