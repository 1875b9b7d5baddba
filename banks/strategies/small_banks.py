"""Whole small banks, at any stage."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from hypothesis.strategies import DrawFn, SearchStrategy

from ..bank import STAGES, Stage
from ..errors import InputError
from ..memory import MemoryBank, memory_bank
from .draws import Size, size

_BF16 = np.dtype(ml_dtypes.bfloat16)
# Multiples of 1/16 in -8..8 are BF16 numbers. Factors of a product are within -1..1, so that logits
# of it stay where scores are far from 0 and 1.
_STEP = 1 / 16
_MOST = 128
_MOST_OF_FACTOR = 16


def small_banks(
    *,
    stage: Stage | SearchStrategy[Stage] | None = None,
    ranks: Size | None = None,
    rows: Size | None = None,
    experts: Size | None = None,
    top_k: Size | None = None,
) -> SearchStrategy[MemoryBank]:
    """Return banks in memory that an audit, or any reader of banks, takes.

    Values are multiples of 1/16 in -8..8, hidden rows and their weights in -1..1, so ties are
    common. They shrink to one row of zeros at
    stage logits, one rank, one expert selected.

    Args:
        stage: where the rows start; any of ``logits``, ``hidden``, ``partials``, ``shards`` where
            it is left out.
        ranks: tensor-parallel ranks that divide every axis; 1, 2 or 4 where it is left out. A bank
            at stage partials or shards runs at this number alone (``bank.ranks``).
        rows: rows; 1 to 4 where it is left out.
        experts: a multiple of the ranks; up to 8 more than they are where it is left out.
        top_k: experts per row.

    Raises:
        InputError: when it draws: sizes that contradict each other.
    """

    @st.composite
    def banks(draw: DrawFn) -> MemoryBank:
        start = stage if isinstance(stage, str) else draw(_stages() if stage is None else stage)
        parts = size(draw, ranks, st.sampled_from((1, 2, 4)))
        count = size(draw, rows, st.integers(1, 4))
        if parts < 1 or count < 1:
            raise InputError("ranks and rows", f"{parts} and {count}", "at least 1", "small_banks")
        wide = size(draw, experts, st.integers(1, 3).map(lambda n: _least(parts) * n))
        if wide < 1 or wide % parts:
            raise InputError("experts", wide, f"a multiple of {parts} ranks", "small_banks")
        selected = size(draw, top_k, st.integers(1, wide))
        tensors = _tensors(draw, start, parts, count, wide)
        return memory_bank(selected, bias=_values(draw, (wide,), np.float32), **tensors)

    return banks()


def _stages() -> SearchStrategy[Stage]:
    # Rows without inputs run through no path.
    stages: list[Stage] = [name for name in STAGES if name != "outputs"]
    return st.sampled_from(sorted(stages, key=lambda name: name != "logits"))


def _least(ranks: int) -> int:
    """The least number of experts: a row of one has nothing to select from."""
    return max(2, ranks)


def _tensors(draw: DrawFn, stage: Stage, ranks: int, rows: int, experts: int) -> dict[str, Any]:
    """The tensors of a stage, as ``memory_bank`` takes them."""
    if stage == "logits":
        return {"logits": _values(draw, (rows, experts), np.float32)}
    if stage == "hidden":
        width = 2 * ranks
        shapes = {
            "hidden": (rows, width),
            "router_weight": (experts, width),
            "latent_down_weight": (ranks, width),
        }
        return {
            name: _values(draw, shape, _BF16, _MOST_OF_FACTOR) for name, shape in shapes.items()
        }
    piece = {"partials": ("latent_partials", ranks), "shards": ("latent_shards", 1)}
    name, columns = piece[stage]
    return {
        name: _values(draw, (ranks, rows, columns), _BF16),
        "logits_shards": _values(draw, (ranks, rows, experts // ranks), np.float32),
    }


def _values(
    draw: DrawFn, shape: tuple[int, ...], dtype: Any, most: int = _MOST
) -> npt.NDArray[Any]:
    numbers = st.integers(-most, most)
    drawn = draw(arrays(np.int16, shape, elements=numbers, fill=st.just(0)))
    return (drawn * _STEP).astype(dtype)
