"""A bank as a file of torch.save: a dictionary of tensors, and the header as text."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..atomic import new_file
from ..bank import Array
from ..interchange import HEADER_KEY, Column, Content
from ..store import as_torch
from .writing import Writing, header_text, parts

if TYPE_CHECKING:
    import torch


def write_torch(content: Content, target: Path, writing: Writing) -> None:
    """Write all columns; ``torch.load(..., weights_only=True)`` opens the file.

    torch.save takes whole tensors: rows lie in a file beside the target first, which takes as much
    disk again, and memory for one block of rows.

    Raises:
        BankError: the name is taken, or it cannot be written.
    """
    del writing
    with (
        new_file(target, "file of torch.save") as partial,
        tempfile.TemporaryDirectory(prefix="spool-", dir=partial.parent) as spool,
    ):
        held: dict[str, Any] = {HEADER_KEY: header_text(content)}
        for number, (name, column) in enumerate(content.columns.items()):
            held[name] = _spooled(column, Path(spool) / str(number))
        save(held, partial)


def save(held: Any, path: Path) -> None:
    """Call torch.save, which gives no reason where the system refuses to write.

    Raises:
        OSError: the system's own.
    """
    import torch

    with path.open("wb") as file:
        try:
            torch.save(held, file)
        except RuntimeError as error:
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise


def _spooled(column: Column, path: Path) -> torch.Tensor:
    mapped: Array = np.memmap(path, np.uint8, "w+", shape=(max(1, _bytes(column)),))
    place = 0
    for part in parts(column):
        flat = part.reshape(-1).view(np.uint8)
        mapped[place : place + len(flat)] = flat
        place += len(flat)
    return as_tensor(mapped[:place].view(column.dtype).reshape(column.shape))


def _bytes(column: Column) -> int:
    return int(np.prod(column.shape, dtype=np.int64)) * column.dtype.itemsize


def as_tensor(values: Array) -> torch.Tensor:
    """Return an array of a bank's dtype as a tensor of the same memory."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writ")
        return as_torch(values)
