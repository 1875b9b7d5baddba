"""Files and directories that appear under their name when they are complete, or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .disk import sync
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
        yield partial
        for path in partial.rglob("*"):
            sync(path)
        finish_directory(partial, target, what)
    except OSError as error:
        raise BankError(what, error.strerror or error, "written", str(target)) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def begin_directory(target: Path, what: str) -> Path:
    """Make and return the hidden directory of ``new_directory``, for a writer that stays open.

    Raises:
        BankError: as ``new_directory``.
    """
    _check(target, what, directory=True)
    parent = target.absolute().parent
    try:
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=parent))
        partial.chmod(0o755)
    except OSError as error:
        raise BankError(what, error.strerror or error, "written", str(target)) from None
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
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.partial-", dir=target.parent) as place:
        partial = Path(place) / target.name
        try:
            yield partial
            sync(partial)
            _check(target, what, directory=False)
            partial.rename(target)
            sync(target.absolute().parent)
        except OSError as error:
            raise BankError(what, error.strerror or error, "written", str(target)) from None


def _check(target: Path, what: str, *, directory: bool) -> None:
    parent = target.absolute().parent
    if not parent.is_dir():
        raise BankError(what, str(parent), "an existing directory", str(target))
    taken = target.is_symlink() or target.exists()
    if directory and target.is_dir() and not target.is_symlink():
        taken = any(target.iterdir())
    if taken:
        expected = "new or empty" if directory else "new"
        raise BankError(what, str(target), expected, "name to write")
