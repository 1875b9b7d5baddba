"""Where a path read its logits: layouts and strides that reproduce what it shows or selects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..banks.bank import Bank
from ..kernels.contract import F32
from ..kernels.reference import reference_select
from .explain.misreadings import gathered, shards_of
from .metrics.findings import Finding, bits, same_as_expected

Bools = npt.NDArray[np.bool_]

CLEAR_ULP: Final = 64
"""A boundary gap that no score form of the paths closes (they reach 8 ULP): such a row must fit."""
TRIED_LAUNCHES: Final = 4
_ALIGNMENTS: Final = (16, 32, 64, 128, 256, 512, 1024)
_PADS: Final = (*range(1, 33), 48, 64, 96, 128)


@dataclass(frozen=True, eq=False)
class Reading:
    """Logits as a path may have seen them.

    Attributes:
        finding: what it is, in one word.
        text: what it is, in a sentence.
        logits: [row, expert] float32.
        known: [row, expert] whether the element is one of the launch's logits; padding is not.
    """

    finding: Finding
    text: str
    logits: F32
    known: Bools | None = None

    def shown_by(self, seen: F32) -> bool:
        """Whether logits [row, expert] have this reading's bits, padding left aside."""
        same = bits(np.ascontiguousarray(seen)) == bits(self.logits)
        return bool((same if self.known is None else same | ~self.known).all())


def readings(logits: F32, ranks: int) -> Iterator[Reading]:
    """Yield the ways in which one launch's logits [row, expert] may be misread."""
    rows, experts = logits.shape
    if ranks > 1:
        yield from _layouts(logits, ranks)
    if rows > 1:
        pads = [-experts % alignment for alignment in _ALIGNMENTS]
        for pad in dict.fromkeys(p for p in (*pads, *_PADS) if p):
            yield from _strides(logits, pad)


def _layouts(logits: F32, ranks: int) -> Iterator[Reading]:
    kind, shards = Finding.LAYOUT_PERMUTATION, shards_of(logits, ranks)
    if len(logits) > 1:
        yield Reading(kind, "rank-major logits are read as row-major", shards.reshape(logits.shape))
        yield Reading(
            kind, "row-major logits are read as rank-major", gathered(logits.reshape(shards.shape))
        )
    for turn in range(1, ranks):
        text = f"shards lie {turn} places after their rank's"
        yield Reading(kind, text, gathered(np.roll(shards, turn, axis=0)))
    if ranks > 2:
        yield Reading(kind, "shards lie in reverse order", gathered(shards[::-1]))


def _strides(logits: F32, pad: int) -> Iterator[Reading]:
    """Rows with ``pad`` elements behind them, read as if there were none."""
    rows, experts = logits.shape
    text = f"rows of stride {experts + pad} are read with stride {experts}"
    for filling in (0.0, -np.inf):
        buffer = np.full((rows, experts + pad), filling, np.float32)
        buffer[:, :experts] = logits
        known = np.zeros(buffer.shape, np.bool_)
        known[:, :experts] = True
        first = slice(0, rows * experts)
        yield Reading(
            Finding.STRIDE,
            text,
            buffer.reshape(-1)[first].reshape(logits.shape),
            known.reshape(-1)[first].reshape(logits.shape),
        )


def whole_launches(values: npt.NDArray[Any], width: int) -> list[npt.NDArray[Any]]:
    """Cut rows into launches as they were run: the last one is filled up with the first rows."""
    rows = len(values)
    index = np.arange(-(-rows // width) * width) % rows
    return [values[index[start : start + width]] for start in range(0, rows, width)]


def misread_shown(right: F32, shown: F32, width: int, ranks: int) -> Reading | None:
    """The reading of the right logits [row, expert] that a path's shown ones are, bit for bit."""
    launches = whole_launches(right, width)
    for reading in readings(launches[0], ranks):
        rows = min(width, len(shown))
        first = Reading(
            reading.finding,
            reading.text,
            reading.logits[:rows],
            None if reading.known is None else reading.known[:rows],
        )
        if first.shown_by(shown[:rows]) and not np.array_equal(
            bits(first.logits), bits(np.ascontiguousarray(right[:rows]))
        ):
            return reading
    return None


def misread_by_select(
    bank: Bank, logits: F32, bias: F32, ids: npt.NDArray[np.int32], width: int, ranks: int
) -> Reading | None:
    """The reading of logits [row, expert] that gives a path's ids [row, slot], the right one not.

    Every row of the first launches must fit whose last slot is ``CLEAR_ULP`` from the next expert.
    """
    launches = whole_launches(logits, width)[:TRIED_LAUNCHES]
    tried = ids[: len(launches) * width]
    every = [list(readings(launch, ranks)) for launch in launches]
    for number, first in enumerate(every[0]):
        # The last row is the furthest from its place under any reading.
        rows = min(width, len(tried))
        if not _fits(bank, first.logits[rows - 1 : rows], bias, tried[rows - 1 : rows]):
            continue
        whole = np.concatenate([one[number].logits for one in every])[: len(tried)]
        if _fits(bank, whole, bias, tried) and not _fits(
            bank, logits[: len(tried)].astype(np.float32), bias, tried
        ):
            return first
    return None


def _fits(bank: Bank, logits: F32, bias: F32, ids: npt.NDArray[np.int32]) -> bool:
    selection = reference_select(np.ascontiguousarray(logits), bias, bank.geometry, bank.scoring)
    clear = selection.boundary_ulp > CLEAR_ULP
    return bool(same_as_expected(ids, selection.ids)[clear].all())


def repeated_rows(right: F32, shown: F32, width: int) -> tuple[Bools, str]:
    """Rows of shown logits [row, expert] that hold another row's of their launch, and an example.

    Only where some row's logits are read twice: rows that trade places are a layout.
    """
    moved = np.zeros(len(shown), np.bool_)
    text = ""
    for start in range(0, len(shown), width):
        mine, source = shown[start : start + width], right[start : start + width]
        places: dict[bytes, int] = {}
        for row in range(len(source)):
            places.setdefault(source[row].tobytes(), row)
        found = [places.get(row.tobytes()) for row in mine]
        if len({row for row in found if row is not None}) == sum(r is not None for r in found):
            continue
        for row, origin in enumerate(found):
            if (
                origin is not None
                and origin != row
                and mine[row].tobytes() != source[row].tobytes()
            ):
                moved[start + row] = True
                text = text or f"row {row} of a launch holds the logits of its row {origin}"
    return moved, text
