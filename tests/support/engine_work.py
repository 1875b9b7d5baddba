"""Work for an engine that misbehaves on purpose; Ray's workers import it by its name."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from neartie.audit.engine.contract import Part, RunPart
from neartie.banks.errors import InputError

WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Misbehaving:
    """Part n's document says n; the part ``bad`` does first what ``how`` names.

    Attributes:
        folder: where parts leave marks.
        bad: number of the part that misbehaves.
        how: ``no``, ``refuse``, ``raise``, ``die`` (each time), ``die_once``, ``hang_once``,
            or ``wait`` until somebody writes ``go`` into the folder.
    """

    folder: Path
    how: str = "no"
    bad: int = 0
    gpus: int = 0
    key: str = field(default="")

    def open(self) -> RunPart:
        """Nothing is costly here."""
        return self._run

    def _run(self, number: int) -> bytes:
        if number == self.bad:
            getattr(self, f"_{self.how}")()
        return f"document {number}".encode()

    def _no(self) -> None:
        return None

    def _refuse(self) -> None:
        raise InputError("row", 7, "another", "the part")

    def _raise(self) -> None:
        raise ZeroDivisionError("of this part\nand no other")

    def _die(self) -> None:
        with (self.folder / "deaths").open("a") as file:
            file.write("x")
        os._exit(1)

    def _die_once(self) -> None:
        mark = self.folder / "deaths"
        if not mark.exists():
            self._die()

    def _hang_once(self) -> None:
        mark = self.folder / "hung"
        if not mark.exists():
            mark.write_text(str(os.getpid()))
            time.sleep(WAIT_SECONDS)

    def _wait(self) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not (self.folder / "go").exists():
            if time.monotonic() > deadline:
                raise TimeoutError("nobody let the part go on")
            time.sleep(0.02)


@dataclass(frozen=True)
class SeesDevices:
    """A part's document is what its process may see of the GPUs."""

    gpus: int = 1
    key: str = "sees devices"

    def open(self) -> RunPart:
        """Read the variable that Ray sets for a task that asked for GPUs."""
        return lambda number: os.environ.get("CUDA_VISIBLE_DEVICES", "none").encode()


def parts_in(folder: Path, count: int) -> list[Part]:
    """So many parts of ten rows, documents in the folder."""
    return [Part(number, 10, folder / f"part-{number}") for number in range(count)]


def documents(parts: list[Part]) -> list[str]:
    """What lies there."""
    return [part.path.read_text() for part in parts]


def nothing(part: Part) -> None:
    """Nobody wants to know."""
