"""``neartie bank``: look at banks, check them and make them; its other commands by their files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..banks.errors import printable
from .cli_bank_files import export, import_
from .cli_bank_rows import at_logits, compare, merge, sample, select, split
from .cli_bank_text import made

bank_app = typer.Typer(
    help="Look at banks, check them, make, import, export and cut them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Spec = Annotated[str, typer.Argument(help="Directory, URL, shipped bank or generator.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


@bank_app.command()
def info(bank: Spec, as_json: Json = False) -> None:
    """Show what a bank holds and where it comes from; a group shows each of its banks."""
    from ..banks.manage import bank_info
    from ..banks.open import expand_banks

    banks = expand_banks([bank])
    if as_json:
        described = [bank_info(one) for one in banks]
        print(json.dumps(described[0] if len(described) == 1 else described, indent=1))
        return
    for number, one in enumerate(banks):
        if number:
            print()
        # Names and provenance are the file's own words.
        lines = [(printable(label), printable(text)) for label, text in one.description()]
        width = max(len(label) for label, _ in lines)
        for label, text in lines:
            print(f"{label:<{width}}  {text}")


@bank_app.command()
def verify(bank: Spec, as_json: Json = False) -> None:
    """Check every file against its digest and read every row."""
    from ..banks.manage import verify_bank
    from ..banks.open import SHIPPED
    from ..banks.store import StoredBank

    checked = [verify_bank(name, _progress("verify")) for name in SHIPPED.get(bank, (bank,))]
    if as_json:
        print(json.dumps([{"name": b.name, "rows": b.rows, "digest": b.digest} for b in checked]))
        return
    for one in checked:
        if isinstance(one, StoredBank):
            name = printable(one.name)
            print(f"{name}: {one.rows:,} rows, sha256 {one.digest}: as recorded")
        else:
            print(
                f"{printable(one.name)}: generated: {one.rows:,} rows read, "
                f"digest of the spec sha256 {one.digest}"
            )


@bank_app.command()
def make(
    spec: Spec,
    directory: Annotated[Path, typer.Argument(help="A new or empty directory.")],
    as_json: Json = False,
) -> None:
    """Write the rows of a generator, or a copy of a bank, into a directory."""
    from ..banks.manage import make_bank

    digest = make_bank(spec, directory, _progress("make"))
    made(directory, digest, as_json)


def _progress(verb: str) -> Callable[[int, int], None]:
    """Return a callback that keeps one line on stderr, where that is a terminal."""
    console = Console(stderr=True)

    def show(done: int, total: int) -> None:
        if console.is_terminal:
            console.print(f"{verb}: {done:,} of {total:,} rows", end="\r" if done < total else "\n")

    return show


bank_app.command(name="import")(import_)
for _command in (export, select, sample, split, merge, at_logits, compare):
    bank_app.command()(_command)
