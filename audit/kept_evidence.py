"""Where a test run keeps the evidence of its audits. Light: the pytest plugin imports it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

MOST_CHARACTERS: Final = 100
"""Of the readable part of a directory's name: file systems take 255 bytes of a name."""

BANKS: Final = "banks"
"""Folder beside the evidence directories, of the banks that were made in memory."""

_OTHER: Final = re.compile(r"[^A-Za-z0-9._=+-]+")


class EvidenceKeeper:
    """Names one new directory for each audit of each test.

    Names follow from the tests alone, so that processes that share the work do not meet.

    Args:
        root: directory of a test run.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._test: str | None = None
        self._calls: dict[str, int] = {}

    def begin(self, test: str) -> None:
        """Tell which test runs from here on, by its node id."""
        self._test = test

    def end(self) -> None:
        """Tell that no test runs."""
        self._test = None

    def next_directory(self) -> Path | None:
        """Return a directory that does not exist; None while no test runs."""
        if self._test is None:
            return None
        name = directory_name(self._test)
        while True:
            number = self._calls[name] = self._calls.get(name, 0) + 1
            place = self.root / (name if number == 1 else f"{name}-{number}")
            if not place.exists():
                return place


def directory_name(test: str) -> str:
    """Return a name for a test's evidence that every file system takes.

    It starts as the node id does and ends with eight digits of its sha256, which tell apart what
    cutting and replacing made the same.

    Example:
        >>> directory_name("tests/test_a.py::test_b[bias=-inf]")
        'tests-test_a.py-test_b-bias=-inf-163ded80'
    """
    readable = _OTHER.sub("-", test).strip("-.")[:MOST_CHARACTERS].strip("-.")
    digest = hashlib.sha256(test.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{readable}-{digest}" if readable else digest


_keeper: EvidenceKeeper | None = None


def keep_with(keeper: EvidenceKeeper | None) -> None:
    """Have ``next_directory`` ask this keeper; None keeps nothing."""
    global _keeper
    _keeper = keeper


def next_directory() -> Path | None:
    """Return where the evidence of the audit that starts now goes, or None."""
    return None if _keeper is None else _keeper.next_directory()
