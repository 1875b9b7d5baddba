"""Eager runs of a path against replays of a captured one, with alternating inputs.

A path is served by replays: what was captured once must read the new inputs and write every output
again. Each replay must give the bits of an eager run on the same inputs, whatever the outputs held
before: poison, or the result of another launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..kernels.contract import CapturingPath, Launch, Routed
from .launching import (
    POISONS,
    PathError,
    poisoned_outputs,
    poisoned_rows,
    run_path,
    tensors,
    told,
)
from .metrics.findings import Finding, bits

Bools = npt.NDArray[np.bool_]

REPLAY_ROUNDS: Final = 2
"""Over poison, and over another launch's result."""
TEXTS: Final = {
    Finding.STALE_OUTPUT: "{} of a CUDA-graph replay repeats another launch's result",
    Finding.UNWRITTEN_ROWS: "{} of a CUDA-graph replay holds poison that an eager run overwrites",
    Finding.NONDETERMINISTIC: "{} of a CUDA-graph replay differs from an eager run's",
}


@dataclass(frozen=True, eq=False)
class ReplayDifference:
    """Rows of a launch in which a replay differs from the eager run.

    Attributes:
        finding: ``stale_output`` where the row's bits are another launch's, ``unwritten_rows``
            where poison is left, ``nondeterministic`` elsewhere.
        tensor: which output.
        launch: the place in the launches given.
        rows: [row] of the launch.
    """

    finding: Finding
    tensor: str
    launch: int
    rows: Bools

    @property
    def text(self) -> str:
        """What is wrong, in words."""
        return TEXTS[self.finding].format(self.tensor)


def check_replay(path: CapturingPath, launches: Sequence[Launch]) -> list[ReplayDifference] | None:
    """Capture the first launch, replay all in turn, and return where a replay is not an eager run.

    None where the path could capture nothing, and nothing was replayed.

    Two rounds: over poison, which finds outputs that are not written, then over the result of
    another launch, which finds outputs that are not written again. Work that reads what was
    captured and not what it is given shows in both.

    Args:
        path: what is captured and run.
        launches: of one shape and one set of weights, with different inputs; at least two show a
            stale output.

    Raises:
        PathError: the path raised while it ran, was captured, or was replayed.
    """
    eager = [run_path(path, launch) for launch in launches]
    found: list[ReplayDifference] = []
    try:
        captured = path.capture(launches[0])
        if captured is None:
            return None
        for over_poison in (True, False):
            # The captured launch last, so that another one ran before it.
            for number in reversed(range(len(launches))):
                before = eager[(number + 1) % len(launches)]
                out = poisoned_outputs(path, launches[number], POISONS[0])
                if not over_poison:
                    _copy(before, out)
                captured.replay(launches[number], out)
                found += _differences(number, out, eager)
    # Whatever third-party code raises is "could not compute", never a difference.
    except (Exception, SystemExit) as error:
        raise PathError(f"{path.name} raised {told(error)}") from error
    return found


def _copy(source: Routed, out: Routed) -> None:
    for (_, theirs), (_, mine) in zip(tensors(source), tensors(out), strict=True):
        bits(mine)[:] = bits(theirs)


def _differences(number: int, out: Routed, eager: Sequence[Routed]) -> list[ReplayDifference]:
    found = []
    mine = dict(tensors(eager[number]))
    others = [dict(tensors(one)) for place, one in enumerate(eager) if place != number]
    for tensor, array in tensors(out):
        left = _differs(array, mine[tensor])
        if not left.any():
            continue
        stale = np.zeros_like(left)
        for other in others:
            stale |= left & ~_differs(array, other[tensor])
        poisoned = left & poisoned_rows(array, 0)
        rest = left & ~stale & ~poisoned
        for finding, rows in (
            (Finding.STALE_OUTPUT, stale),
            (Finding.UNWRITTEN_ROWS, poisoned),
            (Finding.NONDETERMINISTIC, rest),
        ):
            if rows.any():
                found.append(ReplayDifference(finding, tensor, number, rows))
    return found


def _differs(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Bools:
    """Rows [row] with other bits on any rank."""
    return np.asarray((bits(a) != bits(b)).any(axis=(0, 2)))
