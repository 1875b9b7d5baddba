"""Files of a bank below a URL: ranges of bytes, asked for again where the network failed."""

from __future__ import annotations

import hashlib
import io
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from .errors import BankError
from .remote_retries import retried
from .remote_systems import file_system
from .remote_urls import public_url

_STEP: Final = 8 << 20
_TRAILER: Final = 10
"""Bytes that end an Arrow file: length of the footer, int32, and ``ARROW1``."""
_SMALL: Final = 16 << 10
_SMALL_KEPT: Final = 256
"""Ranges of at most ``_SMALL`` bytes that are kept: heads of batches, read once per column."""


class RemoteFile:
    """One file of an object store, read by ranges.

    The end of an Arrow file, which says where its batches lie, and the last few small ranges are
    kept; nothing else is. Safe to read from several threads.

    Attributes:
        where: its name for messages.
        size: bytes.
    """

    def __init__(self, system: fs.FileSystem, path: str, where: str) -> None:
        self.where = where
        self._file = retried(lambda: system.open_input_file(path), where)
        self.size: int = retried(self._file.size, where)
        self._small: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._footer_start = self.size
        self._footer = b""

    def fetch(self, start: int, count: int) -> bytes:
        """Return ``count`` bytes from ``start``, fewer where the file ends."""
        count = max(min(count, self.size - start), 0)
        if not count:
            return b""
        return retried(lambda: self._whole(start, count), self.where)

    def _whole(self, start: int, count: int) -> bytes:
        content: bytes = self._file.read_at(count, start)
        if len(content) != count:
            raise ConnectionError(f"{len(content)} of {count} bytes at {start} came")
        return content

    def read_at(self, start: int, count: int) -> bytes:
        """Return as ``fetch``; what is kept is not asked for again."""
        if not self._footer:
            self._read_footer()
        if start >= self._footer_start:
            first = start - self._footer_start
            return self._footer[first : first + count]
        if count > _SMALL:
            return self.fetch(start, count)
        kept = self._small.get((start, count))
        if kept is None:
            kept = self.fetch(start, count)
            self._small[start, count] = kept
            while len(self._small) > _SMALL_KEPT:
                self._small.popitem(last=False)
        return kept

    def _read_footer(self) -> None:
        trailer = self.fetch(max(self.size - _TRAILER, 0), _TRAILER)
        length = int.from_bytes(trailer[:4], "little", signed=True)
        # Anything else is no Arrow file, which its reader says.
        if trailer[4:] != b"ARROW1" or not 0 < length <= self.size - _TRAILER:
            length = 0
        start = max(self.size - _TRAILER - length, 0)
        self._footer = self.fetch(start, length) + trailer
        self._footer_start = start


class RemoteReader(io.RawIOBase):
    """A file object over a ``RemoteFile``, with a place of its own.

    Attributes:
        failure: why the last read failed, None where it did not: pyarrow tells it as its own.
    """

    def __init__(self, file: RemoteFile) -> None:
        self._file = file
        self._place = 0
        self.failure: BankError | None = None

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the place, in bytes."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a place and return it."""
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._file.size}
        self._place = bases[whence] + offset
        return self._place

    def read(self, size: int | None = -1) -> bytes:
        """Return the next ``size`` bytes, all that are left where it is negative."""
        left = max(self._file.size - self._place, 0)
        self.failure = None
        try:
            content = self._file.read_at(self._place, left if size is None or size < 0 else size)
        except BankError as error:
            self.failure = error
            raise
        self._place += len(content)
        return content


class RemoteFiles:
    """Files below a URL that pyarrow or fsspec can open, read by ranges.

    Raises:
        BankError: the URL cannot be opened, or has credentials in it.
    """

    def __init__(self, url: str) -> None:
        self._place = public_url(url).rstrip("/")
        self._system, root = file_system(url)
        self._root = root.rstrip("/")
        self._opened: dict[str, RemoteFile] = {}

    def where(self, name: str) -> str:
        """Return the file's URL without its query."""
        return f"{self._place}/{name}"

    def at(self, name: str) -> RemoteFile:
        """Return the file, opened once.

        Raises:
            BankError: there is none, or it cannot be reached.
        """
        if name not in self._opened:
            file = RemoteFile(self._system, f"{self._root}/{name}", self.where(name))
            self._opened[name] = file
        return self._opened[name]

    def size(self, name: str) -> int:
        """Return the size in bytes."""
        return self.at(name).size

    def read(self, name: str) -> bytes:
        """Return the content."""
        return b"".join(self._parts(name))

    def _parts(self, name: str) -> Iterator[bytes]:
        file = self.at(name)
        for start in range(0, file.size, _STEP):
            yield file.fetch(start, _STEP)

    def sha256(self, name: str) -> str:
        """Return the digest of the content in hex; a few MB are held at a time."""
        digest = hashlib.sha256()
        for part in self._parts(name):
            digest.update(part)
        return digest.hexdigest()

    def reader(self, name: str) -> RemoteReader:
        """Return a file object for reading in ranges."""
        return RemoteReader(self.at(name))

    def open(self, name: str) -> Any:
        """Return the file for reading in ranges."""
        return pa.PythonFile(self.reader(name), mode="r")
