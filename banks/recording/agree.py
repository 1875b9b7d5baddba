"""Whether ranks that must hold the same rows and weights hold the same bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from ..bank import Array
from ..errors import BankError
from .shard import GATE, LATENT, Shard, spans

STEP: Final = 2048
"""Rows compared at a time."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A rank that holds other bits than most ranks; or ranks of which none is in the minority.

    Attributes:
        rank: the odd rank; None where as many ranks hold other bits (of two, always): who is wrong
            cannot be known.
        layer: layer number.
        step: call of the gate; None for a weight, or where ranks hold other row counts.
        row: row of that call; None likewise.
        tensor: what differs: a tensor, a key, a weight, or ``rows``.
        sides: the ranks that hold equal bits, together; the side of the lowest rank first.
        counts: rows of each side, where ``tensor`` is ``rows``; else empty.
    """

    rank: int | None
    layer: int
    step: int | None
    row: int | None
    tensor: str
    sides: tuple[tuple[int, ...], ...]
    counts: tuple[int, ...] = ()

    def __str__(self) -> str:
        place = "" if self.step is None else f", step {self.step}, row {self.row}"
        return f"{self.who}, layer {self.layer}{place}: {self.tensor}"

    @property
    def counted(self) -> str:
        """``20 on ranks 0, 2; 15 on rank 1``; empty where no rows are counted."""
        sides = zip(self.sides, self.counts, strict=False)
        return "; ".join(
            f"{count} on {'rank' if len(side) == 1 else 'ranks'} {', '.join(map(str, side))}"
            for side, count in sides
        )

    @property
    def who(self) -> str:
        """``rank 2``, or ``ranks 0 and 1 differ``."""
        if self.rank is not None:
            return f"rank {self.rank}"
        texts = [", ".join(map(str, side)) for side in self.sides]
        if all(len(side) == 1 for side in self.sides):
            return f"ranks {', '.join(texts[:-1])} and {texts[-1]} differ"
        return f"ranks {' and ranks '.join(texts)} differ"


class RankDisagreement(BankError):
    """Ranks disagree on what must be the same on each; nothing was merged.

    Attributes:
        found: every place.
    """

    def __init__(self, found: Sequence[Disagreement], where: str) -> None:
        self.found = tuple(found)
        odd = sorted({one.rank for one in found if one.rank is not None})
        named = [f"odd ranks: {', '.join(map(str, odd))}"] if odd else []
        if any(one.rank is None for one in found):
            named.append("no side has the most ranks: which is wrong cannot be known")
        got = f"{_first_in_words(self.found)} ({'; '.join(named)})"
        super().__init__(str(found[0]), got, "the same on every rank", where)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by the parts."""
        return type(self), (self.found, self.where)


def _first_in_words(found: Sequence[Disagreement]) -> str:
    """What the first place is, of how many."""
    first = found[0]
    number = sum((one.layer, one.tensor) == (first.layer, first.tensor) for one in found)
    places = "place" if number == 1 else "places"
    text = (
        first.counted or f"other bits than the other ranks' in {number} {places} of {first.tensor}"
    )
    return text if len(found) == 1 else f"{text}; {len(found)} places in all"


def sides_of(values: Sequence[bytes]) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of each value, in the order of their lowest ranks.

    Example:
        >>> sides_of([b"a", b"b", b"a"])
        ((0, 2), (1,))
    """
    sides: dict[bytes, list[int]] = {}
    for rank, value in enumerate(values):
        sides.setdefault(value, []).append(rank)
    return tuple(tuple(side) for side in sides.values())


def odd_ranks(sides: Sequence[Sequence[int]]) -> list[int]:
    """Return the ranks outside the largest side; none where there is no one largest.

    Example:
        >>> odd_ranks([[0], [1, 2]]), odd_ranks([[0], [1]])
        ([0], [])
    """
    most = max(len(side) for side in sides)
    if sum(len(side) == most for side in sides) > 1:
        return []
    return sorted(rank for side in sides for rank in side if len(side) < most)


def _disagree(
    values: Sequence[bytes], layer: int, step: int | None, row: int | None, tensor: str
) -> Iterator[Disagreement]:
    """One for each odd rank; one for all ranks where none is odd; none of equal values."""
    sides = sides_of(values)
    if len(sides) > 1:
        for rank in odd_ranks(sides) or (None,):
            yield Disagreement(rank, layer, step, row, tensor, sides)


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
                found += _disagree(values, number, None, None, name)
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
        held = [str(n).encode() for n in counts]
        for one in _disagree(held, number, None, None, "rows"):
            yield replace(one, counts=tuple(counts[side[0]] for side in one.sides))
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
                step, row = (int(key[place]) for key in keys)
                held = [column[place].tobytes() for column in columns]
                yield from _disagree(held, number, step, row, name)


def _differing(columns: Sequence[Array]) -> list[int]:
    """Places [row] where any column has other bits than the first."""
    flat = [
        np.ascontiguousarray(column).view(np.uint8).reshape(len(column), -1) for column in columns
    ]
    wrong = np.zeros(len(columns[0]), np.bool_)
    for other in flat[1:]:
        wrong |= (flat[0] != other).any(1)
    return [int(place) for place in np.flatnonzero(wrong)]
