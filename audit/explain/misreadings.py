"""Ways in which a path may misread where its logits lie, each as the logits it would then see."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from .cases import F32, Case

# All orders of up to 4 ranks are tried; beyond that rotations, reversal and exchanged neighbours.
_MOST_PERMUTED = 4
_MOST_STRIDES = 1_024

Reading = tuple[str, F32]


def shards_of(logits: F32, ranks: int) -> F32:
    """Cut logits [row, expert] into shards [rank, row, expert / ranks] of consecutive experts."""
    rows, experts = logits.shape
    return np.ascontiguousarray(logits.reshape(rows, ranks, experts // ranks).transpose(1, 0, 2))


def gathered(shards: F32) -> F32:
    """Put shards [rank, row, expert / ranks] side by side: logits [row, expert], rank-major."""
    ranks, rows, width = shards.shape
    return np.ascontiguousarray(shards.transpose(1, 0, 2)).reshape(rows, ranks * width)


def layouts(case: Case) -> Iterator[Reading]:
    """Yield the misread layouts of a gather over ranks; nothing where no ranks are told."""
    shards = case.shards
    if shards is None:
        if case.ranks is None or case.experts % case.ranks:
            return
        shards = shards_of(case.logits_a, case.ranks)
    ranks, rows, width = shards.shape
    shape = (rows, ranks * width)
    yield "rank-major buffer read as row-major", shards.reshape(shape)
    yield "row-major buffer read as rank-major", gathered(gathered(shards).reshape(shards.shape))
    for order in _rank_orders(ranks):
        yield f"ranks in the order {list(order)}", gathered(shards[list(order)])
    yield "experts interleaved over ranks", shards.transpose(1, 2, 0).reshape(shape)
    yield "expert-major buffer read as row-major", gathered(shards).T.reshape(shape)
    for rank in range(ranks):
        yield f"shard of rank {rank} in every place", np.tile(shards[rank], (1, ranks))


def _rank_orders(ranks: int) -> Iterator[tuple[int, ...]]:
    order = tuple(range(ranks))
    if ranks <= _MOST_PERMUTED:
        yield from itertools.islice(itertools.permutations(order), 1, None)
        return
    yield order[::-1]
    for first in range(1, ranks):
        yield order[first:] + order[:first]
    for bit in (1, 2, 4):
        if bit < ranks and ranks % (2 * bit) == 0:
            yield tuple(rank ^ bit for rank in order)


def strides(case: Case) -> Iterator[Reading]:
    """Yield the padded buffer read with each other row stride, the expert count first."""
    if case.buffer is None or case.stride is None:
        return
    buffer, rows, experts = case.buffer, case.rows, case.experts
    likely = [s for s in (experts, case.pad_to) if s is not None]
    longest = (len(buffer) - experts) // max(rows - 1, 1)
    others = range(1, min(longest, _MOST_STRIDES) + 1)
    for stride in dict.fromkeys([*likely, *others]):
        if stride != case.stride and (rows - 1) * stride + experts <= len(buffer):
            index = np.arange(rows)[:, None] * stride + np.arange(experts)
            yield f"row stride {stride} instead of {case.stride}", buffer[index]


def same_elements(logits: F32, misread: F32) -> bool:
    """Whether both hold the same numbers, in any order, bit for bit."""
    return bool(
        np.array_equal(np.sort(logits.view(np.uint32).ravel()), np.sort(_bits(misread).ravel()))
    )


def _bits(values: F32) -> np.ndarray[tuple[int, ...], np.dtype[np.uint32]]:
    return np.ascontiguousarray(values).view(np.uint32)
