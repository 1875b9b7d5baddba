"""Columns of an Arrow file in an object store: a batch of a column is read when it is asked for."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .arrow_tables import as_numpy, check_nulls, check_schema, first_line
from .errors import BankError
from .records import Records, check_digest
from .remote import RemoteFiles, RemoteReader
from .schema import BatchesModel

Array = npt.NDArray[Any]
_Opened = tuple[pa.ipc.RecordBatchFileReader, RemoteReader]

CACHE_BYTES: Final = 256 << 20
"""Bytes of columns that a process keeps of all its remote banks; a larger one is kept alone."""


class ColumnCache:
    """The columns that were read last, within a number of bytes. Safe to use from threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: OrderedDict[tuple[object, int, str], Array] = OrderedDict()
        self._lock = threading.Lock()
        self.bytes = 0

    def get(self, key: tuple[object, int, str]) -> Array | None:
        """Return a column, None where it is not held."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
            return self._held.get(key)

    def put(self, key: tuple[object, int, str], values: Array) -> None:
        """Hold a column; the ones used longest ago make room for it."""
        with self._lock:
            self._drop(key)
            self._held[key] = values
            self.bytes += values.nbytes
            while self.bytes > self._most and len(self._held) > 1:
                self._drop(next(iter(self._held)))

    def drop(self, key: tuple[object, int, str]) -> None:
        """Let go of a column, where it is held."""
        with self._lock:
            self._drop(key)

    def _drop(self, key: tuple[object, int, str]) -> None:
        values = self._held.pop(key, None)
        if values is not None:
            self.bytes -= values.nbytes


CACHE: Final = ColumnCache(CACHE_BYTES)


class RemoteTable(Records):
    """An Arrow IPC file of which only the asked columns of the asked batches are read.

    Args:
        files: where it lies.
        name: which of them.
        schema: the exact fields that it must have.
        records: the number of records that it must have.
        batches: sizes and digests of its batches; each column of a batch is held against its own
            when it is read. None: sizes are read from the file, and nothing is checked here.

    Raises:
        BankError: not an Arrow file, other columns or types, nulls, another count of records or
            batches, and, at any later read, another digest or a network that fails.
    """

    def __init__(
        self,
        files: RemoteFiles,
        name: str,
        schema: pa.Schema,
        records: int,
        batches: BatchesModel | None,
    ) -> None:
        self._files, self._name = files, name
        self._where = files.where(name)
        self._schema = schema
        self._sha256 = None if batches is None else batches.sha256
        self._readers: dict[str, _Opened] = {}
        self._lock = threading.Lock()
        self._cache = CACHE
        self._key = object()
        reader, _ = self._opened(())
        check_schema(reader, schema, self._where)
        self._fields = {field: i for i, field in enumerate(reader.schema.names)}
        count = reader.num_record_batches
        if batches is not None:
            lengths: Sequence[int] = batches.rows
            if count != len(lengths):
                raise BankError("batches", count, f"{len(lengths)} as in bank.json", self._where)
        else:
            first = schema.names[0]
            lengths = [self._batch(first, index).num_rows for index in range(count)]
        super().__init__(lengths, records, self._where)

    def _opened(self, fields: Sequence[int]) -> _Opened:
        source = self._files.reader(self._name)
        try:
            options = pa.ipc.IpcReadOptions(included_fields=list(fields))
            file = pa.PythonFile(source, mode="r")
            return pa.ipc.open_file(file, options=options), source
        except (pa.ArrowException, OSError) as error:
            raise self._broken(error, source) from None

    def _broken(self, error: BaseException, source: RemoteReader) -> BankError:
        # pyarrow wraps what the network did in words of its own.
        if source.failure is not None:
            return source.failure
        return BankError("file", first_line(error), "a whole Arrow IPC file", self._where)

    def _batch(self, name: str, index: int) -> pa.RecordBatch:
        with self._lock:
            if name not in self._readers:
                self._readers[name] = self._opened([self._fields[name]])
            reader, source = self._readers[name]
        try:
            batch = reader.get_batch(index)
            batch.validate()
        except (pa.ArrowException, OSError) as error:
            raise self._broken(error, source) from None
        check_nulls(batch, self._where)
        return batch

    def _part(self, index: int, name: str) -> Array:
        key = (self._key, index, name)
        values = self._cache.get(key)
        if values is not None:
            return values
        values = as_numpy(self._batch(name, index), name)
        expected = int(self._starts[index + 1] - self._starts[index])
        if len(values) != expected:
            what = f"rows of column {name}, batch {index}"
            raise BankError(what, len(values), expected, self._where)
        if self._sha256 is not None:
            check_digest(values, self._sha256[name][index], name, index, self._where)
        self._cache.put(key, values)
        return values

    def forget(self, names: Sequence[str], start: int, stop: int) -> None:
        """Let go of the columns held of records start..stop, of whole batches."""
        first = int(np.searchsorted(self._starts, start))
        last = int(np.searchsorted(self._starts, stop, side="right")) - 1
        for index in range(first, last):
            for name in names:
                self._cache.drop((self._key, index, name))
