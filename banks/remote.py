"""Files of a bank below a URL: ranges of bytes, asked for again where the network failed."""

from __future__ import annotations

import errno
import hashlib
import io
import re
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
from pyarrow import fs

from .errors import BankError

_Value = TypeVar("_Value")

WAITS_S: list[float] = [0.5, 2.0]
"""Seconds before each further try of what may work the next time; S3's client has tried for some
six seconds by then."""

_OPTIONS: Final = frozenset(
    ("endpoint_override", "region", "scheme", "retry_limit_seconds", "allow_bucket_creation")
)
"""What a URL may say after ``?``: none of it is a secret, and all of it opens the bank again."""

_STEP: Final = 8 << 20
_TRAILER: Final = 10
"""Bytes that end an Arrow file: length of the footer, int32, and ``ARROW1``."""
_SMALL: Final = 16 << 10
_SMALL_KEPT: Final = 256
"""Ranges of at most ``_SMALL`` bytes that are kept: heads of batches, read once per column."""

# What pyarrow says of S3 and GCS; it gives no number.
_TRANSIENT: Final = re.compile(
    r"HTTP (response code|status) (408|429|5\d\d)|\b50[0234]\b|NETWORK_CONNECTION|SLOW_DOWN|THROTTL"
    r"|SERVICE_UNAVAILABLE|INTERNAL_(FAILURE|ERROR)|REQUEST_TIMEOUT|curlCode|UNAVAILABLE"
    r"|[Tt]imed? ?out|[Cc]onnection (was )?(reset|refused|aborted)|Retry policy exhausted",
)
_TRANSIENT_ERRNO: Final = frozenset(
    (errno.ECONNRESET, errno.ECONNREFUSED, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT)
)


_BEFORE_AT: Final = frozenset(("abfs", "abfss", "hdfs"))
"""Schemes whose URLs name a container or user before the ``@``: ``abfs://container@account/path``."""


def public_url(url: str) -> str:
    """Return a URL for messages: without a key, token, password, query or fragment."""
    scheme, _, rest = url.partition("://")
    place = re.split(r"[?#]", rest, maxsplit=1)[0]
    host, slash, path = place.partition("/")
    before, _, after = host.rpartition("@")
    if scheme not in _BEFORE_AT or ":" in before:
        host = after
    return f"{scheme}://{host}{slash}{path}"


def check_url(url: str) -> None:
    """Refuse a URL with a secret in it: it would be kept in evidence.

    Raises:
        BankError: a key or password, a fragment, or an option that is not one of ``_OPTIONS``.
    """
    where = public_url(url)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BankError("URL", where, f"one that can be read ({error})", "URL") from None
    if public_url(url) != url.partition("?")[0] or "@" in parts.query:
        expected = "without credentials (they belong in the environment) and without #"
        raise BankError("URL", where, expected, "URL")
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _OPTIONS:
            known = ", ".join(sorted(_OPTIONS))
            raise BankError("option of the URL", name, f"one of {known}", where)


def file_system(url: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URL and the path in it.

    pyarrow's own for s3, gs, hdfs, abfs and others; any other scheme through fsspec (extra
    ``cloud``).

    Raises:
        BankError: no such file system, or credentials in the URL.
    """
    check_url(url)
    where = public_url(url)
    try:
        try:
            system, path = fs.FileSystem.from_uri(url)
        except pa.ArrowInvalid as error:
            if "nrecognized filesystem type" not in str(error):
                raise
            system, path = _of_fsspec(url, str(error))
    except (pa.ArrowException, OSError, ValueError, ImportError) as error:
        reason = _clean(error, url)
        raise BankError("URL", where, f"one that can be opened ({reason})", "URL") from None
    return system, path


def _of_fsspec(url: str, reason: str) -> tuple[fs.FileSystem, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise ValueError(f"{reason}; fsspec, which may know it, is in the extra cloud") from None
    system, path = url_to_fs(url)
    return fs.PyFileSystem(fs.FSSpecHandler(system)), path


def _clean(error: BaseException, url: str) -> str:
    """The first line of an error without what a URL in it may tell."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return re.sub(r"\w[\w+.-]*://[^\s'\"]+", lambda m: public_url(m[0]), text.replace(url, ""))


def _failures() -> tuple[type[BaseException], ...]:
    """What file systems raise; aiohttp is behind those of fsspec that speak HTTP."""
    aiohttp = sys.modules.get("aiohttp")
    other = () if aiohttp is None else (aiohttp.ClientError,)
    return (pa.ArrowException, OSError, ValueError, *other)


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
        return False
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if isinstance(error, OSError) and error.errno in _TRANSIENT_ERRNO:
        return True
    return _TRANSIENT.search(str(error)) is not None


def retried(action: Callable[[], _Value], where: str) -> _Value:
    """Return what an action returns, tried again after ``WAITS_S`` where the network failed.

    Raises:
        BankError: there is no such file, or it still fails.
    """
    failures = _failures()
    for wait in (*WAITS_S, None):
        try:
            return action()
        except FileNotFoundError:
            raise BankError("file", "nothing", "present", where) from None
        except BankError:
            raise
        except failures as error:
            if wait is None or not _is_transient(error):
                raise BankError("file", _clean(error, where), "readable", where) from None
            time.sleep(wait)
    raise AssertionError("the last try returns or raises")


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
    """A file object over a ``RemoteFile``, with a place of its own."""

    def __init__(self, file: RemoteFile) -> None:
        self._file = file
        self._place = 0

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
        content = self._file.read_at(self._place, left if size is None or size < 0 else size)
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

    def open(self, name: str) -> Any:
        """Return the file for reading in ranges."""
        return pa.PythonFile(RemoteReader(self.at(name)), mode="r")
