"""Which ranks hold bits of their own, and the rows that each of them adds to the triangle."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..kernels.contract import Routed
from .launching import same_bits
from .metrics.findings import same_as_expected
from .metrics.weights import align
from .value_table import Part


def distinct_ranks(a: Routed, b: Routed) -> list[tuple[int, int]]:
    """Return (rank, replicas): ranks that hold rank 0's selections are counted with it."""
    ranks = len(a.ids)
    same = [True] * ranks
    for array in (a.ids, a.weights, b.ids, b.weights):
        same = [s and f for s, f in zip(same, same_as_first(array), strict=True)]
    return [(0, sum(same)), *((rank, 1) for rank in range(ranks) if not same[rank])]


def aligned(
    actual: tuple[npt.NDArray[np.int32], npt.NDArray[Any]],
    expected: tuple[npt.NDArray[np.int32], npt.NDArray[Any]],
    first_row: int,
) -> Part:
    """Return both sides' weights in ascending order of id, on rows with equal sets."""
    rows = np.flatnonzero(same_as_expected(actual[0], expected[0]))
    x, y = align(actual[0][rows], actual[1][rows], expected[0][rows], expected[1][rows])
    return x, y, rows.astype(np.int64) + first_row


def rank_parts(
    actual: npt.NDArray[Any], expected: npt.NDArray[Any], rows: npt.NDArray[np.int64]
) -> dict[int, Part]:
    """The parts of rank 0 and of the ranks that hold other bits, on either side."""
    shared = expected.ndim < actual.ndim
    same = same_as_first(actual)
    if not shared:
        same = [p and q for p, q in zip(same, same_as_first(expected), strict=True)]
    return {
        rank: (actual[rank], expected if shared else expected[rank], rows)
        for rank in range(len(actual))
        if rank == 0 or not same[rank]
    }


def same_as_first(array: npt.NDArray[Any]) -> list[bool]:
    """Return, for each rank of [rank, ...], whether it holds rank 0's bits."""
    return [rank == 0 or same_bits(array[rank], array[0]) for rank in range(len(array))]
