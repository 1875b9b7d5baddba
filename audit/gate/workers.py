"""Run a plan's missing shards by an engine; what is finished lies in the work directory."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from ...banks.errors import InputError
from ..engine.contract import Engine, Part
from .plan import GatePlan, Shard
from .shard_file import read_shard, shard_path
from .work import GateWork

Progress = Callable[[int, int, str], None]


def tell_plan(directory: Path, plan: GatePlan) -> None:
    """Write the plan beside its shards, for people: nothing reads it.

    Raises:
        InputError: it cannot be written.
    """
    try:
        (directory / "plan.json").write_text(json.dumps(asdict(plan), indent=1), encoding="utf-8")
    except OSError as error:
        expected = "a directory that can be written"
        raise InputError("work", directory, expected, str(error)) from error


def missing_shards(directory: Path, plan: GatePlan) -> list[Shard]:
    """Shards without a finished result; one that could not be run is tried again."""
    found = ((shard, read_shard(directory, plan, shard)) for shard in plan.shards())
    return [shard for shard, result in found if result is None or result.not_run]


def run_shards(
    plan: GatePlan, directory: Path, engine: Engine, progress: Progress | None = None
) -> int:
    """Run every missing shard; return how many were there already.

    Args:
        plan: what to do.
        directory: of this plan's shards.
        engine: where shards are run; a run that one began another may end.
        progress: called with (rows done, rows in all, text).

    Raises:
        InputError: a worker is unfit for the plan, or the engine is not there.
        WorkerError: a worker failed; finished shards stay for the next run.
    """
    todo = missing_shards(directory, plan)
    parts = [Part(s.number, s.stop - s.start, shard_path(directory, s)) for s in todo]
    for part in parts:
        part.path.unlink(missing_ok=True)
    total = sum(plan.rows)
    done = total - sum(part.rows for part in parts)

    def tell(part: Part) -> None:
        nonlocal done
        done += part.rows
        if progress is not None:
            progress(done, total, "gate")

    engine.run(GateWork(plan), parts, tell)
    return len(plan.shards()) - len(todo)
