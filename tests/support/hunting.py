"""Hunts of a built-in path with its outputs changed, on a small geometry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wrapped_path import WrappedPath

import neartie
from neartie.audit.policy import Policy
from neartie.kernels.contract import Launch, Routed

LOWER_ID = Policy(tie_contract="lower_id")
SMALL = "8x0x64x8"
Spoil = Callable[[Launch, Routed], None]


def spoiled(spoil: Spoil, **options: Any) -> Any:
    options = {"rows": 8000, "geometry": SMALL, "width": 4, **options}
    candidate = WrappedPath(spoil, "route:select=standalone")
    return neartie.hunt("general", candidate, **options)


def second_for_last(launch: Launch, out: Routed) -> None:
    """Where experts 0 and 1 are both chosen, the last slot is given to an expert that is not."""
    both = np.isin(out.ids, (0, 1)).sum(axis=2) == 2
    for rank, row in zip(*np.nonzero(both), strict=True):
        free = np.setdiff1d(np.arange(launch.geometry.experts), out.ids[rank, row])
        out.ids[rank, row, -1] = free[-1]
