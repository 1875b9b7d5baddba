"""Arrow IPC files whose columns are fixed-size numpy tensors, with no null and no copy."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .errors import BankError
from .pages import unmap
from .schema import DTYPES

Array = npt.NDArray[Any]

# Arrow has no BF16 and no FP8: those are kept as their bits, and FP16 with them.
_STORED_BITS: Final = {1: pa.uint8(), 2: pa.uint16()}
_PLAIN: Final = {
    "float32": pa.float32(),
    "float64": pa.float64(),
    "int32": pa.int32(),
    "int64": pa.int64(),
}

_MOST_VALUES: Final = 2**31 - 1


def dtype_name(array: Array, what: str, where: str) -> str:
    """Return the name in ``DTYPES`` of an array's dtype.

    Raises:
        BankError: a dtype that banks do not hold.
    """
    for name, dtype in DTYPES.items():
        if array.dtype == dtype:
            return name
    raise BankError(f"tensors.{what}.dtype", array.dtype, f"one of {', '.join(DTYPES)}", where)


def _storage(dtype: str) -> pa.DataType:
    return _PLAIN[dtype] if dtype in _PLAIN else _STORED_BITS[DTYPES[dtype].itemsize]


def key_field(name: str, dtype: str) -> pa.Field:
    """Return the field of an integer key column."""
    return pa.field(name, _PLAIN[dtype], nullable=False)


def tensor_field(name: str, dtype: str, shape: tuple[int, ...]) -> pa.Field:
    """Return the field of a tensor column; dtype and shape travel in its metadata.

    Raises:
        BankError: more values a record than Arrow's lists of one size hold.
    """
    inner = pa.field("item", _storage(dtype), nullable=False)
    values = math.prod(shape)
    if values > _MOST_VALUES:
        expected = f"at most {_MOST_VALUES:,} values a record"
        raise BankError(f"tensors.{name}.shape", list(shape), expected, "bank.json")
    kind = pa.list_(inner, values)
    metadata = {"dtype": dtype, "shape": json.dumps(list(shape))}
    return pa.field(name, kind, nullable=False, metadata=metadata)


def to_batch(schema: pa.Schema, columns: Mapping[str, Array]) -> pa.RecordBatch:
    """Return a record batch of the arrays' own memory where they are contiguous.

    Args:
        schema: fields made by ``key_field`` and ``tensor_field``.
        columns: by field name, keys [record] and tensors [record, ...].
    """
    arrays = []
    for field in schema:
        values = np.ascontiguousarray(columns[field.name])
        buffers = [None, pa.py_buffer(values.reshape(-1).view(np.uint8))]
        if pa.types.is_fixed_size_list(field.type):
            flat = pa.Array.from_buffers(field.type.value_type, values.size, buffers)
            array = pa.FixedSizeListArray.from_arrays(flat, type=field.type)
        else:
            array = pa.Array.from_buffers(field.type, len(values), buffers)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class Table:
    """An Arrow IPC file read in place.

    Args:
        source: the opened file.
        schema: the exact fields that it must have.
        records: the number of records that it must have.
        where: the file's name for messages.

    Raises:
        BankError: not an Arrow file, other columns or types, nulls, or another record count.
    """

    def __init__(self, source: pa.NativeFile, schema: pa.Schema, records: int, where: str) -> None:
        self._where = where
        try:
            reader = pa.ipc.open_file(source)
            batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
            for batch in batches:
                batch.validate()
        except (pa.ArrowException, OSError) as error:
            raise BankError("file", _first_line(error), "a whole Arrow IPC file", where) from None
        try:
            self._check_schema(reader.schema, schema)
        # Names are only decoded when they are asked for.
        except UnicodeDecodeError:
            raise BankError("column", "a name that is no UTF-8", "text", where) from None
        self._batches = batches
        self._mapped = isinstance(source, pa.MemoryMappedFile)
        lengths = [batch.num_rows for batch in batches]
        self._starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        if self._starts[-1] != records:
            raise BankError("rows", int(self._starts[-1]), records, where)
        self._check_nulls()

    def _check_schema(self, got: pa.Schema, expected: pa.Schema) -> None:
        for field in expected:
            count = got.names.count(field.name)
            if count != 1:
                found = f"{count} times" if count else "nothing"
                raise BankError(f"column {field.name}", found, "present once", self._where)
            other = got.field(field.name)
            if other.type != field.type or other.nullable:
                found = f"{other.type}{' with nulls' if other.nullable else ''}"
                raise BankError(f"column {field.name}", found, field.type, self._where)
            if dict(other.metadata or {}) != dict(field.metadata or {}):
                raise BankError(
                    f"column {field.name} metadata", other.metadata, field.metadata, self._where
                )
        for name in got.names:
            if name not in expected.names:
                raise BankError(f"column {name}", "present", "absent", self._where)

    def _check_nulls(self) -> None:
        for batch in self._batches:
            for field, column in zip(batch.schema, batch.columns, strict=True):
                nulls = column.null_count
                if pa.types.is_fixed_size_list(field.type):
                    nulls += column.values.null_count
                if nulls:
                    raise BankError(f"column {field.name}", f"{nulls} nulls", "none", self._where)

    def column(self, name: str, start: int, stop: int) -> Array:
        """Return records start..stop [record, ...]: a read-only view inside one batch, else a copy.

        The dtype is the tensor's own, such as ml_dtypes.bfloat16.
        """
        pieces = []
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        for index in range(first, len(self._batches)):
            low, high = int(self._starts[index]), int(self._starts[index + 1])
            if low >= stop:
                break
            part = _as_numpy(self._batches[index], name)
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
                part = _as_numpy(self._batches[index], name)
                pieces.append(part[records[first:last] - self._starts[index]])
        return np.concatenate(pieces)

    def forget(self, names: Sequence[str], start: int, stop: int) -> None:
        """Give the memory of mapped records back to the system, which reads them again if need be.

        Batches that lie in start..stop as a whole; nothing happens where the file is not mapped.
        """
        if not self._mapped:
            return
        for index, batch in enumerate(self._batches):
            if start <= self._starts[index] and self._starts[index + 1] <= stop:
                for name in names:
                    unmap(_as_numpy(batch, name))


def _as_numpy(batch: pa.RecordBatch, name: str) -> Array:
    field = batch.schema.field(name)
    column = batch.column(name)
    if not pa.types.is_fixed_size_list(field.type):
        keys: Array = column.to_numpy(zero_copy_only=True)
        return keys
    dtype = DTYPES[field.metadata[b"dtype"].decode()]
    shape = json.loads(field.metadata[b"shape"])
    flat: Array = column.flatten().to_numpy(zero_copy_only=True)
    shaped: Array = flat.view(dtype).reshape(batch.num_rows, *shape)
    return shaped


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
