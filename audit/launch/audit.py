"""``neartie audit --launch N``: the paths on N real ranks, or why they cannot run here."""

from __future__ import annotations

import sys
from typing import Any, Final

from ...banks.errors import InputError
from ...kernels.ranks.group import why_not
from ...kernels.ranks.paths import RankedPath
from ...kernels.ranks.spec import BACKENDS, parse_rank_spec
from .here import this_rank
from .launcher import run_ranks
from .settings import RankSettings, check_rank_timeout

_MOST_RANKS: Final = 16


def check_launch(size: int, ranks: int | None, device: str, timeout_s: float) -> None:
    """Refuse a launch that no machine runs.

    Raises:
        InputError: the number of ranks, the device, or the timeout.
    """
    if not 2 <= size <= _MOST_RANKS:
        raise InputError("launch", size, f"2..{_MOST_RANKS}", "--launch")
    if ranks is not None and ranks != size:
        raise InputError("ranks", ranks, f"{size}, as launched, or left out", "--ranks")
    if device not in BACKENDS:
        raise InputError("device", device, f"one of {', '.join(BACKENDS)}", "--device")
    check_rank_timeout(timeout_s)


def start_ranks(size: int, device: str, timeout_s: float) -> int | None:
    """Run this very command on real ranks and return its exit status.

    None where this process is a rank already, or where the machine cannot run them.

    Raises:
        InputError: a rank failed.
    """
    if this_rank() is not None or why_not(device, size) is not None:
        return None
    return run_ranks(size, [RankSettings(device, timeout_s).text(), *sys.argv[1:]])


def ranked_path(spec: str, size: int, device: str) -> RankedPath:
    """Return a path on real ranks; one that says why where there are none.

    Raises:
        InputError: a path, option or value that real ranks do not have.
    """
    return RankedPath(parse_rank_spec(spec, device), this_rank(), why_not(device, size))


def launch_facts(size: int, device: str) -> dict[str, Any]:
    """Return what the ranks are, JSON values, for the record."""
    rank = this_rank()
    if rank is None:
        return {"ranks": size, "ran": False, "reason": why_not(device, size)}
    from ...kernels.ranks.machine import library_version, rank_devices

    return {
        "ranks": size,
        "ran": True,
        "backend": rank.group.backend,
        "backend_version": library_version(rank.group.backend),
        "devices": rank_devices(size, device),
    }
