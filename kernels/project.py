"""The projection stage: hidden rows times latent and router weights, split over ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from .contract import F32, Bf16
from .gemm import multiply
from .rounding import narrow


def _slices(length: int, ranks: int) -> Iterator[slice]:
    width = length // ranks
    return (slice(rank * width, (rank + 1) * width) for rank in range(ranks))


def latent_partials(hidden: Bf16, weight: Bf16, ranks: int, accumulate: str = "fp64") -> Bf16:
    """K-split partials [rank, row, latent]: each rank's hidden columns, FP32, rounded to BF16.

    Args:
        hidden: [row, hidden] BF16.
        weight: [latent, hidden] BF16.
        ranks: tensor-parallel ranks, a divisor of hidden.
        accumulate: as for ``gemm.multiply``.
    """
    parts = [
        narrow(multiply(hidden, weight, "latent", accumulate, columns=columns))
        for columns in _slices(weight.shape[1], ranks)
    ]
    return np.stack(parts)


def _n_split(hidden: Bf16, weight: npt.NDArray[Any], kind: str, ranks: int, accumulate: str) -> F32:
    """Shards [rank, row, out / ranks] of the full-k product, FP32.

    The exact product of a column does not depend on which columns are computed with it, so it is
    computed once and cut; an FP32 product may depend on it, so each rank computes its own.
    """
    if accumulate == "fp64":
        whole = multiply(hidden, weight, kind, accumulate)
        return np.stack(np.split(whole, ranks, axis=1))
    shards = [
        multiply(hidden, weight, kind, accumulate, outputs=outputs)
        for outputs in _slices(weight.shape[0], ranks)
    ]
    return np.stack(shards)


def latent_shards(hidden: Bf16, weight: Bf16, ranks: int, accumulate: str = "fp64") -> Bf16:
    """N-split shards [rank, row, latent / ranks]: full-k dot products, one rounding to BF16."""
    return narrow(_n_split(hidden, weight, "latent", ranks, accumulate))


def logits_shards(
    hidden: Bf16, weight: npt.NDArray[Any], ranks: int, accumulate: str = "fp64"
) -> F32:
    """N-split router logits [rank, row, expert / ranks] float32; the weight is BF16 or FP32."""
    return _n_split(hidden, weight, "router", ranks, accumulate)
