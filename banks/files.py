"""Where a bank's files lie: a directory, mapped into memory, or a URL, read by ranges."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow as pa

from .errors import BankError
from .remote import RemoteFiles


class Files(Protocol):
    """Plain files of one bank by name."""

    def where(self, name: str) -> str:
        """Return the file's full name for messages."""
        ...

    def size(self, name: str) -> int:
        """Return the size in bytes; BankError where there is no such file."""
        ...

    def read(self, name: str) -> bytes:
        """Return the content."""
        ...

    def sha256(self, name: str) -> str:
        """Return the digest of the content in hex."""
        ...

    def open(self, name: str) -> pa.NativeFile:
        """Return the file for reading in place."""
        ...


class LocalFiles:
    """Files of a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def where(self, name: str) -> str:
        """Return the file's path."""
        return str(self._directory / name)

    def _path(self, name: str) -> Path:
        path = self._directory / name
        if not path.is_file():
            raise BankError("file", "nothing", "present", str(path))
        if path.resolve().parent != self._directory.resolve():
            raise BankError("file", f"a link to {path.resolve()}", "inside the bank", str(path))
        return path

    def size(self, name: str) -> int:
        """Return the size in bytes."""
        return self._path(name).stat().st_size

    def read(self, name: str) -> bytes:
        """Return the content."""
        try:
            return self._path(name).read_bytes()
        except OSError as error:
            raise BankError("file", error.strerror, "readable", self.where(name)) from None

    def sha256(self, name: str) -> str:
        """Return the digest of the content in hex."""
        try:
            with self._path(name).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise BankError("file", error.strerror, "readable", self.where(name)) from None

    def open(self, name: str) -> pa.NativeFile:
        """Return a memory map."""
        try:
            return pa.memory_map(str(self._path(name)))
        except (pa.ArrowException, OSError) as error:
            raise BankError("file", error, "readable", self.where(name)) from None


def is_url(spec: str) -> bool:
    """Return whether a bank's spec is a URL rather than a path or generator."""
    scheme, separator, _ = spec.partition("://")
    return bool(separator) and scheme.replace("+", "").replace("-", "").isalnum()


def local_path(spec: str | Path) -> Path | None:
    """Return the path of a directory, also of a ``file://`` URL; None for any other URL."""
    if isinstance(spec, Path) or not is_url(spec):
        return Path(spec)
    parts = urlsplit(spec)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None


def files_at(spec: str) -> Files:
    """Return the files of a directory or URL; ``file://`` is a directory."""
    path = local_path(spec)
    return RemoteFiles(spec) if path is None else LocalFiles(path)
