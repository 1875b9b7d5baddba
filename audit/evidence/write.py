"""Write the evidence directory: all of it or nothing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ...banks.errors import InputError
from ..record import AuditRecord
from ..report.markdown import render_markdown


def write_evidence(result: AuditRecord, directory: str | Path) -> Path:
    """Write the record, its tables and ``report.md``.

    The files are made under a temporary name beside the target, which then takes their place in
    one rename: an interrupted write leaves no evidence.

    Raises:
        InputError: the directory exists and is not empty, or cannot be made or written.
    """
    return write_files(
        directory,
        texts={"audit.json": result.to_json() + "\n", "report.md": render_markdown(result)},
        tables={
            "swaps.parquet": result.swaps,
            "values.parquet": result.values,
            "histograms.parquet": result.histograms,
        },
    )


def write_files(
    directory: str | Path, *, texts: Mapping[str, str], tables: Mapping[str, pa.Table]
) -> Path:
    """Write named texts and tables as one new directory, and return its path.

    Raises:
        InputError: the directory exists and is not empty, or cannot be made.
    """
    target = Path(directory)
    check_target(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        made = _beside(target, target.parent)
    except OSError as error:
        raise _unwritable(target, error) from error
    try:
        for name, text in texts.items():
            (made / name).write_text(text, encoding="utf-8")
        for name, table in tables.items():
            pq.write_table(table, made / name)
        made.chmod(0o755)
        if target.exists():
            target.rmdir()
        made.rename(target)
    except BaseException as error:
        shutil.rmtree(made, ignore_errors=True)
        if isinstance(error, OSError):
            raise _unwritable(target, error) from error
        raise
    return target


def check_target(target: Path) -> None:
    """Refuse a place that evidence would overwrite, before any work is done.

    Raises:
        InputError: it is a file, a link, a directory with something in it, or cannot be written.
    """
    try:
        if target.is_dir() and any(target.iterdir()):
            raise InputError("out", target, "a new or empty directory", "--out")
        if target.name in ("", "..") or target.is_symlink() or target.is_file():
            raise InputError("out", target, "a directory by its own name", "--out")
        parent = target.parent
        while not parent.exists():
            parent = parent.parent
        # What the system says of permissions is not enough: /proc refuses those who have them.
        _beside(target, parent).rmdir()
    except OSError as error:
        raise _unwritable(target, error) from error


def _beside(target: Path, parent: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=parent))


def _unwritable(target: Path, error: OSError) -> InputError:
    reason = error.strerror or type(error).__name__
    return InputError("out", target, f"a directory that can be written ({reason})", "--out")
