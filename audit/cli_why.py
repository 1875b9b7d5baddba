"""``neartie why``: which schedule, which order, which stage."""

from __future__ import annotations

from typing import Annotated

import typer


def why(
    target: Annotated[
        str, typer.Argument(help="A bank as audit takes it, or an evidence directory.")
    ],
    baseline: Annotated[
        str | None, typer.Option(help="The path that exists; default: the evidence's, or general.")
    ] = None,
    candidate: Annotated[
        str | None,
        typer.Option(help="The path that would replace it; default: likewise, or route."),
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(help="Tensor-parallel ranks; default: the evidence's, or 8.")
    ] = None,
    width: Annotated[
        int | None, typer.Option(help="Rows per launch; default: the evidence's first, or 9.")
    ] = None,
    rows: Annotated[int, typer.Option(help="Rows of each bank, the first ones.")] = 48,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda; default: the evidence's, or cpu.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout.")
    ] = False,
) -> None:
    """Say why two paths differ: schedule, order of sums, stage, noise; what swaps move."""
    from .why.run import why as answer

    result = answer(
        target,
        baseline=baseline,
        candidate=candidate,
        ranks=ranks,
        width=width,
        rows=rows,
        device=device,
    )
    print(result.to_json() if as_json else result.text())
    raise typer.Exit(result.exit_status)
