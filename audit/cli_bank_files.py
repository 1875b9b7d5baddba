"""``neartie bank import|export``: banks from files of other formats, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..banks.errors import InputError, printable
from .cli_bank_text import (
    made,
    names_of,
    numbers_of,
    pair_of,
    print_left_out,
    rows_of,
    scoring_rule,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def import_(
    paths: Annotated[
        list[Path], typer.Argument(metavar="FILE... OUT", help="Files, and a new directory.")
    ],
    format_: Annotated[
        str | None, typer.Option("--format", help="Of the files; default: by their suffixes.")
    ] = None,
    geometry: Annotated[
        str | None, typer.Option(help="A preset such as k3, or experts=128,top_k=8[,groups=8...].")
    ] = None,
    tensor: Annotated[
        list[str] | None,
        typer.Option(help="BANK_NAME=FILE_NAME, such as logits=moe.gate.out; repeat it."),
    ] = None,
    stage: Annotated[
        str | None,
        typer.Option(help="hidden, partials, shards, logits or outputs; default: first."),
    ] = None,
    drop: Annotated[str, typer.Option(help="Tensors to leave out, comma-separated.")] = "",
    key: Annotated[str, typer.Option(help="More key columns, comma-separated.")] = "",
    name: Annotated[str | None, typer.Option(help="The bank's name; default: the file's.")] = None,
    layer: Annotated[int | None, typer.Option(help="Layer of the rows.")] = None,
    layers: Annotated[
        str | None, typer.Option(help="Layers to read of several, such as 3-60.")
    ] = None,
    model_layers: Annotated[
        int | None, typer.Option(help="Layers of the model, for ids without a shape.")
    ] = None,
    path_name: Annotated[
        str, typer.Option("--path", help="What to call the recorded outputs of a replay dump.")
    ] = "replay",
    workload: Annotated[str, typer.Option(help="Uuids of workloads, comma-separated.")] = "",
    scoring: Annotated[
        str | None, typer.Option(help="sigmoid, softmax, sqrtsoftplus or identity.")
    ] = None,
    scale: Annotated[float | None, typer.Option(help="Factor of the weights.")] = None,
    no_bias: Annotated[bool, typer.Option("--no-bias", help="The model has no bias.")] = False,
    unit: Annotated[
        str | None, typer.Option(help="What is independent: row, a key, or none.")
    ] = None,
    width: Annotated[
        list[str] | None, typer.Option(help="PATH=ROWS: rows per launch of recorded outputs.")
    ] = None,
    step_width: Annotated[int | None, typer.Option(help="Rows per launch of the inputs.")] = None,
    as_json: Json = False,
) -> None:
    """Turn files of recorded inputs and outputs into a bank.

    Formats: safetensors, npz, parquet, torch (weights_only), csv, replay (routing-replay ids),
    sglang (its dumper's directory), flashinfer-bench (a dataset). docs/banks.md has a recipe for
    each.
    """
    from ..banks.formats import import_files
    from ..banks.geometry import ScoringRule, parse_geometry
    from ..banks.importers.reading import Reading, Recording

    if len(paths) < 2:
        raise InputError("files", len(paths), "FILE... OUT: at least two names", "import")
    *files, out = paths
    sizes, rule = None, None
    if geometry is not None:
        sizes, rule = parse_geometry(geometry, name or out.name, "--geometry")
    rule = scoring_rule(rule or ScoringRule(), scoring, scale)
    reading = Reading(
        names=dict(pair_of(text, "--tensor") for text in tensor or ()),
        geometry=sizes,
        layers=None if layers is None else numbers_of(layers, "--layers"),
        keys=names_of(key),
        model_layers=model_layers,
        path=path_name,
        workloads=names_of(workload),
    )
    recording = Recording(
        name=name,
        layer=layer,
        widths={path: rows_of(text) for path, text in (pair_of(t, "--width") for t in width or ())},
        step_width=step_width,
        independence_unit=unit,
        zero_bias=no_bias,
        scoring=rule,
    )
    left_out: list[str] = []
    digest = import_files(
        files,
        out,
        format=format_,
        reading=reading,
        recording=recording,
        stage=stage,
        drop=names_of(drop),
        left_out=left_out.extend,
    )
    if left_out:
        print_left_out(left_out)
    made(out, digest, as_json, left_out=left_out)


def export(
    bank: Annotated[str, typer.Argument(help="Directory, URL, shipped bank or generator.")],
    target: Annotated[Path, typer.Argument(help="A new file, or a new or empty directory.")],
    format_: Annotated[
        str | None, typer.Option("--format", help="Default: by the suffix of the target.")
    ] = None,
    path_name: Annotated[
        str | None, typer.Option("--path", help="Which recorded ids a replay dump takes.")
    ] = None,
    model_layers: Annotated[
        int | None, typer.Option(help="Layers of the model, in a replay dump.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a bank as a file of another format; what a format cannot carry is refused."""
    from ..banks.exporters.writing import Writing
    from ..banks.formats import export_bank

    writing = Writing(path=path_name, model_layers=model_layers)
    found = export_bank(bank, target, format=format_, writing=writing)
    if as_json:
        print(json.dumps({"target": str(target), "format": found.name, "carries": found.carries}))
    else:
        print(f"{printable(str(target))}: {found.name}, {found.carries}")
