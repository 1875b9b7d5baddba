"""``neartie audit``: two paths side by side."""

from __future__ import annotations

import json
import os
import shlex
import sys
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from ..banks.errors import InputError, printable
from .cli_options import Address, Engine, Json, Out, PlanOnly, PolicyFile, Work, widths_of
from .progress import Interrupted

# Each worker takes a fifth of a gigabyte and two seconds to start.
_MOST_WORKERS: Final = 4


def audit(
    banks: Annotated[
        list[str] | None,
        typer.Argument(help="Directory, URL, shipped bank or generator; default: k3-mini."),
    ] = None,
    baseline: Annotated[str, typer.Option(help="The path that exists.")] = "general",
    candidate: Annotated[str, typer.Option(help="The path that would replace it.")] = "route",
    rows: Annotated[str, typer.Option(help="Rows per launch, comma-separated.")] = "9,10,12,16,20",
    ranks: Annotated[
        int | None, typer.Option(help="Tensor-parallel ranks; default: 8, or those launched.")
    ] = None,
    launch: Annotated[
        int | None,
        typer.Option(help="Run the paths on so many real ranks, one process (and GPU) each."),
    ] = None,
    rank_timeout: Annotated[
        float, typer.Option(help="Seconds after which a silent rank ends the audit.")
    ] = 60.0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    engine: Engine = "local",
    address: Address = None,
    policy: PolicyFile = None,
    gate: Annotated[
        bool, typer.Option(help="Start the near-tie gate where the banks are too few rows.")
    ] = True,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes, or Ray tasks at a time; no number changes a bit. Default: the cores, "
            "or all of the cluster."
        ),
    ] = None,
    work: Work = None,
    claims: Annotated[
        str | None, typer.Option(help="Claims file to answer from this audit, or route-9-20.")
    ] = None,
    out: Out = None,
    plan_only: PlanOnly = False,
    as_json: Json = False,
) -> None:
    """Run two paths side by side over banks, widths and ranks, and judge the differences."""
    from .claims.load import load_claims
    from .claims.text import claims_text
    from .evidence.write import check_apart, check_target, keeping
    from .launch.settings import check_rank_timeout
    from .policy import load_policy
    from .progress import progress_bar
    from .report.terminal import print_report
    from .run import DEFAULT_RANKS, plan_audit, run_audit

    if out is not None:
        check_target(out)
        check_apart(out, work)
    check_rank_timeout(rank_timeout)
    if workers is None and engine == "local":
        workers = min(os.cpu_count() or 1, _MOST_WORKERS)
    asked: dict[str, Any] = {
        "rows": widths_of(rows, "--rows"),
        "ranks": next(n for n in (launch, ranks, DEFAULT_RANKS) if n is not None),
        "engine": engine,
        "address": address,
        "policy": load_policy(policy),
        "gate": gate,
        "workers": workers,
    }
    if plan_only:
        if device != "cpu" or launch is not None:
            raise InputError("--plan-only", "with a device or --launch", "on the CPU", "audit")
        named: dict[str, Any] = {"baseline": baseline, "candidate": candidate}
        told = plan_audit(banks or None, work=work, **named, **asked)
        print(json.dumps(told.as_dict(), indent=1) if as_json else told.text())
        return
    claimed = None if claims is None else load_claims(claims)
    paths, facts = (baseline, candidate), None
    if launch is not None:
        if work is not None:
            raise InputError("--work", work, "left out with --launch", "audit")
        with keeping(out):
            paths, facts = _launched((baseline, candidate), launch, ranks, device, rank_timeout)
    try:
        with progress_bar("rows x widths") as advance:
            result = run_audit(
                banks or None,
                baseline=paths[0],
                candidate=paths[1],
                work=work,
                launch=facts,
                device=device,
                claims=claimed,
                progress=advance,
                command=shlex.join(["neartie", *sys.argv[1:]]),
                **asked,
            )
    except KeyboardInterrupt:
        if work is None:
            raise
        raise Interrupted(f"finished shards are in {work}") from None
    with keeping(out):
        if out is not None:
            result.write(out)
        if as_json:
            print(result.to_json())
        else:
            print_report(result, _console())
            if "claims" in result.record:
                print(f"\n{claims_text(result.record['claims'])}\n")
            if out is not None:
                print(f"evidence in {printable(out)}")
    raise typer.Exit(result.exit_status)


def _launched(
    specs: tuple[str, str], size: int, ranks: int | None, device: str, timeout_s: float
) -> tuple[tuple[Any, Any], dict[str, Any]]:
    """The paths on real ranks, and what those are; without a return where ranks are started."""
    from .launch.audit import check_launch, launch_facts, ranked_path, start_ranks

    check_launch(size, ranks, device, timeout_s)
    paths = (ranked_path(specs[0], size, device), ranked_path(specs[1], size, device))
    status = start_ranks(size, device, timeout_s)
    if status is not None:
        raise typer.Exit(status)
    return paths, launch_facts(size, device)


def _console() -> Console:
    """Terminal output; a pipe gets plain text wide enough for the tables."""
    return Console(width=None if sys.stdout.isatty() else 160, highlight=False)
