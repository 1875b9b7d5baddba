"""Run a plan's shards in one or several processes; what is finished lies in the work directory.

Worker w of n takes the missing shards w, w + n, ... and hands results over as files only. So a run
that was killed loses the shards it was in, and the next one ends with the same bits.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from ...banks.errors import InputError
from .plan import GatePlan, Shard
from .runner import make_runner
from .shard_file import read_shard, shard_path, write_shard

Progress = Callable[[int, int, str], None]
_POLL_SECONDS: Final = 0.05
# Read when a process loads its libraries: without them each worker would start a thread a core.
_THREADS: Final = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


class WorkerError(RuntimeError):
    """A worker process ended without finishing its shards."""


def plan_directory(work: Path, plan: GatePlan) -> Path:
    """The place of a plan's shards inside a work directory, made if need be.

    Raises:
        InputError: it cannot be made.
    """
    directory = work / plan.digest[:20]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "plan.json").write_text(json.dumps(asdict(plan), indent=1), encoding="utf-8")
    except OSError as error:
        raise InputError("work", work, "a directory that can be written", str(error)) from error
    return directory


def missing_shards(directory: Path, plan: GatePlan) -> list[Shard]:
    """Shards without a finished result."""
    return [shard for shard in plan.shards() if read_shard(directory, plan, shard) is None]


def run_shards(
    plan: GatePlan, directory: Path, workers: int, progress: Progress | None = None
) -> int:
    """Run every missing shard; return how many were there already.

    Args:
        plan: what to do.
        directory: made by ``plan_directory``.
        workers: processes; 1 runs here.
        progress: called with (rows done, rows in all, text).

    Raises:
        WorkerError: a worker failed; finished shards stay for the next run.
    """
    todo = missing_shards(directory, plan)
    found = len(plan.shards()) - len(todo)
    for shard in todo:
        shard_path(directory, shard).unlink(missing_ok=True)
    total = sum(plan.rows)
    before = total - sum(shard.stop - shard.start for shard in todo)
    workers = min(workers, max(1, len(todo)))
    if workers == 1:
        done = before
        runner = make_runner(plan)
        for shard in todo:
            write_shard(directory, plan, shard, runner.run(shard))
            done += shard.stop - shard.start
            if progress is not None:
                progress(done, total, "gate")
        return found
    _spread(plan, directory, todo, workers, lambda rows: _tell(progress, before + rows, total))
    return found


def _tell(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total, "gate")


def _spread(
    plan: GatePlan,
    directory: Path,
    todo: Sequence[Shard],
    workers: int,
    tell: Callable[[int], None],
) -> None:
    context = multiprocessing.get_context("spawn")
    threads = str(max(1, (os.cpu_count() or 1) // workers))
    text, numbers = json.dumps(asdict(plan)), [shard.number for shard in todo]
    processes: list[BaseProcess] = []
    try:
        with _environment(dict.fromkeys(_THREADS, threads)):
            for worker in range(workers):
                arguments = (text, str(directory), numbers[worker::workers])
                processes.append(context.Process(target=_work, args=arguments))
                processes[-1].start()
        waiting = {shard.number: shard for shard in todo}
        rows = 0
        while any(process.is_alive() for process in processes):
            time.sleep(_POLL_SECONDS)
            for number, shard in list(waiting.items()):
                if shard_path(directory, shard).exists():
                    rows += shard.stop - shard.start
                    del waiting[number]
            tell(rows)
            if any(process.exitcode for process in processes):
                break
        failed = [process.exitcode for process in processes if process.exitcode]
        if failed:
            raise WorkerError(f"a gate worker ended with status {failed[0]}")
    finally:
        for process in processes:
            if process.is_alive():
                process.terminate()
            process.join()


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables that processes started in here see; ones that are set already stay as they are."""
    added = [name for name in values if name not in os.environ]
    os.environ.update({name: values[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _work(text: str, directory: str, numbers: Sequence[int]) -> None:
    """One worker process: its shards in order, then the end."""
    # An interrupt is for the parent, which then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    plan = GatePlan.from_json(text)
    shards, runner = plan.shards(), make_runner(plan)
    for number in numbers:
        write_shard(Path(directory), plan, shards[number], runner.run(shards[number]))


def _end_with_parent() -> None:
    """A worker whose parent was killed would go on unseen."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
