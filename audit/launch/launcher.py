"""Start the ranks of a launch as processes, and end all of them when one fails."""

from __future__ import annotations

import logging
import signal
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ...banks.errors import InputError
from ...kernels.ranks.group import RanksLost

WORKER: Final = ("-P", "-m", "neartie.audit.launch.worker")
"""Python's arguments that run one rank; -P as for the command line."""


def run_ranks(size: int, job: Sequence[str], entry: Sequence[str] = WORKER) -> int:
    """Run ``python ENTRY STATUS_FILE JOB`` on ``size`` ranks; return the status rank 0 wrote.

    What rank 0 prints is printed; what the others print is dropped.

    Args:
        size: processes.
        job: arguments of every rank.
        entry: Python's arguments before them.

    Raises:
        InputError: a rank failed; all others were ended.
        KeyboardInterrupt: it was interrupted; all ranks were ended.
    """
    import torch.distributed.elastic.multiprocessing as processes
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    tools: Any = processes
    # Its own account of a failure is a page; the one line comes from the rank itself.
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("torch.distributed"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="neartie-launch-") as place:
        silent = dict.fromkeys(range(1, size), tools.Std.ALL)
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=size,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=0,
            monitor_interval=0.1,
            logs_specs=tools.DefaultLogsSpecs(log_dir=place, redirects=silent or tools.Std.NONE),
        )
        status = Path(place) / "status"
        launch: Any = elastic_launch(config, sys.executable)
        try:
            launch(*entry, str(status), *job)
        except ChildFailedError as error:
            rank, told = _cause(error.failures)
            raise _failed(rank, size, told) from None
        except tools.SignalException:
            raise KeyboardInterrupt from None
        if not status.is_file():
            raise _failed(0, size, "it ended without a result")
        return int(status.read_text(encoding="utf-8"))


def _cause(failures: Mapping[int, Any]) -> tuple[int, Any]:
    """The rank that failed by itself, and what it told.

    A rank that only lost another one may be dated before it: a signal is dated when it is seen.
    SIGTERM is what all other ranks get when one has failed.
    """
    own = {
        rank: one
        for rank, one in failures.items()
        if one.exitcode != -signal.SIGTERM and not _lost_another(one.message)
    }
    lost = {rank: one for rank, one in failures.items() if _lost_another(one.message)}
    rank, first = min((own or lost or failures).items(), key=lambda item: float(item[1].timestamp))
    return rank, first.message


def _lost_another(told: Any) -> bool:
    return _text(told).startswith(f"{RanksLost.__name__}:")


def _text(told: Any) -> str:
    return str(told.get("message", told) if isinstance(told, Mapping) else told)


def _failed(rank: int, size: int, told: Any) -> InputError:
    """One line of what the first rank to fail told: its exception, or the signal that ended it."""
    line = " ".join(_text(told).split())
    return InputError(f"rank {rank} of {size}", line, "a rank that answers", "--launch")
