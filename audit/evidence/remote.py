"""Evidence directories at URLs: written with the manifest last, read through a copy.

An object store renames nothing in one step, so a directory there counts as written when its
``manifest.json`` is there: it is put last, and what has none is refused by every reader.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

from pyarrow import fs

from ...banks.errors import BankError, InputError
from ...banks.remote_retries import retried
from ...banks.remote_systems import file_system
from ...banks.remote_urls import public_url
from .manifest import MANIFEST_FILE, TEMPORARY_SUFFIX

_PROBE: Final = f".probe{TEMPORARY_SUFFIX}"


def _listed(system: fs.FileSystem, root: str, where: str) -> dict[str, str]:
    """The paths of all files below a root, by their names relative to it.

    Raises:
        BankError: it cannot be listed, or a name leads elsewhere.
    """
    selector = fs.FileSelector(root, allow_not_found=True, recursive=True)
    found = {}
    for info in retried(lambda: system.get_file_info(selector), where):
        if info.type != fs.FileType.File:
            continue
        name = PurePosixPath(info.path.lstrip("/")).relative_to(root.lstrip("/"))
        if ".." in name.parts or "\\" in str(name):
            raise BankError("file", str(name), "a name inside the directory", where)
        found[str(name)] = info.path
    return found


def _opened(url: str) -> tuple[fs.FileSystem, str]:
    system, root = file_system(url)
    return system, root.rstrip("/")


def is_whole_at(url: str) -> bool:
    """Return whether evidence at a URL was written to its end."""
    system, root = _opened(url)
    path = f"{root}/{MANIFEST_FILE}"
    info = retried(lambda: system.get_file_info(path), public_url(url))
    return bool(info.type == fs.FileType.File)


def check_url_target(url: str) -> None:
    """Refuse a URL that evidence would overwrite or that cannot be written, before any work.

    Raises:
        InputError: there are files below it, a file cannot be put there, or credentials in it.
    """
    system, root = _opened(url)
    where = public_url(url)
    if _listed(system, root, where):
        raise InputError("out", where, "a new or empty directory", "--out")
    try:
        _put(system, f"{root}/{_PROBE}", b"", where)
        _delete(system, f"{root}/{_PROBE}", where)
    except BankError as error:
        raise _unwritable(where, error) from None


def write_to_url(url: str, fill: Callable[[Path], None]) -> str:
    """Make files in a temporary directory and put them below a URL, the manifest last.

    Args:
        url: with no files below it.
        fill: writes the files, ``manifest.json`` among them, into the directory that it is given.

    Raises:
        InputError: files are there, or one cannot be put; those that were are removed again.
    """
    check_url_target(url)
    system, root = _opened(url)
    where = public_url(url)
    done: list[str] = []
    with tempfile.TemporaryDirectory(prefix="neartie-out-") as made:
        fill(Path(made))
        paths = sorted(Path(made).iterdir(), key=lambda path: (path.name == MANIFEST_FILE, path))
        try:
            for path in paths:
                target = f"{root}/{path.name}"
                # Before, not after: a put that broke off may have left its file.
                done.append(target)
                _put(system, target, path.read_bytes(), where)
        except BaseException as error:
            _remove(system, done, where)
            if isinstance(error, BankError):
                raise _unwritable(where, error) from None
            raise
    return url


def _put(system: fs.FileSystem, path: str, content: bytes, where: str) -> None:
    def put() -> None:
        with system.open_output_stream(path) as sink:
            sink.write(content)

    retried(put, where)


def _delete(system: fs.FileSystem, path: str, where: str) -> None:
    retried(lambda: system.delete_file(path), where)


def _remove(system: fs.FileSystem, paths: list[str], where: str) -> None:
    # The manifest first: what is left, if the rest cannot be removed, is no evidence.
    for path in reversed(paths):
        try:
            _delete(system, path, where)
        except BankError:
            continue


def _unwritable(where: str, error: BankError) -> InputError:
    reason = error.got if error.what == "file" else error
    return InputError("out", where, f"a directory that can be written ({reason})", "--out")


@contextmanager
def copy_of(url: str) -> Iterator[Path]:
    """Give a temporary copy of the evidence at a URL.

    Raises:
        InputError: there is no manifest, so it was never finished, or it cannot be read.
    """
    system, root = _opened(url)
    where = public_url(url)
    files = _listed(system, root, where)
    if MANIFEST_FILE not in files:
        if is_whole_at(url):
            expected = "at a server that lists its directories"
            raise InputError("evidence", where, expected, "evidence at a URL")
        expected = f"a directory with {MANIFEST_FILE}, so one that was finished"
        raise InputError("evidence", where, expected, "evidence at a URL")
    made = Path(tempfile.mkdtemp(prefix="neartie-evidence-"))
    try:
        for name, path in files.items():
            _fetch(system, path, made / name, f"{where.rstrip('/')}/{name}")
        yield made
    except InputError as error:
        parts = (error.what, error.got, error.expected, error.where)
        raise type(error)(*(str(part).replace(str(made), where) for part in parts)) from None
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _fetch(system: fs.FileSystem, path: str, target: Path, where: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)

    def fetch() -> None:
        with system.open_input_stream(path) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)

    retried(fetch, where)
