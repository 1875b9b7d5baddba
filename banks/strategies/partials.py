"""Rank partials whose sum tells in which order, and with which roundings, they were added."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from ..errors import InputError
from .draws import Size, size

_BF16 = np.dtype(ml_dtypes.bfloat16)


class SumOrder(StrEnum):
    """What a column of partials tells apart.

    ``ROUNDINGS``: FP32 accumulation with one rounding at the end from a BF16 rounding at each hop,
    level or island. ``FIRST_RANK``: FP32 sums that start at rank 0 from those that start elsewhere,
    so ranks that start at themselves disagree.
    """

    ROUNDINGS = "roundings"
    FIRST_RANK = "first_rank"


def order_partials(
    *,
    ranks: Size | None = None,
    rows: Size | None = None,
    latent: Size | None = None,
    tells: SumOrder | None = None,
) -> SearchStrategy[npt.NDArray[Any]]:
    """Return partials [rank, row, latent] BF16 of which one column's sum depends on the order.

    In that column, up to sign and a power of two, ranks 0, 1 and P/2 hold 1, 2^-8, 2^-8, which add
    up to 1 + 2^-7 in FP32 and to 1 where 1 + 2^-8, a tie, is rounded to BF16 on the way; or 1,
    2^-24, -1, which add up to 0 in FP32 from rank 0 on, where 1 + 2^-24 is a tie, and to 2^-24 from
    rank 1 on. The other ranks hold 0, the other columns multiples of 1/8, which every order adds up
    to the same. They shrink to 4 ranks, one row, one column.

    Args:
        ranks: a power of two from 4 on: two numbers add up to the same in any order. 4 or 8 where
            it is left out.
        rows: rows; 1 to 3 where it is left out.
        latent: columns; 1 to 3 where it is left out.
        tells: what the column tells apart; either where it is left out.

    Raises:
        InputError: when it draws: sizes that are out of range.
    """

    @st.composite
    def partials(draw: DrawFn) -> npt.NDArray[Any]:
        count = size(draw, ranks, st.sampled_from((4, 8)))
        if count < 4 or count & (count - 1):
            raise InputError("ranks", count, "a power of two from 4 on", "order_partials")
        shape = (count, *(size(draw, given, st.integers(1, 3)) for given in (rows, latent)))
        if min(shape) < 1:
            raise InputError("shape", shape, "no empty axis", "order_partials")
        kind = draw(st.sampled_from(SumOrder)) if tells is None else tells
        small, last = (2.0**-8, 2.0**-8) if kind is SumOrder.ROUNDINGS else (2.0**-24, -1.0)
        column = np.zeros(count)
        column[[0, 1, count // 2]] = 1.0, small, last
        column *= draw(st.sampled_from((1.0, -1.0))) * 2.0 ** draw(st.integers(0, 8))
        result = _others(draw, shape)
        row, place = (draw(st.integers(0, axis - 1)) for axis in shape[1:])
        result[:, row, place] = column
        return result.astype(_BF16)

    return partials()


def _others(draw: DrawFn, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Multiples of 1/8 whose sums over the ranks have at most 8 bits: exact in BF16 in any order.

    [rank, row, latent].
    """
    # Ranks times 7 eighths stay below 256 eighths up to 32 ranks; more ranks get zeros.
    most = 7 if shape[0] <= 32 else 0
    seed = draw(st.integers(0, 2**16))
    if seed == 0:
        return np.zeros(shape)
    return np.random.default_rng(seed).integers(-most, most + 1, shape) / 8
