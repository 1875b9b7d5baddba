"""A Parquet file, or a directory of them, as named arrays."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..bank import Array
from ..errors import BankError
from ..interchange import HEADER_KEY, STEP, Column, Content
from ..schema import DTYPES
from .directory import joined, read_parts
from .header import parse_exported
from .reading import Reading

_BROKEN: Final = (pa.ArrowException, OSError, ValueError)


def read_parquet(path: Path, reading: Reading) -> Content:
    """Return what Parquet files hold: numbers, or lists of one length, a record a row.

    A directory is all its .parquet files: rows.parquet, and a file for each weight, as they are
    exported. Parquet has no BF16: its bits are uint16 with the dtype in the field's metadata.

    Raises:
        BankError: a damaged file, or a column that is neither.
    """
    del reading
    if path.is_dir():
        return joined(read_parts(path, ".parquet", _one))
    return _one(path)


def _one(path: Path) -> Content:
    where = str(path)
    try:
        file = pq.ParquetFile(path, memory_map=True)
        schema = file.schema_arrow
    except _BROKEN as error:
        text = str(error).splitlines()[0]
        raise BankError("file", text, "a Parquet file", where) from None
    columns = {field.name: _column(path, file, field) for field in schema}
    if len(columns) != len(schema):
        raise BankError("columns", "one of a name twice", "each once", where)
    kept: bytes | None = (schema.metadata or {}).get(HEADER_KEY.encode())
    header = parse_exported(None if kept is None else kept.decode("utf-8", "replace"), where)
    return Content(where, columns, header)


def _column(path: Path, file: pq.ParquetFile, field: pa.Field) -> Column:
    rows = file.metadata.num_rows
    what, where = f"column {field.name}", str(path)
    kind = field.type
    inner = kind
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    lists = any(test(kind) for test in tests)
    if lists:
        inner = kind.value_type
    metadata = field.metadata or {}
    dtype = _dtype(inner, metadata.get(b"dtype", b"").decode("utf-8", "replace"), what, where)
    reader = _Reader(path, file, field.name, dtype, lists)
    if not lists:
        return Column(dtype, (rows,), reader.read)
    length = _length(kind, reader, rows, what, where)
    shape: tuple[int, ...] = (length,)
    if b"shape" in metadata:
        shape = _shape(metadata[b"shape"], length, what, where)
    reader.shape = shape
    return Column(dtype, (rows, *shape), reader.read)


def _dtype(kind: pa.DataType, named: str, what: str, where: str) -> np.dtype[Any]:
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if not plain:
        raise BankError(f"{what} type", kind, "numbers, or lists of numbers", where)
    dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    if named and (named not in DTYPES or DTYPES[named].itemsize != dtype.itemsize):
        raise BankError(f"{what} dtype", named, f"a dtype of {dtype.itemsize} bytes", where)
    return DTYPES[named] if named else dtype


def _length(kind: pa.DataType, reader: _Reader, rows: int, what: str, where: str) -> int:
    if pa.types.is_fixed_size_list(kind):
        length: int = kind.list_size
        return length
    if not rows:
        raise BankError(f"{what} rows", 0, "at least 1", where)
    return reader.first_length()


def _shape(text: bytes, length: int, what: str, where: str) -> tuple[int, ...]:
    sizes: Any = None
    with contextlib.suppress(ValueError):
        sizes = json.loads(text)
    if (
        not isinstance(sizes, list)
        or not all(type(size) is int and size > 0 for size in sizes)
        or math.prod(sizes) != length
    ):
        raise BankError(f"{what} shape", text.decode("utf-8", "replace"), f"{length} values", where)
    return tuple(sizes)


class _Reader:
    """One column, read forwards in batches; a read from an earlier place starts again."""

    def __init__(
        self, path: Path, file: pq.ParquetFile, name: str, dtype: np.dtype[Any], lists: bool
    ) -> None:
        self._where = str(path)
        self._file = file
        self._name = name
        self._dtype = dtype
        self._lists = lists
        self.shape: tuple[int, ...] = ()
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._held: list[Array] = []
        self._next = 0

    def read(self, start: int, stop: int) -> Array:
        """Return records start..stop."""
        if start < self._next or not self._next:
            self._batches = self._file.iter_batches(STEP, columns=[self._name])
            self._held, self._next = [], 0
        pieces: list[Array] = []
        while self._next < stop:
            values = self._held.pop() if self._held else self._batch()
            low, high = max(start - self._next, 0), min(stop - self._next, len(values))
            if low < len(values):
                pieces.append(values[low:high])
            if high < len(values):
                self._held.append(values[high:])
            self._next += high
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _batch(self) -> Array:
        try:
            column = next(self._batches).column(0)
        except _BROKEN as error:
            text = str(error).splitlines()[0]
            raise BankError(f"column {self._name}", text, "readable", self._where) from None
        except StopIteration:
            raise BankError(f"column {self._name}", "cut off", "whole", self._where) from None
        return self._as_numpy(column)

    def _as_numpy(self, column: Any) -> Array:
        what = f"column {self._name}"
        nulls = column.null_count
        rows = len(column)
        if self._lists and not nulls:
            lengths = (
                np.full(rows, column.type.list_size)
                if pa.types.is_fixed_size_list(column.type)
                else np.diff(column.offsets.to_numpy())
            )
            length = int(np.prod(self.shape, dtype=np.int64))
            if (lengths != length).any():
                got = f"lists of {lengths.min()} to {lengths.max()}"
                raise BankError(what, got, f"lists of {length}", self._where)
            column = column.flatten()
            nulls = column.null_count
        if nulls:
            raise BankError(what, f"{nulls} nulls", "none", self._where)
        values: Array = column.to_numpy(zero_copy_only=False)
        return values.view(self._dtype).reshape(rows, *self.shape)

    def first_length(self) -> int:
        """Return the length of the first record's list."""
        try:
            batch = next(self._file.iter_batches(1, columns=[self._name])).column(0)
        except _BROKEN as error:
            text = str(error).splitlines()[0]
            raise BankError(f"column {self._name}", text, "readable", self._where) from None
        return len(batch.flatten())
