"""A bank as one safetensors file: every dtype of a bank, and its header in the metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from ..atomic import new_file
from ..importers.safetensors import DTYPES, metadata_text
from ..interchange import Column, Content, steps
from .writing import Writing, row_columns, weight_columns

_NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}


def write_safetensors(content: Content, target: Path, writing: Writing) -> None:
    """Write all columns, in one pass over the rows.

    Raises:
        BankError: the name is taken, or it cannot be written.
    """
    del writing
    with new_file(target, "safetensors file") as partial, partial.open("wb") as file:
        write_columns(file, content.columns, metadata_text(content.header))


def write_columns(
    file: IO[bytes], columns: dict[str, Column] | Any, metadata: dict[str, str]
) -> None:
    """Write columns to an empty file in the layout of safetensors.

    The layout: eight bytes with the length of a JSON header, which has dtype, shape and the place
    of each tensor, and the tensors without a gap (safetensors' format description).
    """
    # The format has wider types first, so that each is aligned.
    order = sorted(columns, key=lambda name: -columns[name].dtype.itemsize)
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    places: dict[str, int] = {}
    end = 0
    for name in order:
        column = columns[name]
        size = int(np.prod(column.shape, dtype=np.int64)) * column.dtype.itemsize
        header[name] = {
            "dtype": _NAMES[column.dtype],
            "shape": list(column.shape),
            "data_offsets": [end, end + size],
        }
        places[name] = end
        end += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    base = 8 + len(text)
    file.truncate(base + end)
    content = Content("", columns)
    for name, column in weight_columns(content).items():
        file.seek(base + places[name])
        file.write(np.ascontiguousarray(column.whole()).view(np.uint8).data)
    held = row_columns(content)
    rows = max((column.shape[0] for column in held.values()), default=0)
    for start, stop in steps(rows):
        for name, column in held.items():
            record = int(np.prod(column.shape[1:], dtype=np.int64)) * column.dtype.itemsize
            file.seek(base + places[name] + start * record)
            values = np.ascontiguousarray(column.read(start, stop))
            file.write(values.reshape(-1).view(np.uint8).data)
