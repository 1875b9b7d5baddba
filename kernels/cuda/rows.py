"""What a pair of device selects says of a block of rows; needs neither Triton nor a GPU."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]

ROWS_AT_ONCE: Final = 16384
"""Most rows of one call: 59 MB of logits of 896 experts."""

STREAM_ROWS_AT_ONCE: Final = 131072
"""Most rows of one call that makes them on the device: 470 MB there, and nothing on the host."""

UNDECIDED: Final = -1

MOST_BUDGET: Final = 253
"""Rows whose weights are further apart are seen in full; ``BINS`` has a bin for each step below."""


class ScreenedRows(NamedTuple):
    """Two selects over some rows: all that is needed of most of them, and everything of a few.

    A row that the screen decides has, proven, the same ids in the same slots on both sides, finite
    logits, weights within the budget, and a boundary margin above the one that was asked for.

    Attributes:
        weight_ulp: [row] int32, largest FP32 distance of a weight of a decided row; ``UNDECIDED``
            of any other.
        histogram: [BINS] int64, slots of decided rows by FP32 distance.
        seen: [n] int64, rows that are told in full, ascending: the undecided ones, and the ones
            that were asked for.
        ids: [n, side, slot] int32 in slot order.
        weights: [n, side, slot] float32.
        edges: [n, side, 2] float32, either side's keys of the experts that the first side ranks K
            and K + 1; without meaning where a logit or bias is not finite.
    """

    weight_ulp: npt.NDArray[np.int32]
    histogram: I64
    seen: I64
    ids: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    edges: npt.NDArray[np.float32]


class RowPair(Protocol):
    """Two selects on one geometry and bias, made once and run on many rows.

    Attributes:
        host: float32 [ROWS_AT_ONCE, expert] of the host, to be filled with logits before ``run``.
            Fresh memory for each block would cost as much as making its rows.
    """

    @property
    def host(self) -> npt.NDArray[np.float32]:
        """Where the rows of the next ``run`` are written."""
        ...

    def run(self, rows: int, wanted: I64) -> ScreenedRows:
        """Select the first ``rows`` of ``host`` with both; tell ``wanted`` ones in full."""
        ...


class Stream(Protocol):
    """Normal rows that are made from their numbers alone (``banks.normal``).

    Attributes:
        key: 64 bits.
        std: standard deviation, a value of float32.
    """

    @property
    def key(self) -> int:
        """The 64 bits."""
        ...

    @property
    def std(self) -> float:
        """The standard deviation."""
        ...


@runtime_checkable
class StreamPair(RowPair, Protocol):
    """A pair that can make the rows itself, so that none comes from the host."""

    def run_stream(self, stream: Stream, start: int, rows: int, wanted: I64) -> ScreenedRows:
        """Select rows ``start`` and on with both; ``wanted`` and ``seen`` count from ``start``."""
        ...

    def made_logits(self, rows: I64) -> npt.NDArray[np.float32]:
        """Logits [n, expert] that ``run_stream`` made last, of rows counted from its start."""
        ...


def slots_of(rows: ScreenedRows, side: int) -> tuple[Any, Any]:
    """One side's ids and weights [n, slot] of the seen rows, contiguous."""
    return np.ascontiguousarray(rows.ids[:, side]), np.ascontiguousarray(rows.weights[:, side])
