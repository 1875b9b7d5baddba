"""Reductions of BF16 partials: each a named order of additions with named roundings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from ..banks.errors import EnvelopeError
from .contract import BFLOAT16, F32, Bf16
from .rounding import narrow, rounded, widen

# Elements per pass over all ranks: the FP32 sum and one widened partial stay in cache.
_BLOCK: Final = 1 << 16
_Partials = list[F32]


def _fp32_sum(partials: _Partials, order: list[int]) -> F32:
    total = partials[order[0]]
    for rank in order[1:]:
        total = total + partials[rank]
    return total


def _bf16_sum(partials: _Partials, order: list[int]) -> F32:
    total = partials[order[0]]
    for rank in order[1:]:
        total = rounded(total + partials[rank])
    return total


def _from(start: int, ranks: int) -> list[int]:
    return [(start + step) % ranks for step in range(ranks)]


def _tree(partials: _Partials) -> F32:
    level = partials
    while len(level) > 1:
        pairs = [rounded(a + b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


def _two_level(partials: _Partials, islands: int) -> F32:
    size = len(partials) // islands
    order = list(range(size))
    sums = [
        rounded(_fp32_sum(partials[first : first + size], order))
        for first in range(0, len(partials), size)
    ]
    return _fp32_sum(sums, list(range(islands)))


@dataclass(frozen=True, slots=True)
class Schedule:
    """A named reduction.

    Attributes:
        words: the arithmetic as it is declared.
        roundings: BF16 roundings after those of the partials, for P ranks.
        row_independent: whether a row's result ignores width and place in the launch.
        ranks_agree: whether all ranks get the same bits.
        unavailable: why it cannot run on the CPU, or None.
    """

    words: str
    roundings: str
    row_independent: bool = True
    ranks_agree: bool = True
    unavailable: str | None = None


SCHEDULES: Final = {
    "one_shot_fp32": Schedule("rank order, FP32 accumulation, one rounding", "1"),
    "own_rank_first_fp32": Schedule(
        "own rank first, then +1 mod P; FP32 accumulation, one rounding", "1", ranks_agree=False
    ),
    "running_bf16": Schedule("rank order, rounded to BF16 at each hop", "P-1"),
    "ring_bf16": Schedule(
        "ring: P slices of the launch's message, each starts after its owner; BF16 at each hop",
        "P-1",
        row_independent=False,
    ),
    "tree_bf16": Schedule("neighbours in pairs, level by level, BF16 at each level", "log2(P)"),
    "two_level": Schedule("FP32 inside an island, BF16 island partials, FP32 across", "2"),
    "nccl": Schedule(
        "NCCL's own order",
        "unknown",
        row_independent=False,
        unavailable="needs CUDA GPUs and NCCL (audit --launch); this path runs on the CPU",
    ),
    "gloo": Schedule(
        "gloo's own order",
        "unknown",
        row_independent=False,
        unavailable="needs processes (audit --launch); this path runs in one",
    ),
}

DEFAULT_ISLANDS: Final = 2
"""Of ``two_level`` where its name tells no other number."""

LIBRARY_ORDERS: Final = ("nccl", "gloo")
"""Schedules of communication libraries, which promise no order: only their results tell it."""


def check_islands(ranks: int, islands: int) -> None:
    """Refuse a number of islands that does not cut the ranks evenly.

    Raises:
        EnvelopeError: ``islands`` is not a divisor of ``ranks``.
    """
    if islands < 1 or ranks % islands:
        raise EnvelopeError("islands", islands, f"a divisor of {ranks} ranks", "two_level")


def _ring(partials: Bf16, out: Bf16, width: int) -> None:
    """Reduce each launch's flattened message in P slices, slice o in the order o+1, ..., o.

    Slices hold ceil(n / P) elements; the last ones may be shorter or empty.
    """
    ranks, rows, latent = partials.shape
    messages = np.ascontiguousarray(partials).reshape(ranks, rows // width, width * latent)
    result = np.empty(messages.shape[1:], BFLOAT16)
    length = -(-result.shape[1] // ranks)
    for owner in range(ranks):
        part = slice(owner * length, (owner + 1) * length)
        pieces = [widen(message[:, part]) for message in messages]
        result[:, part] = narrow(_bf16_sum(pieces, _from((owner + 1) % ranks, ranks)))
    out[:] = result.reshape(rows, latent)


def reduce_partials(
    schedule: str, partials: Bf16, out: Bf16, width: int, islands: int = DEFAULT_ISLANDS
) -> None:
    """Reduce partials [rank, row, latent] BF16 into ``out`` [rank, row, latent] BF16.

    Args:
        schedule: a name of ``SCHEDULES`` that is available.
        partials: what each rank contributes.
        out: written completely; schedules whose ranks agree are computed once and copied.
        width: rows per launch; one launch is one message.
        islands: number of equal islands of consecutive ranks, for ``two_level``.

    Raises:
        EnvelopeError: the schedule cannot run here, or ``islands`` does not divide the ranks.
    """
    ranks = len(partials)
    reason = SCHEDULES[schedule].unavailable
    if reason is not None:
        raise EnvelopeError("reduce", schedule, "a schedule that runs here", reason)
    if schedule == "two_level":
        check_islands(ranks, islands)
    with np.errstate(over="ignore", invalid="ignore"):
        if schedule == "ring_bf16":
            _ring(partials, out[0], width)
        elif schedule == "own_rank_first_fp32":
            for rank in range(ranks):
                order = _from(rank, ranks)
                _by_blocks(partials, out[rank], partial(_fp32_sum, order=order))
            return
        else:
            sums: dict[str, Callable[[_Partials], F32]] = {
                "one_shot_fp32": partial(_fp32_sum, order=_from(0, ranks)),
                "running_bf16": partial(_bf16_sum, order=_from(0, ranks)),
                "tree_bf16": _tree,
                "two_level": partial(_two_level, islands=islands),
            }
            _by_blocks(partials, out[0], sums[schedule])
    out[1:] = out[0]


def run_schedule(name: str, partials: Bf16, width: int) -> Bf16:
    """Return what ``reduce_partials`` makes of partials [rank, row, latent] BF16, in that shape.

    Args:
        name: of the schedule; islands may follow, as in ``two_level:4``.
        partials: what each rank contributes.
        width: rows per launch.

    Raises:
        EnvelopeError: as ``reduce_partials``.
    """
    schedule, _, islands = name.partition(":")
    out = np.empty(partials.shape, BFLOAT16)
    reduce_partials(schedule, partials, out, width, int(islands or DEFAULT_ISLANDS))
    return out


def _by_blocks(partials: Bf16, out: Bf16, total: Callable[[_Partials], F32]) -> None:
    """Apply ``total`` and a final rounding to blocks of rows."""
    step = max(1, _BLOCK // max(1, partials.shape[2]))
    for start in range(0, partials.shape[1], step):
        part = slice(start, start + step)
        pieces = [widen(piece[part]) for piece in partials]
        out[part] = narrow(total(pieces))
