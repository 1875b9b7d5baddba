"""The paired gather: latent and logits shards copied rank by rank, without any arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..banks.errors import InputError


def _bits(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same memory as unsigned integers: copying those cannot touch a NaN or a sign."""
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


def gather(shards: npt.NDArray[Any], out: npt.NDArray[Any], row_blocks: int = 1) -> None:
    """Copy shards [rank, row, column] to ``out[row, r * w : (r + 1) * w]`` for each rank r.

    Args:
        shards: [rank, row, w] of any dtype.
        out: [row, rank * w] of the same dtype, written completely.
        row_blocks: 1, or 2 workers that copy complete rows: the first half (rounded up), the rest.

    Raises:
        InputError: ``row_blocks`` or a shape does not fit.
    """
    ranks, rows, width = shards.shape
    if row_blocks not in (1, 2):
        raise InputError("row_blocks", row_blocks, "1 or 2", "gather")
    if out.shape != (rows, ranks * width) or out.dtype != shards.dtype:
        got, expected = f"{out.dtype}{list(out.shape)}", f"{shards.dtype}{[rows, ranks * width]}"
        raise InputError("out", got, expected, "gather")
    block = -(-rows // row_blocks)
    source, target = _bits(shards), _bits(out)
    for first in range(0, rows, max(block, 1)):
        part = slice(first, first + block)
        for rank in range(ranks):
            target[part, rank * width : (rank + 1) * width] = source[rank, part]


def paired_gather(
    latent: tuple[npt.NDArray[Any], npt.NDArray[Any]] | None,
    logits: tuple[npt.NDArray[Any], npt.NDArray[Any]] | None,
    row_blocks: int = 1,
) -> None:
    """Gather both tensors of one exchange; each is a pair (shards, out), or None where absent."""
    for pair in (latent, logits):
        if pair is not None:
            gather(*pair, row_blocks=row_blocks)
