"""Text files that people write (cases, policies): regular files of a size that a person reads."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final

from ..banks.errors import InputError

MOST_BYTES: Final = 1 << 26


def read_small(path: Path, what: str, expected: str) -> str:
    """Return the text of a file.

    Args:
        path: the file; a device or a pipe would be read without end.
        what: how a message calls it, such as ``policy``.
        expected: what should be there, such as ``a readable file``.

    Raises:
        InputError: no regular file, more than 64 MiB, or not readable.
        UnicodeDecodeError: bytes that are not UTF-8.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            raise InputError(what, path, "a regular file", "open")
        if found.st_size > MOST_BYTES:
            raise InputError(what, path, f"at most {MOST_BYTES >> 20} MiB", "open")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(what, path, expected, error.strerror or "open") from error
