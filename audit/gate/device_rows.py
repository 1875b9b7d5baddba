"""The rows of one block of a device's shard: all of them there, and few ever looked at here."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ...banks.bank import RowBlock
from ...banks.generate import keys_of
from ...banks.normal import NormalStream
from ...kernels.cuda.rows import StreamPair
from .shard import logits_of

I64 = npt.NDArray[np.int64]


class ScreenFault(RuntimeError):
    """The device decided or made a row that is another on the host: nothing can be trusted."""


class BlockRows(Protocol):
    """Rows ``start`` .. ``start + rows`` of a bank; ``which`` counts from ``start``."""

    @property
    def start(self) -> int:
        """The bank's number of the first row."""
        ...

    @property
    def rows(self) -> int:
        """How many rows."""
        ...

    def finite(self, which: I64) -> npt.NDArray[np.bool_]:
        """Whether all logits of a row are finite, [n]."""
        ...

    def units(self, which: I64) -> npt.NDArray[Any]:
        """Independence units, [n]."""
        ...

    def full(self, which: I64) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.float32]]:
        """Keys [n] and logits [n, expert]."""
        ...


class HostRows:
    """Rows that were read on the host.

    Args:
        block: with logits.
    """

    def __init__(self, block: RowBlock) -> None:
        self.start, self.rows = block.start, block.rows
        self._keys, self._logits = block.keys, logits_of(block)

    def finite(self, which: I64) -> npt.NDArray[np.bool_]:
        """Whether all logits of a row are finite, [n]."""
        return np.asarray(np.isfinite(self._logits[which]).all(axis=1))

    def units(self, which: I64) -> npt.NDArray[Any]:
        """Independence units, [n]."""
        found: npt.NDArray[Any] = self._keys["unit"][which]
        return found

    def full(self, which: I64) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.float32]]:
        """Keys [n] and logits [n, expert]."""
        keys = {name: values[which] for name, values in self._keys.items()}
        return keys, np.asarray(self._logits[which])


class MadeRows:
    """Rows of a stream that the device made; the host makes the few that it looks at itself.

    Args:
        stream: of the bank.
        pair: what made them last.
        start: the first row.
        rows: how many.
    """

    def __init__(self, stream: NormalStream, pair: StreamPair, start: int, rows: int) -> None:
        self.start, self.rows = start, rows
        self._stream, self._pair = stream, pair

    def finite(self, which: I64) -> npt.NDArray[np.bool_]:
        """Normal values are finite, [n]."""
        return np.ones(len(which), np.bool_)

    def units(self, which: I64) -> npt.NDArray[Any]:
        """Each row is a unit of its own, [n]."""
        return which + self.start

    def full(self, which: I64) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.float32]]:
        """Keys [n] and logits [n, expert], made here.

        Raises:
            ScreenFault: the device made other bits.
        """
        logits = self._stream.rows(which + self.start)
        made = self._pair.made_logits(which)
        wrong = (logits.view(np.uint32) != made.view(np.uint32)).any(axis=1)
        if wrong.any():
            row = int(which[wrong][0]) + self.start
            raise ScreenFault(f"row {row} has other logits on the device than on the host")
        return keys_of(which + self.start), logits
