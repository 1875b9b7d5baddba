"""Exported directories: rows.EXT, a file for each weight, and a header beside or in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..errors import BankError
from ..interchange import Content, together

HEADER_NAME: Final = "neartie.json"
ROWS_STEM: Final = "rows"


def read_parts(directory: Path, suffix: str, read: Callable[[Path], Content]) -> list[Content]:
    """Return the files of a directory that have the suffix; hidden ones are not looked at.

    Raises:
        BankError: none, or a file that its reader refuses.
    """
    paths = sorted(directory.glob(f"[!.]*{suffix}"))
    if not paths:
        raise BankError("file", f"no *{suffix}", "at least one", str(directory))
    return [read(path) for path in paths]


def joined(contents: list[Content], where: str | None = None) -> Content:
    """Return the files of one directory as one, named after the directory."""
    whole = together(contents)
    return replace(whole, where=where or str(Path(contents[0].where).parent))
