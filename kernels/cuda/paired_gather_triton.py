"""The paired gather as one Triton kernel over peers' memory: push writes there, pull reads there.

All data are 32-bit words (two BF16 of the latent, or one FP32 logit), so no value is touched. A
program copies the complete rows of one row block, for one peer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .lang import launch, tl, triton

_WARPS = 16
"""512 threads, as the sign-off's kernel has."""
_TILE_WORDS = 1 << 14
"""Words in flight per program: 32 a thread."""


class Words(NamedTuple):
    """Sizes of one rank's shards of a row, in 32-bit words, and where logits start in a buffer.

    A shard buffer holds [row, latent] and, from ``shard_logits`` on, [row, logits]; a whole buffer
    holds [row, ranks * latent] and, from ``whole_logits`` on, [row, ranks * logits].
    """

    latent: int
    logits: int
    shard_logits: int
    whole_logits: int


@triton.jit
def _copy(
    source: tl.tensor,
    source_stride: tl.tensor,
    target: tl.tensor,
    target_stride: tl.tensor,
    first: tl.tensor,
    last: tl.tensor,
    words: tl.constexpr,
    block: tl.constexpr,
    tile: tl.constexpr,
    tiles: tl.constexpr,
) -> None:
    column = tl.arange(0, block)[None, :]
    for step in tl.static_range(tiles):
        row = first + step * tile + tl.arange(0, tile)[:, None]
        inside = (row < last) & (column < words)
        values = tl.load(source + row * source_stride + column, mask=inside)
        tl.store(target + row * target_stride + column, values, mask=inside)


@triton.jit
def _paired_gather(
    peers: tl.tensor,
    near: tl.tensor,
    rank: tl.tensor,
    rows: tl.tensor,
    row_blocks: tl.tensor,
    near_logits: tl.tensor,
    far_logits: tl.tensor,
    latent: tl.constexpr,
    latent_block: tl.constexpr,
    latent_tile: tl.constexpr,
    latent_tiles: tl.constexpr,
    logits: tl.constexpr,
    logits_block: tl.constexpr,
    logits_tile: tl.constexpr,
    logits_tiles: tl.constexpr,
    ranks: tl.constexpr,
    push: tl.constexpr,
) -> None:
    program = tl.program_id(0)
    part = program % row_blocks
    # Every rank starts with another peer.
    peer = (rank + program // row_blocks) % ranks
    height = (rows + row_blocks - 1) // row_blocks
    first = part * height
    last = tl.minimum(first + height, rows)
    far = tl.load(peers + peer).to(tl.pointer_type(tl.int32))
    if push:
        _copy(
            near,
            latent,
            far + rank * latent,
            latent * ranks,
            first,
            last,
            latent,
            latent_block,
            latent_tile,
            latent_tiles,
        )
        _copy(
            near + near_logits,
            logits,
            far + far_logits + rank * logits,
            logits * ranks,
            first,
            last,
            logits,
            logits_block,
            logits_tile,
            logits_tiles,
        )
    else:
        _copy(
            far,
            latent,
            near + peer * latent,
            latent * ranks,
            first,
            last,
            latent,
            latent_block,
            latent_tile,
            latent_tiles,
        )
        _copy(
            far + far_logits,
            logits,
            near + near_logits + peer * logits,
            logits * ranks,
            first,
            last,
            logits,
            logits_block,
            logits_tile,
            logits_tiles,
        )


def paired_gather(
    peers: Any,
    near: Any,
    words: Words,
    rank: int,
    ranks: int,
    rows: int,
    row_blocks: int,
    push: bool,
) -> None:
    """Enqueue the copies of one rank.

    Args:
        peers: [rank] int64, the addresses of all ranks' buffers: whole ones for push, shards for
            pull.
        near: int32 tensor of the own buffer: the shard for push, the whole for pull.
        words: sizes and places.
        rank: the own rank.
        ranks: their number.
        rows: rows of the launch.
        row_blocks: programs that split the rows of one peer, 1 or 2.
        push: write the own shard into every rank's whole buffer, the own one too; otherwise read
            every rank's shard into the own whole buffer.
    """
    near_logits = words.shard_logits if push else words.whole_logits
    far_logits = words.whole_logits if push else words.shard_logits
    blocks = [_power_of_two(count) for count in (words.latent, words.logits)]
    height = -(-rows // row_blocks)
    tiles = [max(1, min(_power_of_two(height), _TILE_WORDS // block)) for block in blocks]
    launch(
        _paired_gather,
        row_blocks * ranks,
        peers,
        near,
        rank,
        rows,
        row_blocks,
        near_logits,
        far_logits,
        words.latent,
        blocks[0],
        tiles[0],
        -(-height // tiles[0]),
        words.logits,
        blocks[1],
        tiles[1],
        -(-height // tiles[1]),
        ranks,
        push,
        warps=_WARPS,
    )


def _power_of_two(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length()
