"""Files and directories that appear under their name when they are complete, or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .disk import sync, writing
from .errors import BankError


@contextmanager
def new_directory(target: Path, what: str) -> Iterator[Path]:
    """Give a hidden directory beside ``target``; it gets the name where the block ends well.

    Args:
        target: a new or empty directory; its parent exists.
        what: what is written, for messages.

    Raises:
        BankError: the name is taken, or the parent is no directory. Nothing is left behind.
    """
    partial = begin_directory(target, what)
    try:
        with writing(target, what):
            yield partial
            for path in partial.rglob("*"):
                sync(path)
            finish_directory(partial, target, what)
    except BankError as error:
        # The hidden name is nobody's: a bank in it is told of by the name that it would have had.
        where = error.where.replace(str(partial), str(target))
        if where == error.where:
            raise
        raise BankError(error.what, error.got, error.expected, where) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def begin_directory(target: Path, what: str) -> Path:
    """Make and return the hidden directory of ``new_directory``, for a writer that stays open.

    Raises:
        BankError: as ``new_directory``.
    """
    _check(target, what, directory=True)
    parent = target.absolute().parent
    with writing(target, what):
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=parent))
        partial.chmod(0o755)
    return partial


def finish_directory(partial: Path, target: Path, what: str) -> None:
    """Give a hidden directory, whose files are on the disk, its name.

    Raises:
        BankError: the name is taken by now.
    """
    sync(partial)
    _check(target, what, directory=True)
    try:
        partial.rename(target)
    except OSError as error:
        raise BankError(what, error.strerror or error, "new or empty", str(target)) from None
    sync(target.absolute().parent)


@contextmanager
def new_file(target: Path, what: str) -> Iterator[Path]:
    """Give a hidden name beside ``target`` to write to; as ``new_directory``."""
    _check(target, what, directory=False)
    prefix = f".{target.name}.partial-"
    with (
        writing(target, what),
        tempfile.TemporaryDirectory(prefix=prefix, dir=target.parent) as place,
    ):
        partial = Path(place) / target.name
        yield partial
        sync(partial)
        _check(target, what, directory=False)
        partial.rename(target)
        sync(target.absolute().parent)


def replace_file(target: Path, content: bytes, mode: int = 0o666) -> None:
    """Put a file in place of what has its name, in one step: a killed run leaves no half file.

    Args:
        target: its name; the directory is there.
        content: its bytes.
        mode: its permissions, less the process's umask.

    Raises:
        OSError: it cannot be written; nothing is left of it.
    """
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _check(target: Path, what: str, *, directory: bool) -> None:
    parent = target.absolute().parent
    # Even a look is refused where the name is too long.
    with writing(target, what):
        if not parent.is_dir():
            raise BankError(what, str(parent), "an existing directory", str(target))
        taken = target.is_symlink() or target.exists()
        if directory and target.is_dir() and not target.is_symlink():
            taken = any(target.iterdir())
    if taken:
        expected = "new or empty" if directory else "new"
        raise BankError(what, str(target), expected, "name to write")
