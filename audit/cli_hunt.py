"""``neartie hunt``: rows on which two paths differ as the policy does not allow."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..banks.errors import InputError, printable
from .cli_options import count_of
from .progress import Interrupted, progress_bar


def hunt(
    baseline: Annotated[str, typer.Argument(help="The path that exists: a spec, module:Class.")],
    candidate: Annotated[str, typer.Argument(help="The path that would replace it.")],
    bank: Annotated[
        str | None, typer.Argument(help="Where real rows come from; default: k3-mini/layer0.")
    ] = None,
    geometry: Annotated[
        str | None, typer.Option(help="Preset or HxLxExK of generated rows instead of a bank.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="Of the search alone, see above; default: 60, or no limit with --rows."),
    ] = None,
    rows: Annotated[
        str | None, typer.Option(help="Rows to run, such as 200k; such a hunt repeats exactly.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the strategies' random numbers.")] = 0,
    width: Annotated[int, typer.Option(help="Rows per launch, 1..20.")] = 12,
    ranks: Annotated[int, typer.Option(help="Tensor-parallel ranks.")] = 1,
    policy: Annotated[Path | None, typer.Option(help="TOML file with limits.")] = None,
    tie_contract: Annotated[
        str | None, typer.Option(help="lower_id or unspecified; overrides the policy.")
    ] = None,
    only: Annotated[str | None, typer.Option(help="Strategies to use, comma-separated.")] = None,
    skip: Annotated[str | None, typer.Option(help="Strategies to leave out.")] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Spend the whole budget whatever is found.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write cases and pytest files here.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout.")
    ] = False,
) -> None:
    """Look for rows on which two paths differ as the policy does not allow; report the smallest.

    --seconds and --rows are spent on the search. What it finds is made smaller afterwards, which
    takes up to some seconds for each of the first findings.
    """
    from .evidence.write import check_target
    from .hunt.run import hunt as run_hunt
    from .policy import load_policy

    if out is not None:
        check_target(out)
    limits = load_policy(policy)
    if tie_contract is not None:
        if tie_contract not in ("lower_id", "unspecified"):
            raise InputError("tie_contract", tie_contract, "lower_id or unspecified", "hunt")
        limits = limits.model_copy(update={"tie_contract": tie_contract})
    with progress_bar("hunt") as advance:
        result = run_hunt(
            baseline,
            candidate,
            bank,
            geometry=geometry,
            seconds=seconds,
            rows=None if rows is None else count_of(rows, "--rows"),
            seed=seed,
            width=width,
            ranks=ranks,
            policy=limits,
            only=_names(only),
            skip=_names(skip),
            keep_going=keep_going,
            progress=advance,
            command=shlex.join(["neartie", *sys.argv[1:]]),
        )
    files = [] if out is None else result.write(out)
    if as_json:
        print(result.to_json())
    else:
        print(result.text())
        for file in files:
            print(f"written {printable(str(file))}")
    if result.interrupted and not result.found:
        raise Interrupted(f"nothing was found in {result.rows:,} rows")
    raise typer.Exit(result.exit_status)


def _names(text: str | None) -> tuple[str, ...]:
    return () if text is None else tuple(part.strip() for part in text.split(","))
