"""A numpy .npz file as named arrays; arrays of Python objects are refused, nothing is unpickled."""

from __future__ import annotations

import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.lib import format as npy

from ..bank import Array
from ..errors import BankError
from ..interchange import HEADER_KEY, Column, Content
from ..schema import DTYPES
from .header import parse_exported, stored_dtypes
from .reading import Reading

# Of a damaged directory, name or stream, of an encrypted member, of an unknown compression.
_BROKEN: Final = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, UnicodeDecodeError,
    RuntimeError, struct.error,
)  # fmt: skip


def read_npz(path: Path, reading: Reading) -> Content:
    """Return what an .npz file holds; its arrays stay on disk until they are read, in order.

    numpy has no BF16: it writes such an array of ml_dtypes as two bytes without a type (``V2``),
    which is read as BF16; our own files hold the bits as uint16 and name the dtype in a header.

    Raises:
        BankError: not a whole .npz file, or an array of Python objects.
    """
    del reading
    where = str(path)
    try:
        file = zipfile.ZipFile(path)
        names = file.namelist()
    except _BROKEN as error:
        raise BankError("file", str(error) or "damaged", "an .npz file", where) from None
    columns: dict[str, Column] = {}
    for member in names:
        name = member.removesuffix(".npy")
        if name in columns:
            raise BankError(f"tensor {name}", "there twice", "once", where)
        columns[name] = _member(file, member, where)
    header = None
    if HEADER_KEY in columns:
        text = bytes(columns.pop(HEADER_KEY).whole()).decode("utf-8", "replace")
        header = parse_exported(text, where)
    for name, dtype in stored_dtypes(header, columns).items():
        columns[name] = _viewed(columns[name], dtype)
    return Content(where, columns, header)


def _viewed(column: Column, dtype: np.dtype[Any]) -> Column:
    if column.dtype.itemsize != dtype.itemsize:
        return column
    return Column(dtype, column.shape, lambda start, stop: column.read(start, stop).view(dtype))


def _member(file: zipfile.ZipFile, member: str, where: str) -> Column:
    name = member.removesuffix(".npy")
    try:
        with file.open(member) as source:
            shape, fortran, dtype = read_npy_header(source, f"tensor {name}", where)
            start = source.tell()
    except _BROKEN as error:
        raise BankError(f"tensor {name}", str(error) or "damaged", "readable", where) from None
    size = math.prod(shape) * dtype.itemsize
    if start + size != file.getinfo(member).file_size:
        got = file.getinfo(member).file_size
        raise BankError(f"tensor {name} bytes", got, start + size, where)
    reader = _Reader(file, member, start, shape, fortran, dtype, where)
    if dtype == np.dtype("V2"):
        dtype = DTYPES["bfloat16"]
        return Column(dtype, shape, lambda low, high: reader.read(low, high).view(dtype))
    return Column(dtype, shape, reader.read)


def read_npy_header(
    source: IO[bytes], what: str, where: str
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether the order is Fortran's, and dtype of a .npy stream.

    Raises:
        BankError: not a .npy stream, or one of Python objects, which would have to be unpickled.
    """
    try:
        version = npy.read_magic(source)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(source)
    except (ValueError, SyntaxError, TypeError, tokenize.TokenError, RecursionError) as error:
        text = str(error).splitlines()[0] if str(error) else "damaged"
        raise BankError(what, text, "a .npy array", where) from None
    if dtype.hasobject or dtype.names is not None:
        expected = "numbers: Python objects would have to be unpickled, which is never done"
        raise BankError(f"{what} dtype", dtype, expected, where)
    if dtype.byteorder == ">":
        raise BankError(f"{what} byte order", "big-endian", "little-endian", where)
    return shape, fortran, dtype


class _Reader:
    """One member, read forwards; a read from an earlier place opens it again."""

    def __init__(
        self,
        file: zipfile.ZipFile,
        member: str,
        start: int,
        shape: tuple[int, ...],
        fortran: bool,
        dtype: np.dtype[Any],
        where: str,
    ) -> None:
        self._file = file
        self._member = member
        self._start = start
        self._shape = shape
        self._dtype = dtype
        self._where = where
        # Rows of such an array lie apart: it is read as a whole, once.
        self._apart = fortran and len(shape) > 1
        self._whole: Array | None = None
        self._source: IO[bytes] | None = None
        self._next = 0

    def read(self, start: int, stop: int) -> Array:
        """Return records start..stop."""
        if self._apart:
            if self._whole is None:
                flat = self._records(0, int(np.prod(self._shape)), ())
                self._whole = flat.reshape(self._shape, order="F")
            return np.ascontiguousarray(self._whole[start:stop])
        if not self._shape:
            return self._records(0, 1, ()).reshape(())
        return self._records(start, stop, self._shape[1:])

    def _records(self, start: int, stop: int, rest: tuple[int, ...]) -> Array:
        length = int(np.prod(rest, dtype=np.int64)) * self._dtype.itemsize
        try:
            if self._source is None or self._next > start:
                self._source = self._file.open(self._member)
                self._skip(self._start)
                self._next = 0
            self._skip((start - self._next) * length)
            data = self._source.read((stop - start) * length)
        except _BROKEN as error:
            name = self._member.removesuffix(".npy")
            got = str(error) or "damaged"
            raise BankError(f"tensor {name}", got, "readable", self._where) from None
        if len(data) != (stop - start) * length:
            name = self._member.removesuffix(".npy")
            raise BankError(f"tensor {name}", "cut off", "whole", self._where)
        self._next = stop
        return np.frombuffer(data, self._dtype).reshape(stop - start, *rest)

    def _skip(self, count: int) -> None:
        assert self._source is not None
        while count:
            got = len(self._source.read(min(count, 1 << 20)))
            if not got:
                return
            count -= got
