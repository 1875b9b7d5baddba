"""The reduction schedules on the device: ``reduce.SCHEDULES`` in one Triton kernel.

Each element is one chain of FP32 additions with the schedule's order and BF16 roundings, so the
result has the bits of ``reduce.reduce_partials`` on the same partials (every NaN is one value:
which payload an addition leaves is the processor's).
"""

from __future__ import annotations

from typing import Any, Final

from ...banks.errors import EnvelopeError
from ..reduce import check_islands
from .lang import launch, tl, triton

DEVICE_SCHEDULES: Final = (
    "one_shot_fp32",
    "own_rank_first_fp32",
    "running_bf16",
    "ring_bf16",
    "tree_bf16",
    "two_level",
)
"""The schedules of the kernel; a place in this list is its code."""

MOST_RANKS: Final = 32
_BLOCK: Final = 512


@triton.jit
def _rounded(value: tl.tensor) -> tl.tensor:
    """FP32 values rounded to BF16, ties to even, and widened again."""
    bits = value.to(tl.int32, bitcast=True)
    upper = (bits + 0x7FFF + ((bits >> 16) & 1)) & -65536
    upper = tl.where(value != value, 0x7FC00000, upper)
    return upper.to(tl.float32, bitcast=True)


@triton.jit
def _wide(bits: tl.tensor) -> tl.tensor:
    """The FP32 values of BF16 bit patterns int16."""
    return (bits.to(tl.int32) << 16).to(tl.float32, bitcast=True)


@triton.jit
def _chain(
    partials: tl.tensor,
    at: tl.tensor,
    inside: tl.tensor,
    first: tl.tensor,
    size: tl.tensor,
    ROUNDS: tl.constexpr,
    P: tl.constexpr,
) -> tl.tensor:
    """The sum over ranks first, first + 1, ... mod P; ROUNDS: to BF16 at each hop."""
    total = _wide(tl.load(partials + first * size + at, mask=inside, other=0))
    for step in tl.static_range(1, P):
        rank = (first + step) % P
        total = total + _wide(tl.load(partials + rank * size + at, mask=inside, other=0))
        if ROUNDS:
            total = _rounded(total)
    return total


@triton.jit
def _pairs(level: tl.tensor, WIDTH: tl.constexpr, BLOCK: tl.constexpr) -> tl.tensor:
    """[BLOCK, WIDTH] rounded sums of neighbours of [BLOCK, 2 * WIDTH]."""
    left, right = tl.split(tl.reshape(level, [BLOCK, WIDTH, 2]))
    return _rounded(left + right)


@triton.jit
def reduce_kernel(
    partials: tl.tensor,
    out: tl.tensor,
    size: tl.tensor,
    own: tl.tensor,
    slice_length: tl.tensor,
    P: tl.constexpr,
    LEAVES: tl.constexpr,
    SCHEDULE: tl.constexpr,
    ISLANDS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Reduce partials [P, size] into out [size], BF16 as int16: the result of rank ``own``.

    ``slice_length``: elements of a slice of the ring. LEAVES: P up to a power of two, for the tree.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    if SCHEDULE == 0:
        total = _chain(partials, at, inside, at * 0, size, False, P)
    elif SCHEDULE == 1:
        total = _chain(partials, at, inside, at * 0 + own, size, False, P)
    elif SCHEDULE == 2:
        total = _chain(partials, at, inside, at * 0, size, True, P)
    elif SCHEDULE == 3:
        total = _chain(partials, at, inside, (at // slice_length + 1) % P, size, True, P)
    elif SCHEDULE == 4:
        # A rank that is not there is -0, which changes no sum: an odd one out passes as it is.
        rank = tl.arange(0, LEAVES)
        level = _wide(
            tl.load(
                partials + rank[None, :] * size + at[:, None],
                mask=inside[:, None] & (rank < P)[None, :],
                other=-0x8000,
            )
        )
        if LEAVES >= 32:
            level = _pairs(level, 16, BLOCK)
        if LEAVES >= 16:
            level = _pairs(level, 8, BLOCK)
        if LEAVES >= 8:
            level = _pairs(level, 4, BLOCK)
        if LEAVES >= 4:
            level = _pairs(level, 2, BLOCK)
        if LEAVES >= 2:
            level = _pairs(level, 1, BLOCK)
        total = tl.reshape(level, [BLOCK])
    else:
        tl.static_assert(SCHEDULE == 5, "unknown schedule")
        total = tl.zeros([BLOCK], tl.float32)
        for island in tl.static_range(ISLANDS):
            first = island * (P // ISLANDS)
            part = _wide(tl.load(partials + first * size + at, mask=inside, other=0))
            for step in tl.static_range(1, P // ISLANDS):
                rank = first + step
                part = part + _wide(tl.load(partials + rank * size + at, mask=inside, other=0))
            part = _rounded(part)
            total = part if island == 0 else total + part
    # Rounded already as far as the schedule goes: this is the one rounding of the FP32 sums.
    upper = _rounded(total).to(tl.int32, bitcast=True) >> 16
    tl.store(out + at, upper.to(tl.int16), mask=inside)


def reduce_rank(schedule: str, partials: Any, out: Any, rank: int, islands: int = 2) -> None:
    """Reduce partials as one rank does, on the device; allocates nothing.

    Args:
        schedule: a name of ``DEVICE_SCHEDULES``.
        partials: [rank, row, latent] BF16 tensor, contiguous: one launch, which is one message.
        out: [row, latent] BF16 tensor, contiguous, written completely.
        rank: whose result; only ``own_rank_first_fp32`` depends on it.
        islands: number of equal islands of consecutive ranks, for ``two_level``.

    Raises:
        EnvelopeError: a schedule that the kernel does not do, more than 32 ranks, or islands that
            do not divide them.
    """
    if schedule not in DEVICE_SCHEDULES:
        expected = f"one of {', '.join(DEVICE_SCHEDULES)}"
        raise EnvelopeError("reduce", schedule, expected, "reduction on the device")
    import torch

    ranks, size = len(partials), out.numel()
    if ranks > MOST_RANKS:
        raise EnvelopeError("ranks", ranks, f"1..{MOST_RANKS}", "reduction on the device")
    if schedule == "two_level":
        check_islands(ranks, islands)
    if not size:
        return
    launch(
        reduce_kernel, -(-size // _BLOCK), partials.view(torch.int16), out.view(torch.int16),
        size, rank, -(-size // ranks),
        ranks, 1 << (ranks - 1).bit_length(), DEVICE_SCHEDULES.index(schedule), islands, _BLOCK,
    )  # fmt: skip
