"""The paired gather on the device: BF16 latent and FP32 logits shards in one Triton kernel.

A pure copy of bits, rank by rank: ``out[row, r * w : (r + 1) * w]`` is rank r's shard. The kernel
moves integers, so no conversion can touch a NaN or a sign.
"""

from __future__ import annotations

from typing import Any, Final

from ...banks.errors import InputError
from ...banks.geometry import MAX_WIDTH
from ..contract import check_width
from .lang import launch, tl, triton

_BLOCK: Final = 256
_WARPS: Final = 4


@triton.jit
def _copy_row(
    shards: tl.tensor,
    out: tl.tensor,
    row: tl.tensor,
    rank: tl.tensor,
    wanted: tl.tensor,
    rows: tl.tensor,
    P: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """One rank's WIDTH columns of one row, where it is wanted."""
    source = shards + (rank * rows + row) * WIDTH
    target = out + (row * P + rank) * WIDTH
    for first in range(0, WIDTH, BLOCK):
        at = first + tl.arange(0, BLOCK)
        inside = (at < WIDTH) & wanted
        tl.store(target + at, tl.load(source + at, mask=inside), mask=inside)


@triton.jit
def gather_kernel(
    latent: tl.tensor,
    latent_out: tl.tensor,
    logits: tl.tensor,
    logits_out: tl.tensor,
    rows: tl.tensor,
    block: tl.tensor,
    P: tl.constexpr,
    LATENT: tl.constexpr,
    LOGITS: tl.constexpr,
    MOST_ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Worker w copies the complete rows w * block, ... of both tensors; a width of 0 is absent.

    latent [P, row, LATENT] int16, logits [P, row, LOGITS] int32.
    """
    start = tl.program_id(0) * block
    for place in range(MOST_ROWS):
        row = start + place
        wanted = (place < block) & (row < rows)
        for rank in range(P):
            if LATENT:
                _copy_row(latent, latent_out, row, rank, wanted, rows, P, LATENT, BLOCK)
            if LOGITS:
                _copy_row(logits, logits_out, row, rank, wanted, rows, P, LOGITS, BLOCK)


def paired_gather(
    latent: tuple[Any, Any] | None, logits: tuple[Any, Any] | None, row_blocks: int = 1
) -> None:
    """Gather both tensors of one exchange on the device; allocates nothing.

    Args:
        latent: shards [rank, row, w] BF16 and out [row, rank * w]; None where absent.
        logits: shards [rank, row, w] float32 and out [row, rank * w]; None where absent.
        row_blocks: workers that copy complete rows, 1 or 2: the first half (rounded up), the rest.

    Raises:
        InputError: ``row_blocks`` or a shape does not fit.
        EnvelopeError: rows that no launch has.
    """
    import torch

    if row_blocks not in (1, 2):
        raise InputError("row_blocks", row_blocks, "1 or 2", "device gather")
    given = [pair for pair in (latent, logits) if pair is not None]
    if not given:
        return
    ranks, rows = given[0][0].shape[:2]
    for name, pair in (("latent", latent), ("logits", logits)):
        if pair is not None:
            _check(name, *pair, ranks, rows)
    check_width(rows, "device gather")
    # An absent tensor is never read: its place is held by the other.
    mine = (latent or logits, torch.int16) if latent is not None else (logits, torch.int32)
    other = (logits or latent, torch.int32) if logits is not None else (latent, torch.int16)
    pointers = [one.view(kind) for pair, kind in (mine, other) for one in pair or ()]
    widths = [0 if pair is None else pair[0].shape[2] for pair in (latent, logits)]
    block = -(-rows // row_blocks)
    launch(
        gather_kernel,
        row_blocks,
        *pointers,
        rows,
        block,
        ranks,
        *widths,
        MAX_WIDTH,
        _BLOCK,
        warps=_WARPS,
    )


def _check(name: str, shards: Any, out: Any, ranks: int, rows: int) -> None:
    shape = (rows, ranks * shards.shape[2])
    fits = tuple(shards.shape[:2]) == (ranks, rows) and tuple(out.shape) == shape
    if (
        not fits
        or shards.dtype != out.dtype
        or not (shards.is_contiguous() and out.is_contiguous())
    ):
        got = f"{shards.dtype}{list(shards.shape)} into {out.dtype}{list(out.shape)}"
        expected = f"[{ranks}, {rows}, w] into [{rows}, {ranks} * w], contiguous, of one dtype"
        raise InputError(name, got, expected, "device gather")
