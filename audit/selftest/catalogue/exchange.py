"""Faults of the exchange: layouts, blocks of rows, and the order of a reduction."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np

from ....kernels.contract import F32, Bf16, Launch, Path, Routed
from ....kernels.project import latent_partials
from ....kernels.reduce import reduce_partials
from ..fault import ODD_ROWS, SEVERAL_RANKS, SEVERAL_ROWS, THREE_RANKS, Fault, Need, always
from ..loops import held, select_again
from ..scenes import FRONT, GENERAL_FRONT, PARTIALS

_PAD: Final = 8
_FOUR_RANKS: Final = Need(
    lambda width, ranks: ranks > 3, "up to three ranks are added in one order by both schedules"
)


def _shards(logits: F32, ranks: int) -> F32:
    """The gathered buffer [rank, row, expert / ranks] as it lies in memory."""
    rows, experts = logits.shape
    return np.ascontiguousarray(logits.reshape(rows, ranks, experts // ranks).transpose(1, 0, 2))


def _shown(clean: Path, launch: Launch, out: Routed, logits: F32) -> None:
    """Every rank holds these logits after the exchange, and selects from them."""
    assert out.logits is not None
    out.logits[:] = logits
    select_again(clean, launch, out, held(launch, out))


def _rank_major(clean: Path, launch: Launch, out: Routed) -> None:
    """The gather leaves one shard after the other; the view takes them for rows."""
    clean.run(launch, out)
    logits = held(launch, out)
    _shown(clean, launch, out, _shards(logits, launch.ranks).reshape(logits.shape))


def _rank_major_in_select(clean: Path, launch: Launch, out: Routed) -> None:
    clean.run(launch, out)
    logits = held(launch, out)
    select_again(clean, launch, out, _shards(logits, launch.ranks).reshape(logits.shape))


def _ranks_rotated(clean: Path, launch: Launch, out: Routed) -> None:
    """Each shard lies one place further than its rank."""
    clean.run(launch, out)
    shards = _shards(held(launch, out), launch.ranks)
    moved = np.roll(shards, 1, axis=0).transpose(1, 0, 2)
    _shown(clean, launch, out, np.ascontiguousarray(moved).reshape(launch.rows, -1))


def _unpadded(logits: F32) -> F32:
    """A buffer with padded rows, read as if it had none."""
    rows, experts = logits.shape
    buffer = np.zeros((rows, experts + _PAD), np.float32)
    buffer[:, :experts] = logits
    return buffer.ravel()[: rows * experts].reshape(rows, experts)


def _padded_stride(clean: Path, launch: Launch, out: Routed) -> None:
    clean.run(launch, out)
    _shown(clean, launch, out, _unpadded(held(launch, out)))


def _padded_stride_in_select(clean: Path, launch: Launch, out: Routed) -> None:
    clean.run(launch, out)
    select_again(clean, launch, out, _unpadded(held(launch, out)))


def _second_block_reads_the_first(clean: Path, launch: Launch, out: Routed) -> None:
    """Two workers copy half of the rows each; the second starts to read at row 0 again."""
    clean.run(launch, out)
    block = -(-launch.rows // 2)
    rest = launch.rows - block
    for tensor in (out.latent, out.logits):
        if tensor is not None:
            tensor[:, block:] = tensor[:, :rest]
    select_again(clean, launch, out, held(launch, out))


def _odd_row_lost(clean: Path, launch: Launch, out: Routed) -> None:
    """Two workers copy ``rows // 2`` rows each: the last of an odd number is nobody's."""
    copied = launch.rows // 2 * 2
    before: list[tuple[Any, Any]] = [
        (tensor, tensor[:, copied:].copy())
        for tensor in (out.latent, out.logits, out.ids, out.weights)
        if tensor is not None
    ]
    clean.run(launch, out)
    # The select reads what the row held before: no number, so it writes nothing either.
    for tensor, rest in before:
        tensor[:, copied:] = rest


def _shard_missing(clean: Path, launch: Launch, out: Routed) -> None:
    """The last rank's shard of the logits never arrives."""
    assert out.logits is not None
    start = out.logits.shape[2] // launch.ranks * (launch.ranks - 1)
    before = out.logits[:, :, start:].copy()
    clean.run(launch, out)
    out.logits[:, :, start:] = before
    select_again(clean, launch, out, held(launch, out))


def _own_rank_first(clean: Path, launch: Launch, out: Routed) -> None:
    clean.run(launch, out)
    assert out.latent is not None
    assert launch.latent_partials is not None
    reduce_partials("own_rank_first_fp32", launch.latent_partials, out.latent, launch.width)


def _partials(launch: Launch) -> Bf16:
    assert launch.hidden is not None
    assert launch.weights.latent is not None
    return latent_partials(launch.hidden, launch.weights.latent, launch.ranks)


def _tree(clean: Path, launch: Launch, out: Routed) -> None:
    clean.run(launch, out)
    assert out.latent is not None
    reduce_partials("tree_bf16", _partials(launch), out.latent, launch.width)


def _quantised_partials(clean: Path, launch: Launch, out: Routed) -> None:
    """Each rank rounds its partial to FP8 with a scale of its own before the reduction."""
    clean.run(launch, out)
    if launch.ranks == 1:
        return
    assert out.latent is not None
    partials = _partials(launch)
    wide = partials.astype(np.float32)
    largest = np.abs(wide).max(axis=(1, 2), keepdims=True)
    scale = np.where(largest > 0, largest, 1) / np.float32(448.0)
    coarse = (wide / scale).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * scale
    reduce_partials("one_shot_fp32", coarse.astype(partials.dtype), out.latent, launch.width)


def _partial_as_total(clean: Path, launch: Launch, out: Routed) -> None:
    clean.run(launch, out)
    assert out.latent is not None
    out.latent[:] = _partials(launch)


FAULTS: Final = (
    Fault(
        "rank_major_read_as_row_major",
        "the gathered shards are viewed as rows without moving the rank axis",
        "radixark/miles#3146",
        (FRONT,),
        always(_rank_major),
        ("layout_permutation",),
        (SEVERAL_RANKS, SEVERAL_ROWS),
    ),
    Fault(
        "rank_major_read_by_the_select",
        "the logits are gathered rightly, and the select alone reads them rank-major",
        "NVIDIA/Model-Optimizer#1804",
        (FRONT,),
        always(_rank_major_in_select),
        ("layout_permutation",),
        (SEVERAL_RANKS, SEVERAL_ROWS),
    ),
    Fault(
        "shards_in_rotated_order",
        "each rank's shard lies in the next rank's place",
        "vllm-ascend#14345",
        (FRONT,),
        always(_ranks_rotated),
        ("layout_permutation",),
        (SEVERAL_RANKS,),
    ),
    Fault(
        "padded_stride",
        "rows with padding behind them are read without it",
        "a row stride taken for the row length",
        (FRONT,),
        always(_padded_stride),
        ("stride",),
        (SEVERAL_ROWS,),
    ),
    Fault(
        "padded_stride_in_the_select",
        "the select alone reads padded rows without their padding",
        "a row stride taken for the row length",
        (FRONT,),
        always(_padded_stride_in_select),
        ("stride",),
        (SEVERAL_ROWS,),
    ),
    Fault(
        "row_block_reads_the_first",
        "the second worker copies the first one's rows",
        "a block offset left out",
        (FRONT,),
        always(_second_block_reads_the_first),
        ("repeated_rows",),
        (SEVERAL_ROWS,),
    ),
    Fault(
        "row_block_loses_the_odd_row",
        "two workers copy rows // 2 rows each, so the last of an odd number stays unwritten",
        "a partition rounded down",
        (FRONT,),
        always(_odd_row_lost),
        ("unwritten_rows",),
        (ODD_ROWS,),
    ),
    Fault(
        "shard_of_one_rank_missing",
        "the last rank's logits never arrive",
        "a rank that left early",
        (FRONT,),
        always(_shard_missing),
        ("unwritten_rows",),
    ),
    Fault(
        "own_rank_first_reduction",
        "each rank adds its own partial first, so the ranks end with other sums",
        "an all-reduce that starts at the own rank",
        (PARTIALS,),
        always(_own_rank_first),
        ("rank_disagreement",),
        (THREE_RANKS,),
    ),
    Fault(
        "undeclared_tree_reduction",
        "partials are added in pairs with a BF16 rounding at each level; one rounding is declared",
        "an all-reduce chosen by message size",
        (GENERAL_FRONT,),
        always(_tree),
        ("schedule_mismatch",),
        (_FOUR_RANKS,),
    ),
    Fault(
        "nonlinear_step_before_the_reduction",
        "each rank rounds its partial to FP8 with its own scale before the partials are added",
        "vllm-ascend#14345",
        (GENERAL_FRONT,),
        always(_quantised_partials),
        ("schedule_mismatch",),
        (SEVERAL_RANKS,),
    ),
    Fault(
        "partial_read_as_total",
        "the reduction is left out: every rank goes on with its own partial",
        "nnsight#685",
        (GENERAL_FRONT,),
        always(_partial_as_total),
        ("schedule_mismatch",),
        (SEVERAL_RANKS,),
        ("rank_disagreement",),
    ),
)
