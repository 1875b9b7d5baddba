"""``neartie`` run in the process of the tests: no second interpreter, no second import of torch.

What only a process of its own can show (its start, signals, an interrupted import, bytes on a
pipe) is tested with one.
"""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from neartie.audit import cli
from neartie.kernels import registry


class CommandLine:
    """Runs commands one after another, each as a process of its own would.

    The streams are taken from the file descriptors, so that what a library writes past Python is
    seen as well. An exception that ends a command ends the test. Paths that a command registers are
    forgotten after it.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, streams: pytest.CaptureFixture[str]
    ) -> None:
        self._monkeypatch, self._streams = monkeypatch, streams

    def __call__(
        self, *words: str, stdin: str = "", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run ``neartie WORDS`` with ``env`` added; return its status and what it printed."""
        self._streams.readouterr()
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["neartie", *words])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"))
            patch.setattr(registry, "_entries", dict(registry._entries))
            for name, value in ({"NO_COLOR": "1"} | (env or {})).items():
                patch.setenv(name, value)
            status = cli.exit_status()
        stdout, stderr = self._streams.readouterr()
        return subprocess.CompletedProcess(["neartie", *words], status, stdout, stderr)
