"""Files whose bytes have reached the disk: what is renamed into place must survive a power cut."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import BankError


@contextmanager
def writing(target: str | Path, what: str) -> Iterator[None]:
    """Turn what the system refuses, such as a file on a full disk, into one error.

    Args:
        target: what the user called the place, for the message.
        what: what is written there.

    Raises:
        BankError: the system's reason.
    """
    try:
        yield
    except OSError as error:
        # Arrow has a number too, and its own words before the system's.
        reason = os.strerror(error.errno) if error.errno else error
        raise BankError(what, reason, "written", str(target)) from None


def sync(path: Path) -> None:
    """Wait until a file's content, or a directory's names, survive a loss of power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and wait as ``sync`` does."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def measured(path: Path) -> dict[str, Any]:
    """Return ``bytes`` and ``sha256`` hex of a file, once it is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}
