"""What a plan must know of sides that are paths, before any row is run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from ...banks.errors import InputError, printable
from ...kernels.contract import Path
from ...kernels.registry import can_be_made_elsewhere, make_path
from .sides import Side


def paths_of(sides: Sequence[Side]) -> dict[str, Path]:
    """The paths that the sides run, by spec; each is made once."""
    return {side.path: make_path(side.path) for side in sides if side.runs}


def check_elsewhere(sides: Sequence[Side], *, processes: bool, kept: bool) -> None:
    """Refuse what only this process knows, where other processes or later runs would need it.

    Args:
        sides: of the gate.
        processes: whether shards may be run in other processes.
        kept: whether finished shards stay for a later run.

    Raises:
        InputError: a path that other processes cannot make, or kept shards of other people's code.
    """
    for side in sides:
        if not side.runs:
            continue
        if processes and not can_be_made_elsewhere(side.path):
            expected = "a path that other processes can import (module:factory), or one process"
            raise InputError("path", printable(side.spec), expected, "gate workers")
        if kept and not _is_ours(make_path(side.path)):
            expected = "left out: finished shards do not know the code of a path of another package"
            raise InputError("work", printable(side.spec), expected, "gate")


def _is_ours(path: Path) -> bool:
    """Whether the digest of the package's sources stands for the path's code."""
    return type(path).__module__.partition(".")[0] == __name__.partition(".")[0]


def declared_of(sides: Sequence[Side]) -> tuple[str | None, ...]:
    """What each side's path declares, versions of libraries included; None for selects."""
    paths = paths_of(sides)
    return tuple(
        repr(sorted(asdict(paths[side.path].declared).items())) if side.runs else None
        for side in sides
    )
