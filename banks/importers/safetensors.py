"""A safetensors file as named arrays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from ..bank import Array
from ..errors import BankError
from ..interchange import HEADER_KEY, Column, Content
from .header import parse_exported
from .reading import Reading

DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F16": np.dtype(np.float16),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
    "BOOL": np.dtype(np.bool_),
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
    "I16": np.dtype(np.int16),
    "U16": np.dtype(np.uint16),
    "I32": np.dtype(np.int32),
    "U32": np.dtype(np.uint32),
    "I64": np.dtype(np.int64),
    "U64": np.dtype(np.uint64),
}
"""By the name in the file; a tensor of another dtype cannot be read, the others of its file can."""


def read_safetensors(path: Path, reading: Reading) -> Content:
    """Return what a safetensors file holds; its tensors stay on disk until they are read.

    Raises:
        BankError: not a whole safetensors file.
    """
    del reading
    where = str(path)
    try:
        # The library checks the header: places within the file, no gap, sizes that fit the shapes.
        with safe_open(where, "np") as file:
            metadata = file.metadata() or {}
        memory: Array = np.memmap(path, np.uint8, "r")
        length = int.from_bytes(memory[:8].tobytes(), "little")
        entries = json.loads(memory[8 : 8 + length].tobytes())
    except (SafetensorError, OSError, ValueError) as error:
        text = str(error).splitlines()[0]
        raise BankError("file", text, "a safetensors file", where) from None
    entries.pop("__metadata__", None)
    data = memory[8 + length :]
    columns = {name: _column(data, entry) for name, entry in entries.items()}
    header = parse_exported(metadata.get(HEADER_KEY), where)
    return Content(where, columns, header)


def _column(data: Array, entry: dict[str, Any]) -> Column:
    begin, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    dtype = DTYPES.get(entry["dtype"], np.dtype(np.void))
    record = (end - begin) // shape[0] if shape and shape[0] else end - begin

    def read(start: int, stop: int) -> Array:
        if not shape:
            return data[begin:end].view(dtype).reshape(())
        part = data[begin + start * record : begin + stop * record]
        return part.view(dtype).reshape(stop - start, *shape[1:])

    return Column(dtype, shape, read)


def metadata_text(header: Any) -> dict[str, str]:
    """Return a header as a safetensors file keeps it: metadata is text."""
    return {HEADER_KEY: json.dumps(header)}
