"""Parts in this process, or in several on this machine.

Worker w of n takes the parts w, w + n, ... and hands documents over as files only. So a run that
was killed loses the parts it was in, and the next one ends with the same bits.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from multiprocessing.queues import SimpleQueue
from typing import Final

from ...banks.errors import InputError
from ...interrupts import shielded
from .contract import Part, Work, WorkerError, write_whole

_POLL_SECONDS: Final = 0.05
# Read when a process loads its libraries: without them each worker would start a thread a core.
_THREADS: Final = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


@dataclass(frozen=True)
class LocalEngine:
    """Processes on this machine; one runs the parts in this very process."""

    workers: int = 1
    name = "local"

    def slots(self, work: Work) -> int:
        """So many processes."""
        return self.workers

    def run(self, work: Work, parts: Sequence[Part], done: Callable[[Part], None]) -> None:
        """Run all parts, see ``Engine.run``."""
        workers = min(self.workers, len(parts))
        if workers > 1:
            _spread(work, parts, workers, done)
            return
        run_part = work.open() if parts else None
        for part in parts:
            assert run_part is not None
            write_whole(part.path, run_part(part.number))
            done(part)


def _spread(work: Work, parts: Sequence[Part], workers: int, done: Callable[[Part], None]) -> None:
    context = multiprocessing.get_context("spawn")
    threads = str(max(1, (os.cpu_count() or 1) // workers))
    processes: list[BaseProcess] = []
    refused: SimpleQueue[InputError] = context.SimpleQueue()
    # Its own start would lift the shield.
    resource_tracker.ensure_running()
    try:
        with _environment(dict.fromkeys(_THREADS, threads)), shielded():
            for worker in range(workers):
                arguments = (work, parts[worker::workers], refused)
                processes.append(context.Process(target=_work, args=arguments))
                processes[-1].start()
        waiting = list(parts)
        while waiting and not any(process.exitcode for process in processes):
            ended = not any(process.is_alive() for process in processes)
            found = [part for part in waiting if part.path.exists()]
            waiting = [part for part in waiting if part not in found]
            for part in found:
                done(part)
            if ended:
                break
            time.sleep(_POLL_SECONDS)
        failed = [process.exitcode for process in processes if process.exitcode]
        if not refused.empty():
            raise refused.get()
        if failed:
            raise WorkerError(f"a worker process ended with status {failed[0]}")
        if waiting:
            raise WorkerError(f"the worker processes left {len(waiting)} parts undone")
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


def _work(work: Work, parts: Sequence[Part], refused: SimpleQueue[InputError]) -> None:
    """One worker process: its parts in order, then the end.

    An interrupt is for the parent, which then ends its workers.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        run_part = work.open()
        for part in parts:
            write_whole(part.path, run_part(part.number))
    except InputError as error:
        refused.put(error)
        raise SystemExit(1) from None


def _end_with_parent() -> None:
    """A worker whose parent was killed would go on unseen."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
