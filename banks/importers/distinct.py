"""Whether rows that are declared independent one by one are at least different from each other."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..bank import Array
from ..errors import BankError

_BYTES = 16


class DistinctRows:
    """Counts rows whose inputs were seen before, from 16 bytes of a digest a row.

    Args:
        where: names the file in messages.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._seen: list[npt.NDArray[np.void]] = []

    def add(self, inputs: Sequence[Array]) -> None:
        """Take the inputs of some rows, each [row, ...]."""
        flat = [np.ascontiguousarray(array).reshape(len(array), -1) for array in inputs]
        views = [array.view(np.uint8) for array in flat]
        digests = bytearray()
        for row in range(len(views[0])):
            state = hashlib.blake2b(digest_size=_BYTES)
            for view in views:
                state.update(view[row].data)
            digests += state.digest()
        self._seen.append(np.frombuffer(bytes(digests), np.dtype((np.void, _BYTES))))

    def check(self) -> None:
        """Refuse rows that repeat each other.

        Raises:
            BankError: they do; a repeated row tells nothing new of a rate.
        """
        rows = np.concatenate(self._seen)
        repeated = len(rows) - len(np.unique(rows))
        if repeated:
            expected = f"a key or none: {repeated:,} of {len(rows):,} rows repeat another's inputs"
            raise BankError("unit", "row", expected, self._where)
