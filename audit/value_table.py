"""The error triangle of every (width, rank, tensor) of a bank, as rows of ``values.parquet``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .metrics.values import PairTally, PairValues

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


@dataclass
class RankedPair:
    """One pair of one tensor over the ranks; ranks with rank 0's bits share its tally."""

    ranks: int
    first: PairTally = field(default_factory=PairTally)
    own: dict[int, PairTally] = field(default_factory=dict)

    def add(self, parts: Mapping[int, Part]) -> None:
        """Add the same rows of all ranks; a rank that is not named holds rank 0's bits."""
        before = _copy(self.first)
        added: dict[int, PairTally] = {}
        for rank, (actual, expected, rows) in parts.items():
            added[rank] = PairTally()
            added[rank].add(actual, expected, rows)
        for rank in range(1, self.ranks):
            if rank in added and rank not in self.own:
                self.own[rank] = _copy(before)
            if rank in self.own:
                self.own[rank].merge(added.get(rank, added[0]))
        self.first.merge(added[0])

    def results(self) -> Iterator[tuple[int | None, PairValues]]:
        """Yield (rank, values), then (None, values pooled over the ranks)."""
        first = self.first.result()
        for rank in range(self.ranks):
            yield rank, self.own[rank].result() if rank in self.own else first
        yield None, self.pooled().result() if self.own else first

    def pooled(self) -> PairTally:
        """Return the tally over all ranks; replicas of rank 0 add nothing and are left out."""
        if not self.own:
            return self.first
        total = _copy(self.first)
        for rank in range(1, self.ranks):
            total.merge(self.own.get(rank, self.first))
        return total


def _copy(tally: PairTally) -> PairTally:
    """The same rows in a tally of its own; the measures themselves never change."""
    result = PairTally()
    result.merge(tally)
    return result


@dataclass
class ValueTable:
    """All pairs of one bank."""

    bank: str
    ranks: int
    pairs: dict[tuple[int, str, Pair], RankedPair] = field(default_factory=dict)

    def of(self, width: int, tensor: str, pair: Pair) -> RankedPair:
        """Return the pair's tally, made on first use."""
        return self.pairs.setdefault((width, tensor, pair), RankedPair(self.ranks))

    def forget(self, width: int) -> None:
        """Drop all pairs of a width."""
        self.pairs = {key: pair for key, pair in self.pairs.items() if key[0] != width}

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
            for rank, values in ranked.results()
        ]


def values_table(records: list[dict[str, Any]]) -> pa.Table:
    """Return value records as the table of ``values.parquet``."""
    return pa.Table.from_pylist(records, schema=VALUES_SCHEMA)
