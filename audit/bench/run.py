"""Run a bench and make its record: the one call behind ``neartie bench``."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any, Final

from ...kernels.ranks.group import RankGroup, why_not
from ...kernels.ranks.machine import library_version, rank_devices
from ...kernels.ranks.paths import Rank, command
from ..environment import environment
from .machine import machine_links, machine_state
from .measure import RunBench, not_run
from .plan import BenchPlan

BENCH_VERSION: Final = 1
WHAT: Final = "component time, not model speed"
SIGNOFF: Final = {
    "saved_us": {"9": 30.75, "12": 38.35, "16": 48.57, "20": 59.63},
    "general_us": [47.05, 80.52],
    "route_us": [16.30, 20.89],
    "conditions": "eight GPUs over PCIe, push, slowest-rank medians, 200 graph replays x 5",
}
"""What the sign-off of the route path states, for widths 9, 12, 16 and 20."""


class _Pids:
    """The order that every rank tells its process id."""

    def perform(self, rank: Rank) -> list[Any] | None:
        """Return all ids on rank 0."""
        return rank.group.answers(os.getpid())


def run_bench(plan: BenchPlan, rank: Rank | None, command_line: str) -> dict[str, Any]:
    """Return the record of a bench, JSON values.

    Args:
        plan: what to time.
        rank: rank 0 of the plan's ranks; None where they cannot run here.
        command_line: kept in the record.

    Raises:
        RanksLost: a rank failed.
    """
    if rank is None:
        reason = why_not(plan.device, plan.ranks) or "no ranks were started"
        rows = [not_run(case, case.reason or reason) for case in plan.cases]
        machine: dict[str, Any] = {"before": machine_state(), "after": None}
    else:
        own = command(rank, _Pids()) or []
        before = machine_state(own)
        rows = command(rank, RunBench(plan))
        machine = {"before": before, "after": machine_state(own), **_ranks(rank.group, plan)}
    return {
        "bench_version": BENCH_VERSION,
        "what": WHAT,
        "command": command_line,
        "state": _state(rows),
        "geometry": plan.geometry,
        "ranks": plan.ranks,
        "device": plan.device,
        "method": _method(plan),
        "rows": rows,
        "signoff": SIGNOFF,
        "machine": machine,
        "environment": environment(),
    }


def exit_status(record: dict[str, Any]) -> int:
    """0 where everything was measured, 1 where a check failed, 3 where something was not run."""
    states = {row["state"] for row in record["rows"]}
    return 1 if "REFUSED" in states else 3 if "NOT_RUN" in states else 0


def _state(rows: list[dict[str, Any]]) -> str:
    states = {row["state"] for row in rows}
    return next(state for state in ("REFUSED", "NOT_RUN", "MEASURED") if state in states)


def _method(plan: BenchPlan) -> dict[str, Any]:
    method = {key: value for key, value in asdict(plan).items() if key in _KEPT}
    run = "replay of a CUDA graph" if plan.device == "cuda" else "run in the host's loop"
    return method | {
        "sample": f"one {run}, divided by its steps; the slowest rank's",
        "figure": "median over all samples",
        "order": "blocks of the two arms alternate A B B A",
        "timed": "exchange and select; the projection is left out",
        "check": "every step of three replays before, and of three after, on other inputs in turn",
        "note": "before timing, the partials of the in-place all-reduce are set to 0, so that any "
        "number of replays keeps them finite",
    }


_KEPT: Final = ("replays", "blocks", "steps", "seed")


def _ranks(group: RankGroup, plan: BenchPlan) -> dict[str, Any]:
    told: dict[str, Any] = {
        "backend": group.backend,
        "backend_version": library_version(group.backend),
        "devices": rank_devices(plan.ranks, plan.device),
    }
    return told | (machine_links() if plan.device == "cuda" else {})
