"""The command line with ranks as processes, started from the process of the tests."""

import functools
import gc
import signal
import subprocess
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import rank_faults
from command_line import CommandLine

from neartie.audit.launch import audit, launcher

Launch = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Launch]:
    """As ``rank_faults.neartie_with``, without a process for the launcher."""
    command_line = CommandLine(monkeypatch, capfd)
    script = str(Path(rank_faults.__file__).resolve())

    def run(fault: str, *words: str) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patch, warnings.catch_warnings():
            # torch's launcher leaves the files of what a rank prints to the garbage collector.
            warnings.filterwarnings("ignore", "unclosed file .*neartie-launch-", ResourceWarning)
            started = functools.partial(launcher.run_ranks, entry=("-P", script, fault))
            patch.setattr(audit, "run_ranks", started)
            done = command_line(*words)
            gc.collect()
        return done

    # torch's launcher leaves its own behind.
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)
