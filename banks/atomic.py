"""Files and directories that appear under their name when they are complete, or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
    _check(target, what, directory=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=target.parent))
    partial.chmod(0o755)
    try:
        yield partial
        for path in [*partial.rglob("*"), partial]:
            _sync(path)
        _check(target, what, directory=True)
        partial.rename(target)
        _sync(target.absolute().parent)
    except OSError as error:
        raise BankError(what, error.strerror or error, "written", str(target)) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def new_file(target: Path, what: str) -> Iterator[Path]:
    """Give a hidden name beside ``target`` to write to; as ``new_directory``."""
    _check(target, what, directory=False)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.partial-", dir=target.parent) as place:
        partial = Path(place) / target.name
        try:
            yield partial
            _sync(partial)
            _check(target, what, directory=False)
            partial.rename(target)
            _sync(target.absolute().parent)
        except OSError as error:
            raise BankError(what, error.strerror or error, "written", str(target)) from None


def _check(target: Path, what: str, *, directory: bool) -> None:
    parent = target.absolute().parent
    if not parent.is_dir():
        raise BankError(what, str(parent), "in an existing directory", str(target))
    taken = target.is_symlink() or target.exists()
    if directory and target.is_dir() and not target.is_symlink():
        taken = any(target.iterdir())
    if taken:
        expected = "new or empty" if directory else "new"
        raise BankError(what, str(target), expected, "name to write")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
