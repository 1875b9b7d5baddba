"""Options that several commands have, in the same words, and how their text is read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..banks.errors import InputError
from ..banks.spec import integer

Engine = Annotated[str, typer.Option(help="local: processes here; ray: a Ray cluster.")]
Address = Annotated[str | None, typer.Option(help="HOST:PORT of a Ray cluster that runs, or auto.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Out = Annotated[str | None, typer.Option(help="Write the evidence here: a directory or URL.")]
PlanOnly = Annotated[
    bool, typer.Option("--plan-only", help="Tell shards, bytes, time, memory; run nothing.")
]
PolicyFile = Annotated[Path | None, typer.Option(help="TOML file with limits.")]
Work = Annotated[
    str | None, typer.Option(help="Keep finished shards here; the next run goes on from it.")
]


def widths_of(text: str, option: str) -> list[int]:
    """Read widths, such as 9,12.

    Raises:
        InputError: they are no integers separated by commas.
    """
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        expected = "integers separated by commas"
        raise InputError(option.removeprefix("--"), text, expected, option) from None


def count_of(text: str, option: str) -> int:
    """Read a number of rows, such as 960, 60k or 3.2M.

    Raises:
        InputError: it is none.
    """
    try:
        return integer(text)
    except ValueError as error:
        raise InputError("rows", text, error, option) from None
