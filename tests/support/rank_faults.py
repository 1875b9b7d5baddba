"""Ranks with a planted fault: run as a script, this is ``neartie.audit.launch.worker`` with one.

python rank_faults.py FAULT STATUS_FILE SETTINGS ARGUMENTS...
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HANGING = "RANK_FAULTS_HANGING"
"""Names a file that the rank makes when it starts to hang."""

DRIVER = """
import functools, sys
from neartie.audit.launch import audit, launcher
entry = ("-P", sys.argv[1], sys.argv[2])
audit.run_ranks = functools.partial(launcher.run_ranks, entry=entry)
sys.argv = ["neartie", *sys.argv[3:]]
from neartie.audit.cli import main
main()
"""


def neartie_with(fault: str, *words: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run the command line with a fault planted in rank 1; ``none`` plants nothing."""
    command = command_with(fault, *words)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)


def command_with(fault: str, *words: str) -> list[str]:
    """Return the command that ``neartie_with`` runs."""
    return [sys.executable, "-P", "-c", DRIVER, str(Path(__file__).resolve()), fault, *words]


def _in_front(change: Any) -> None:
    """Have ``change`` see what rank 1's front gives, before the others do."""
    from neartie.kernels.ranks.front import RankFront

    right = RankFront.run

    def run(self: Any, launch: Any, poisons: Any) -> Any:
        return change(right(self, launch, poisons))

    RankFront.run = run  # type: ignore[method-assign]


def _raises(out: Any) -> Any:
    raise ValueError("planted in rank 1")


def _killed(out: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def _hangs(out: Any) -> Any:
    if HANGING in os.environ:
        Path(os.environ[HANGING]).touch()
    time.sleep(3600)


def _differs(out: Any) -> Any:
    out.weights.view("u4")[0, 3, 0] ^= 1
    return out


def _stale_gather() -> None:
    """The gather's copy to the layout is left out after the first runs."""
    from neartie.kernels.ranks.exchange import AllGather

    right, runs = AllGather.run, {"count": 0}

    def run(self: Any) -> None:
        before = self.whole.clone()
        right(self)
        runs["count"] += 1
        if runs["count"] > 4:
            self.whole.copy_(before)

    AllGather.run = run  # type: ignore[method-assign]


def _wrong_sum() -> None:
    from neartie.kernels.ranks import arms as module

    arms: Any = module
    right: Any = arms.all_reduce

    def all_reduce(partial: Any) -> Any:
        right(partial)
        partial.view(-1)[7] += 1
        return partial

    arms.all_reduce = all_reduce


FRONT = {"raises": _raises, "killed": _killed, "hangs": _hangs, "differs": _differs}
ARMS = {"stale_gather": _stale_gather, "wrong_sum": _wrong_sum}


def main() -> None:
    fault = sys.argv.pop(1)
    if os.environ["RANK"] == "1":
        if fault in FRONT:
            _in_front(FRONT[fault])
        elif fault in ARMS:
            ARMS[fault]()
        elif fault != "none":
            raise SystemExit(f"no fault {fault}")
    from neartie.audit.launch.worker import main as work

    work()


if __name__ == "__main__":
    main()
