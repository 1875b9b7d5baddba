"""Exported directories: rows.EXT, a file for each weight, and a header beside or in them."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..errors import BankError
from ..interchange import Content, together

HEADER_NAME: Final = "neartie.json"
ROWS_STEM: Final = "rows"


def check_regular(path: Path) -> None:
    """Refuse a pipe, a device or a socket: reading it may never end. What is not there passes.

    Raises:
        BankError: neither a regular file nor a directory, or one that cannot be looked at.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise BankError("file", error, "a regular file", str(path)) from None
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise BankError("file", "a pipe, device or socket", "a regular file", str(path))


def read_parts(directory: Path, suffix: str, read: Callable[[Path], Content]) -> list[Content]:
    """Return the files of a directory that have the suffix; hidden ones are not looked at.

    Raises:
        BankError: none, or a file that its reader refuses.
    """
    paths = sorted(directory.glob(f"[!.]*{suffix}"))
    if not paths:
        raise BankError("file", f"no *{suffix}", "at least one", str(directory))
    for path in paths:
        check_regular(path)
    return [read(path) for path in paths]


def joined(contents: list[Content], where: str | None = None) -> Content:
    """Return the files of one directory as one, named after the directory."""
    whole = together(contents)
    return replace(whole, where=where or str(Path(contents[0].where).parent))
