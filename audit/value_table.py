"""The error triangle of every (width, rank, tensor) of a bank, as rows of ``values.parquet``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .error_groups import ErrorTally, RowErrors, UnitOf
from .metrics.values import PairTally, PairValues
from .ranked import Ranked

Pair = Literal["candidate_reference", "baseline_reference", "candidate_baseline"]
PAIRS: tuple[Pair, ...] = ("candidate_reference", "baseline_reference", "candidate_baseline")
TENSORS = ("latent", "logits", "weights")

# actual [row, ...], expected [row, ...], the bank's row numbers [row].
Part = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.int64]]

VALUES_SCHEMA = pa.schema(
    [
        pa.field("bank", pa.string(), nullable=False),
        pa.field("width", pa.int32(), nullable=False),
        pa.field("rank", pa.int32(), metadata={"note": "null: all ranks pooled"}),
        pa.field("tensor", pa.string(), nullable=False),
        pa.field("pair", pa.string(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("elements", pa.int64(), nullable=False),
        pa.field("error_square", pa.float64(), nullable=False),
        pa.field("reference_square", pa.float64(), nullable=False),
        pa.field("relative_rms", pa.float64()),
        pa.field("worst_row", pa.int64()),
        pa.field("worst_row_relative_rms", pa.float64()),
        pa.field("max_ulp", pa.uint64()),
        pa.field("max_ulp_row", pa.int64()),
        pa.field("max_ulp_error", pa.float64()),
        pa.field("undefined", pa.int64(), nullable=False),
    ]
)


Errors = dict[int, RowErrors]
"""By rank, rank 0 and those with bits of their own."""


@dataclass
class ValueTable:
    """All pairs of one bank; its size does not grow with the rows.

    Attributes:
        bank: its name.
        ranks: tensor-parallel ranks.
        pairs: the sides of the triangle by (width, tensor, pair).
        errors: both paths' errors against the reference, row by row, by (width, tensor).
    """

    bank: str
    ranks: int
    pairs: dict[tuple[int, str, Pair], Ranked[PairTally]] = field(default_factory=dict)
    errors: dict[tuple[int, str], Ranked[ErrorTally]] = field(default_factory=dict)

    def add(
        self, width: int, tensor: str, parts: Mapping[Pair, Mapping[int, Part]], units: UnitOf
    ) -> None:
        """Add the same rows of all ranks to the sides of a tensor's triangle.

        Args:
            width: rows per launch.
            tensor: one of ``TENSORS``.
            parts: by side and rank; a rank that is not named holds rank 0's bits.
            units: from row numbers [row] to independence units [row].
        """
        errors = {pair: self._add(width, tensor, pair, by_rank) for pair, by_rank in parts.items()}
        mine, other = errors.get("candidate_reference"), errors.get("baseline_reference")
        if mine is None or other is None:
            return
        added = {}
        for rank in sorted({*mine, *other}):
            added[rank] = ErrorTally()
            added[rank].add(mine.get(rank, mine[0]), other.get(rank, other[0]), units)
        self.errors.setdefault((width, tensor), Ranked(self.ranks, ErrorTally())).add(added)

    def _add(self, width: int, tensor: str, pair: Pair, parts: Mapping[int, Part]) -> Errors:
        errors, added = {}, {}
        for rank, (actual, expected, rows) in parts.items():
            added[rank] = PairTally()
            measures = added[rank].add(actual, expected, rows)
            errors[rank] = RowErrors(
                rows, np.where(measures.comparable, measures.error_square, np.nan)
            )
        self._of(width, tensor, pair).add(added)
        return errors

    def _of(self, width: int, tensor: str, pair: Pair) -> Ranked[PairTally]:
        return self.pairs.setdefault((width, tensor, pair), Ranked(self.ranks, PairTally()))

    def merge(self, other: ValueTable) -> None:
        """Add other rows of the same bank."""
        for key, pair in other.pairs.items():
            self._of(*key).merge(pair)
        for place, errors in other.errors.items():
            self.errors.setdefault(place, Ranked(self.ranks, ErrorTally())).merge(errors)

    def forget(self, width: int) -> None:
        """Drop all pairs of a width."""
        self.pairs = {key: pair for key, pair in self.pairs.items() if key[0] != width}
        self.errors = {key: found for key, found in self.errors.items() if key[0] != width}

    def records(self) -> list[dict[str, Any]]:
        """Return the rows of ``values.parquet`` for this bank."""
        return [
            {
                "bank": self.bank,
                "width": width,
                "rank": rank,
                "tensor": tensor,
                "pair": pair,
                **{name: getattr(values, name) for name in VALUES_SCHEMA.names[5:]},
            }
            for (width, tensor, pair), ranked in self.pairs.items()
            for rank, values in _results(ranked)
        ]


def _results(ranked: Ranked[PairTally]) -> Iterator[tuple[int | None, PairValues]]:
    """Yield (rank, values), then (None, values pooled over the ranks)."""
    first = ranked.first.result()
    for rank in range(ranked.ranks):
        yield rank, ranked.own[rank].result() if rank in ranked.own else first
    yield None, ranked.pooled().result() if ranked.own else first


def values_table(records: list[dict[str, Any]]) -> pa.Table:
    """Return value records as the table of ``values.parquet``."""
    return pa.Table.from_pylist(records, schema=VALUES_SCHEMA)
