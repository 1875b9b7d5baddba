"""``neartie bench``: component times of paths on real ranks."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ..banks.errors import InputError


def bench(
    launch: Annotated[
        int | None, typer.Option(help="Ranks, one process (and GPU) each; default: the GPUs here.")
    ] = None,
    rows: Annotated[str, typer.Option(help="Rows per step.")] = "1,8,9,12,16,20",
    transports: Annotated[
        str | None, typer.Option(help="Of the paired gather; default: push,pull,nccl.")
    ] = None,
    row_blocks: Annotated[str, typer.Option(help="Of push and pull.")] = "1,2",
    geometry: Annotated[str, typer.Option(help="A preset.")] = "k3",
    device: Annotated[
        str, typer.Option(help="cuda, or cpu to try the method out without a GPU.")
    ] = "cuda",
    replays: Annotated[int, typer.Option(help="Runs in a block.")] = 200,
    blocks: Annotated[int, typer.Option(help="Blocks of each arm.")] = 5,
    steps: Annotated[int, typer.Option(help="Steps in a run.")] = 8,
    rank_timeout: Annotated[
        float, typer.Option(help="Seconds after which a silent rank ends the bench.")
    ] = 60.0,
    out: Annotated[Path | None, typer.Option(help="Write the JSON record here.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout.")
    ] = False,
) -> None:
    """Time the general path against the route path: component time, not model speed."""
    from .bench.plan import make_bench
    from .bench.run import exit_status, run_bench
    from .bench.text import print_bench
    from .launch.audit import start_ranks
    from .launch.here import this_rank
    from .launch.settings import check_rank_timeout

    check_rank_timeout(rank_timeout)
    ranks = launch if launch is not None else _devices(device)
    plan = make_bench(
        geometry=geometry,
        ranks=ranks,
        device=device,
        widths=_integers("rows", rows),
        transports=None if transports is None else transports.split(","),
        row_blocks=_integers("row_blocks", row_blocks),
        replays=replays,
        blocks=blocks,
        steps=steps,
    )
    if out is not None and (out.exists() or not out.parent.is_dir()):
        raise InputError("out", out, "a new file in a directory that exists", "--out")
    status = start_ranks(ranks, device, rank_timeout)
    if status is not None:
        raise typer.Exit(status)
    record: dict[str, Any] = run_bench(plan, this_rank(), shlex.join(["neartie", *sys.argv[1:]]))
    text = json.dumps(record, indent=1)
    if out is not None:
        out.write_text(text + "\n", encoding="utf-8")
    if as_json:
        print(text)
    else:
        print_bench(record, Console(width=None if sys.stdout.isatty() else 180, highlight=False))
    raise typer.Exit(exit_status(record))


def _devices(device: str) -> int:
    """Ranks where none are named: the CUDA devices; two processes on a CPU."""
    import torch

    if device != "cuda":
        return 2
    return max(1, min(torch.cuda.device_count(), 16))


def _integers(what: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(what, text, "integers separated by commas", "bench") from None
