"""A safetensors file as named arrays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

# Registers bfloat16 and the 8-bit floats with numpy, which safetensors needs for them.
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
        file: Any = safe_open(where, "np")
        names = list(file.keys())
        metadata = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        text = str(error).splitlines()[0]
        raise BankError("file", text, "a safetensors file", where) from None
    columns = {name: _column(file, name, where) for name in names}
    header = parse_exported(metadata.get(HEADER_KEY), where)
    return Content(where, columns, header)


def _column(file: Any, name: str, where: str) -> Column:
    part = file.get_slice(name)
    shape = tuple(part.get_shape())
    dtype = DTYPES.get(part.get_dtype())

    def read(start: int, stop: int) -> Array:
        try:
            # A tensor without axes has no part of its first one.
            values: Array = part[start:stop] if shape else file.get_tensor(name)
        except (SafetensorError, OSError, TypeError, ValueError) as error:
            raise BankError(f"tensor {name}", error, "readable", where) from None
        return values

    return Column(np.dtype(np.void) if dtype is None else dtype, shape, read)


def metadata_text(header: Any) -> dict[str, str]:
    """Return a header as a safetensors file keeps it: metadata is text."""
    return {HEADER_KEY: json.dumps(header)}
