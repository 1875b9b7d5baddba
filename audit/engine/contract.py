"""What an engine is given and what it owes.

One planner cuts the work into parts and one reducer reads their documents in order, whatever engine
ran them: an engine decides when and where a part is run, never what is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from ...banks.atomic import replace_file
from ...banks.errors import InputError

ENGINES: Final = ("local", "ray")

RunPart = Callable[[int], bytes]
"""From a part's number to its document."""


class WorkerError(RuntimeError):
    """A worker was lost, or its part failed by an error of its own; finished parts stay."""


@dataclass(frozen=True)
class Part:
    """One part of the work.

    Attributes:
        number: names it to ``Work``.
        rows: how much of the whole it is.
        path: the file that its document becomes, in the work directory; nothing lies there yet.
    """

    number: int
    rows: int
    path: Path


class Work(Protocol):
    """What is to be run: a small value that is pickled to every worker."""

    @property
    def key(self) -> str:
        """Names the work: a worker opens it once."""
        ...

    @property
    def gpus(self) -> int:
        """GPUs that one worker needs."""
        ...

    def open(self) -> RunPart:
        """Make what is costly, in the worker. The documents are the same bits on every worker.

        Raises:
            InputError: this machine would make other bits, or lacks what the work reads.
        """
        ...


class Engine(Protocol):
    """Where parts are run."""

    @property
    def name(self) -> str:
        """One of ``ENGINES``."""
        ...

    def slots(self, work: Work) -> int:
        """How many parts would run at a time; asks the cluster where only it knows.

        Raises:
            InputError: the engine is not there, or has no room for the work.
        """
        ...

    def run(self, work: Work, parts: Sequence[Part], done: Callable[[Part], None]) -> None:
        """Run all parts, in any order; afterwards each document lies at its part's path, whole.

        Args:
            work: what the parts are of.
            parts: the missing ones.
            done: called here, in this thread, for each part when its document lies there.

        Raises:
            InputError: a part refused its input, or the engine is not there.
            WorkerError: a worker was lost too often, or a part failed.
        """
        ...


def write_whole(path: Path, document: bytes) -> None:
    """Write a part's document as ``replace_file`` does.

    Raises:
        InputError: it cannot be written; nothing is left of it.
    """
    try:
        replace_file(path, document, 0o600)
    except OSError as error:
        expected = "a directory that can be written"
        raise InputError("work", path.parent, expected, error.strerror or str(error)) from error
