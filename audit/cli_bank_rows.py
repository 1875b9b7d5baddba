"""``neartie bank select|sample|split|merge|compare|at-logits``: banks of the rows of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from .cli_bank_text import made, names_of

Spec = Annotated[str, typer.Argument(help="Directory, URL, shipped bank or generator.")]
Out = Annotated[Path, typer.Argument(help="A new or empty directory.")]
Name = Annotated[str | None, typer.Option(help="The new bank's name; default: the directory's.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def select(
    bank: Spec,
    directory: Out,
    rows: Annotated[str | None, typer.Option(help="Row numbers from 0, such as 0-99,200.")] = None,
    layers: Annotated[str | None, typer.Option(help="Layers, such as 3-5.")] = None,
    steps: Annotated[str | None, typer.Option(help="Steps.")] = None,
    ranks: Annotated[str | None, typer.Option(help="Ranks.")] = None,
    where: Annotated[
        str | None, typer.Option(help="A condition on keys: 'doc in (1, 4) and step < 10'.")
    ] = None,
    drop: Annotated[
        str, typer.Option(help="recorded.NAME and other tensors to leave out, comma-separated.")
    ] = "",
    name: Name = None,
    as_json: Json = False,
) -> None:
    """Write the rows that meet every condition given."""
    from ..banks.open import open_bank
    from ..banks.row_filter import parse_ranges
    from ..banks.rows import Selection, select_rows

    given = {"rows": rows, "layers": layers, "steps": steps, "ranks": ranks}
    ranges = {n: None if text is None else parse_ranges(text, n) for n, text in given.items()}
    selection = Selection(**ranges, where=where, drop=names_of(drop))
    made(directory, select_rows(open_bank(bank), directory, selection, name), as_json)


def sample(
    bank: Spec,
    directory: Out,
    rows: Annotated[int, typer.Option(help="How many distinct rows.")],
    seed: Annotated[int, typer.Option(help="Of the draw; kept in the bank.")],
    name: Name = None,
    as_json: Json = False,
) -> None:
    """Write rows drawn at random."""
    from ..banks.open import open_bank
    from ..banks.rows import sample_rows

    made(directory, sample_rows(open_bank(bank), directory, rows, seed, name), as_json)


def split(
    bank: Spec,
    directory: Out,
    by: Annotated[str | None, typer.Option(help="A key: a bank for each value.")] = None,
    rows: Annotated[int | None, typer.Option(help="Or so many rows a bank.")] = None,
    as_json: Json = False,
) -> None:
    """Write a directory of banks, each a part of the rows."""
    from ..banks.open import open_bank
    from ..banks.rows import split_rows

    digests = split_rows(open_bank(bank), directory, by=by, rows=rows)
    if as_json:
        print(json.dumps({"directory": str(directory), "digests": digests}))
        return
    for part, digest in digests.items():
        made(directory / part, digest, as_json=False)


def merge(
    banks: Annotated[
        list[str], typer.Argument(metavar="BANK... OUT", help="Banks, and a new directory.")
    ],
    shift_steps: Annotated[
        bool, typer.Option("--shift-steps", help="Let each bank's steps follow the one before.")
    ] = False,
    join: Annotated[
        bool,
        typer.Option("--join", help="Put recorded outputs of the same rows side by side instead."),
    ] = False,
    on: Annotated[
        str, typer.Option(help="Keys by which --join matches rows.")
    ] = "layer,step,row,rank",
    name: Name = None,
    as_json: Json = False,
) -> None:
    """Write the rows of several banks of one front, or the outputs of one set of rows."""
    from ..banks.errors import InputError
    from ..banks.merge import join_outputs, merge_rows
    from ..banks.open import open_bank

    *specs, out = banks
    if join and shift_steps:
        raise InputError("shift-steps", "given", "absent with --join", "merge")
    opened = [open_bank(spec) for spec in specs]
    if join:
        digest = join_outputs(opened, out, on=names_of(on), name=name)
    else:
        digest = merge_rows(opened, out, shift_steps=shift_steps, name=name)
    made(Path(out), digest, as_json)


def at_logits(bank: Spec, directory: Out, name: Name = None, as_json: Json = False) -> None:
    """Write the same rows, starting at the logits that were recorded with them.

    For a gate that rounds its logits on purpose: what follows them is then judged on what it had.
    """
    from ..banks import restage
    from ..banks.open import open_bank

    made(directory, restage.at_logits(open_bank(bank), directory, name), as_json)


def compare(
    bank: Spec,
    baseline: Annotated[str, typer.Option(help="Recorded outputs of the bank.")],
    candidate: Annotated[str, typer.Option(help="Others of them.")],
    as_json: Json = False,
) -> None:
    """Count how two recorded outputs differ; this needs no inputs, and gives no class."""
    from ..banks.open import open_bank
    from .recorded_pair import compare_recorded, pair_lines

    pair = compare_recorded(open_bank(bank), baseline, candidate)
    if as_json:
        print(json.dumps(pair.as_dict(), indent=1))
    else:
        print("\n".join(pair_lines(pair)))
