"""Whether this process is a rank of a launch, and which."""

from __future__ import annotations

from ...kernels.ranks.paths import Rank


class _Here:
    """The rank that this process is; None outside a launch."""

    rank: Rank | None = None


def be(rank: Rank) -> None:
    """Tell the command line of this process that it is rank 0 of a launch."""
    _Here.rank = rank


def this_rank() -> Rank | None:
    """Return the rank that this process is, or None where it is none."""
    return _Here.rank
