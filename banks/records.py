"""Record batches of a file as numpy columns, wherever they lie, and digests of their values."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import BankError
from .schema import BatchesModel

Array = npt.NDArray[Any]


class Records(ABC):
    """Record batches of one file, and numpy columns of any of their records.

    Args:
        lengths: records of each batch.
        records: how many there must be.
        where: the file's name for messages.

    Raises:
        BankError: another number of records.
    """

    def __init__(self, lengths: Sequence[int], records: int, where: str) -> None:
        self._where = where
        self._starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        if self._starts[-1] != records:
            raise BankError("rows", int(self._starts[-1]), records, where)

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield the first record of each batch and the one after its last; empty batches not."""
        for start, stop in pairwise(self._starts.tolist()):
            if start < stop:
                yield start, stop

    @abstractmethod
    def _part(self, index: int, name: str) -> Array:
        """Return a column of one batch [record, ...]."""

    @abstractmethod
    def forget(self, names: Sequence[str], start: int, stop: int) -> None:
        """Give up what is held of records start..stop, of whole batches; it is read again."""

    def column(self, name: str, start: int, stop: int) -> Array:
        """Return records start..stop [record, ...]: a read-only view inside one batch, else a copy.

        The dtype is the tensor's own, such as ml_dtypes.bfloat16.
        """
        pieces = []
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        for index in range(first, len(self._starts) - 1):
            low, high = int(self._starts[index]), int(self._starts[index + 1])
            if low >= stop:
                break
            part = self._part(index, name)
            pieces.append(part[max(start - low, 0) : min(stop, high) - low])
        pieces = [piece for piece in pieces if len(piece)]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def take(self, name: str, records: npt.NDArray[np.int64]) -> Array:
        """Return single records [n, ...] by their numbers, ascending; only they are read."""
        if not len(records):
            return self.column(name, 0, 1)[:0]
        ends = np.searchsorted(records, self._starts)
        pieces = []
        for index, (first, last) in enumerate(pairwise(ends.tolist())):
            if first < last:
                part = self._part(index, name)
                pieces.append(part[records[first:last] - self._starts[index]])
        return np.concatenate(pieces)

    def check_digests(self, batches: BatchesModel) -> None:
        """Hold every batch against the size and the digests that ``bank.json`` has for it.

        Raises:
            BankError: the first that is another; names column and batch.
        """
        lengths = np.diff(self._starts).tolist()
        if len(lengths) != len(batches.rows):
            expected = f"{len(batches.rows)} as in bank.json"
            raise BankError("batches", len(lengths), expected, self._where)
        for index, (found, rows) in enumerate(zip(lengths, batches.rows, strict=True)):
            if found != rows:
                expected = f"{rows} as in bank.json"
                raise BankError(f"rows of batch {index}", found, expected, self._where)
        for name, digests in batches.sha256.items():
            for index, digest in enumerate(digests):
                check_digest(self._part(index, name), digest, name, index, self._where)


def values_digest(values: Array) -> str:
    """Return the sha256 of an array's values, in row-major order, as bytes."""
    flat = np.ascontiguousarray(values).reshape(-1)
    return hashlib.sha256(flat.view(np.uint8).data).hexdigest()


def check_digest(values: Array, expected: str, name: str, index: int, where: str) -> None:
    """Refuse a batch of a column whose values have another digest.

    Raises:
        BankError: names column and batch.
    """
    found = values_digest(values)
    if found != expected:
        what = f"sha256 of column {name}, batch {index}"
        raise BankError(what, found, f"{expected} as in bank.json", where)
