"""Arrow IPC files whose columns are fixed-size numpy tensors, with no null and no copy."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .errors import BankError
from .pages import unmap
from .records import Records
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


class Table(Records):
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
        try:
            reader = pa.ipc.open_file(source)
            batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
            for batch in batches:
                batch.validate()
        except (pa.ArrowException, OSError) as error:
            raise BankError("file", first_line(error), "a whole Arrow IPC file", where) from None
        check_schema(reader, schema, where)
        self._batches = batches
        self._mapped = isinstance(source, pa.MemoryMappedFile)
        super().__init__([batch.num_rows for batch in batches], records, where)
        for batch in batches:
            check_nulls(batch, where)

    def _part(self, index: int, name: str) -> Array:
        return as_numpy(self._batches[index], name)

    def forget(self, names: Sequence[str], start: int, stop: int) -> None:
        """Give the memory of mapped records back to the system, which reads them again if need be.

        Batches that lie in start..stop as a whole; nothing happens where the file is not mapped.
        """
        if not self._mapped:
            return
        for index, batch in enumerate(self._batches):
            if start <= self._starts[index] and self._starts[index + 1] <= stop:
                for name in names:
                    unmap(as_numpy(batch, name))


def check_schema(reader: pa.RecordBatchReader, expected: pa.Schema, where: str) -> None:
    """Refuse a file whose columns are not the expected ones, in name, type and metadata.

    Raises:
        BankError: names the column.
    """
    try:
        _check_schema(reader.schema, expected, where)
    # Names are only decoded when they are asked for.
    except UnicodeDecodeError:
        raise BankError("column", "a name that is no UTF-8", "text", where) from None


def _check_schema(got: pa.Schema, expected: pa.Schema, where: str) -> None:
    for field in expected:
        count = got.names.count(field.name)
        if count != 1:
            found = f"{count} times" if count else "nothing"
            raise BankError(f"column {field.name}", found, "present once", where)
        other = got.field(field.name)
        if other.type != field.type or other.nullable:
            found = f"{other.type}{' with nulls' if other.nullable else ''}"
            raise BankError(f"column {field.name}", found, field.type, where)
        if dict(other.metadata or {}) != dict(field.metadata or {}):
            raise BankError(f"column {field.name} metadata", other.metadata, field.metadata, where)
    for name in got.names:
        if name not in expected.names:
            raise BankError(f"column {name}", "present", "absent", where)


def check_nulls(batch: pa.RecordBatch, where: str) -> None:
    """Refuse a batch with a null in it.

    Raises:
        BankError: names the column.
    """
    for field, column in zip(batch.schema, batch.columns, strict=True):
        nulls = column.null_count
        if pa.types.is_fixed_size_list(field.type):
            nulls += column.values.null_count
        if nulls:
            raise BankError(f"column {field.name}", f"{nulls} nulls", "none", where)


def as_numpy(batch: pa.RecordBatch, name: str) -> Array:
    """Return a column of a batch [record, ...], a view of its memory."""
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


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its kind."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
