"""The directory where finished parts are kept, and its files: somebody else may have written it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...banks.errors import InputError

# Of a path object the second slash of a URL is gone.
_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+:/")


def check_work(keep: str | Path | None) -> None:
    """Refuse what names no directory of this machine.

    Raises:
        InputError: it is empty, or a URL.
    """
    if keep is not None and (not str(keep) or _URL.match(str(keep))):
        raise InputError("work", str(keep) or "''", "a directory of this machine", "--work")


@contextmanager
def work_directory(keep: str | Path | None, name: str) -> Iterator[Path]:
    """Yield the directory of one work's parts, made if need be; a temporary one without ``keep``.

    Args:
        keep: what holds the parts of many works; None keeps nothing.
        name: of this work, from all that decides its documents.

    Raises:
        InputError: it cannot be made.
    """
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="neartie-") as folder:
            yield Path(folder)
        return
    check_work(keep)
    directory = Path(keep) / name
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("work", keep, "a directory that can be written", str(error)) from error
    yield directory


def read_document(path: Path) -> bytes | None:
    """Return a finished part's document; None where there is none.

    Raises:
        InputError: what lies there is no file, or cannot be read.
    """
    try:
        if path.exists() and not path.is_file():
            raise InputError("shard", path, "a file", "--work")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError("shard", path, "a file that can be read", str(error)) from error
