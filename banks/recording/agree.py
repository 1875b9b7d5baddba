"""Whether ranks that must hold the same rows and weights hold the same bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from ..bank import Array
from ..errors import BankError
from .shard import GATE, LATENT, Shard, spans

STEP: Final = 2048
"""Rows compared at a time."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A rank that holds other bits than most ranks (of equal parts, than the lowest rank's).

    Attributes:
        rank: the odd rank.
        layer: layer number.
        step: call of the gate; None for a weight, or where ranks hold other row counts.
        row: row of that call; None likewise.
        tensor: what differs: a tensor, a key, a weight, or ``rows``.
    """

    rank: int
    layer: int
    step: int | None
    row: int | None
    tensor: str

    def __str__(self) -> str:
        place = "" if self.step is None else f", step {self.step}, row {self.row}"
        return f"rank {self.rank}, layer {self.layer}{place}: {self.tensor}"


class RankDisagreement(BankError):
    """Ranks disagree on what must be the same on each; nothing was merged.

    Attributes:
        found: every place.
    """

    def __init__(self, found: Sequence[Disagreement], where: str) -> None:
        self.found = tuple(found)
        ranks = ", ".join(str(rank) for rank in sorted({one.rank for one in found}))
        got = f"other bits than the other ranks' in {len(found)} places (odd ranks: {ranks})"
        super().__init__(str(found[0]), got, "the same on every rank", where)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by the parts."""
        return type(self), (self.found, self.where)


def odd_ranks(values: Sequence[bytes]) -> list[int]:
    """Return the ranks whose value is not the most frequent one (of equals, the lowest rank's).

    Example:
        >>> odd_ranks([b"a", b"b", b"b"]), odd_ranks([b"a", b"b"])
        ([0], [1])
    """
    agreed = max(values, key=values.count)
    return [rank for rank, value in enumerate(values) if value != agreed]


def disagreements(shards: Sequence[Shard]) -> list[Disagreement]:
    """Return every place where shards of tensor-parallel ranks differ and must not.

    Compared bit for bit: weights and rows with layout ``replicated``, and the keys. Where the ranks
    are data-parallel their rows are other rows, and the weights alone are compared.
    """
    about = shards[0].about
    found: list[Disagreement] = []
    for layer in about.layers:
        number = int(layer.removeprefix("layer"))
        held = [shard.weights(layer) for shard in shards]
        for name in replicated_weights(shards[0]):
            if any(name in weights for weights in held):
                values = [_bits(weights.get(name)) for weights in held]
                found += [Disagreement(r, number, None, None, name) for r in odd_ranks(values)]
        if about.parallel == "tensor":
            for stream in about.layers[layer].streams:
                found += _rows_of(shards, layer, number, stream)
    return found


def replicated_weights(shard: Shard) -> list[str]:
    """Return the names of the weights that every rank must hold whole."""
    layouts, names = shard.about.layouts, ["correction_bias"]
    if layouts["logits"] == "replicated":
        names += ["router_weight", "logit_bias"]
    if layouts["latent"] == "replicated":
        names.append("latent_down_weight")
    return names


def _bits(array: Array | None) -> bytes:
    return b"" if array is None else f"{array.dtype}{array.shape}".encode() + array.tobytes()


def _rows_of(
    shards: Sequence[Shard], layer: str, number: int, stream: Literal["gate", "latent"]
) -> Iterator[Disagreement]:
    counts = [shard.layer(layer).streams[stream].rows for shard in shards]
    if len(set(counts)) > 1:
        odd = odd_ranks([str(count).encode() for count in counts])
        yield from (Disagreement(rank, number, None, None, "rows") for rank in odd)
        return
    about = shards[0].layer(layer).streams[stream]
    pieces = (stream == LATENT) or shards[0].about.layouts["logits"] != "replicated"
    own = {"logits"} if stream == GATE else {"latent"}
    names = [name for name in about.tensors if not (pieces and name in own)]
    names += [key for key in about.keys if key not in ("layer", "step", "row", "rank")]
    tables = [shard.table(layer, stream) for shard in shards]
    for start, stop in spans(counts[0], STEP):
        keys = [tables[0].column(key, start, stop) for key in ("step", "row")]
        for name in ("step", "row", *names):
            columns = [table.column(name, start, stop) for table in tables]
            for place in _differing(columns):
                odd = odd_ranks([column[place].tobytes() for column in columns])
                step, row = (int(key[place]) for key in keys)
                yield from (Disagreement(rank, number, step, row, name) for rank in odd)


def _differing(columns: Sequence[Array]) -> list[int]:
    """Places [row] where any column has other bits than the first."""
    flat = [
        np.ascontiguousarray(column).view(np.uint8).reshape(len(column), -1) for column in columns
    ]
    wrong = np.zeros(len(columns[0]), np.bool_)
    for other in flat[1:]:
        wrong |= (flat[0] != other).any(1)
    return [int(place) for place in np.flatnonzero(wrong)]
