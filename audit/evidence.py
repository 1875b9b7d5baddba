"""Write the evidence directory: all of it or nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..banks.errors import InputError
from .record import AuditResult


def write_evidence(result: AuditResult, directory: str | Path) -> Path:
    """Write ``audit.json``, ``swaps.parquet``, ``values.parquet`` and ``report.md``.

    The files are made under a temporary name beside the target, which then takes their place in
    one rename: an interrupted write leaves no evidence.

    Raises:
        InputError: the directory exists and is not empty, or cannot be made.
    """
    return write_files(
        directory,
        texts={"audit.json": result.to_json() + "\n", "report.md": result.to_markdown()},
        tables={"swaps.parquet": result.swaps, "values.parquet": result.values},
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
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        for name, text in texts.items():
            (made / name).write_text(text, encoding="utf-8")
        for name, table in tables.items():
            pq.write_table(table, made / name)
        made.chmod(0o755)
        if target.exists():
            target.rmdir()
        made.rename(target)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return target


def check_target(target: Path) -> None:
    """Refuse a place that evidence would overwrite, before any work is done.

    Raises:
        InputError: it is a file, a directory with something in it, or cannot be written.
    """
    if target.is_dir() and any(target.iterdir()):
        raise InputError("out", target, "a new or empty directory", "--out")
    if target.exists() and not target.is_dir():
        raise InputError("out", target, "a directory", "--out")
    parent = target.parent
    while not parent.exists():
        parent = parent.parent
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise InputError("out", target, "in a directory that can be written", "--out")
