"""``neartie gate``: two selects or paths over millions of rows."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

from ..banks.errors import InputError, printable
from ..banks.spec import integer
from .cli_options import Address, Engine, Json, Out, PlanOnly, PolicyFile, Work, count_of, widths_of
from .progress import Interrupted, progress_bar


def gate(
    source: Annotated[
        list[str] | None,
        typer.Argument(help="Generator, k3-mini, resample:..., directory; default: normal rows."),
    ] = None,
    baseline: Annotated[str, typer.Option(help="Select or path that exists.")] = "topk_sigmoid",
    candidate: Annotated[str, typer.Option(help="Select or path that would replace it.")] = "auto",
    rows: Annotated[str, typer.Option(help="Rows in all, such as 3.2M, or all.")] = "3.2M",
    widths: Annotated[str, typer.Option(help="Rows per launch, comma-separated.")] = "9,12,16,20",
    seed: Annotated[int, typer.Option(help="Of generated rows and of the sample.")] = 0,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes (default 1) or Ray tasks (all of the cluster) at a time; no number "
            "changes a bit."
        ),
    ] = None,
    engine: Engine = "local",
    address: Address = None,
    policy: PolicyFile = None,
    out: Out = None,
    work: Work = None,
    sample: Annotated[
        str | None, typer.Option(help="EVENTS/ROWS of a small sample, such as 1/960.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="cpu, or cuda: the GPU's own exp and tanh, or score=tanh.approx.")
    ] = "cpu",
    plan_only: PlanOnly = False,
    as_json: Json = False,
) -> None:
    """Run two selects or paths over millions of rows; every difference has a certificate."""
    from .evidence.write import check_apart, check_target, keeping
    from .gate.plan import DEFAULT_SOURCE
    from .gate.run import plan_gate, run_gate
    from .policy import load_policy
    from .report.gate import print_gate

    if out is not None:
        check_target(out)
        check_apart(out, work)
    options: dict[str, Any] = {
        "rows": None if rows == "all" else count_of(rows, "--rows"),
        "widths": widths_of(widths, "--widths"),
        "seed": seed,
        "policy": load_policy(policy),
        "workers": workers,
        "engine": engine,
        "address": address,
        "device": device,
    }
    if plan_only:
        told = plan_gate(baseline, candidate, source or DEFAULT_SOURCE, **options)
        print(json.dumps(told.as_dict(), indent=1) if as_json else told.text())
        return
    try:
        with progress_bar("gate") as advance:
            result = run_gate(
                baseline,
                candidate,
                source or DEFAULT_SOURCE,
                work=work,
                sample=_sample(sample),
                progress=advance,
                **options,
            )
    except KeyboardInterrupt:
        kept = f"finished shards are in {work}" if work else "nothing was kept (see --work)"
        raise Interrupted(kept) from None
    with keeping(out):
        if out is not None:
            result.write(out)
        if as_json:
            print(result.to_json())
        else:
            console = Console(width=None if sys.stdout.isatty() else 200)
            print_gate(result, console)
            total = result.record["pooled"]["observed"]["units"]
            reused = f", {result.reused_shards:,} shards reused" if result.reused_shards else ""
            print(f"{total:,} rows in {result.seconds:.1f} s{reused}", file=sys.stderr)
            if out is not None:
                print(f"evidence in {printable(out)}")
    raise typer.Exit(result.exit_status)


def _sample(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    events, slash, rows = text.partition("/")
    if not slash:
        raise InputError("sample", text, "EVENTS/ROWS, such as 1/960", "--sample")
    try:
        return integer(events), integer(rows)
    except ValueError:
        raise InputError("sample", text, "EVENTS/ROWS, such as 1/960", "--sample") from None
