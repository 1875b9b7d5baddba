"""The header that an exporter of ours left in a file."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np

from ..errors import BankError
from ..schema import DTYPES

BITS: Final = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Dtypes that most formats lack: their bits are kept, as unsigned integers."""


def parse_exported(text: str | None, where: str) -> Mapping[str, Any] | None:
    """Return the header's fields; None where there is none.

    Their content is checked when a bank is made of them.

    Raises:
        BankError: no JSON object.
    """
    if text is None:
        return None
    try:
        header = json.loads(text)
    # A number of too many digits is a ValueError, as broken JSON is.
    except (ValueError, RecursionError) as error:
        raise BankError("header", str(error) or "too deep", "JSON", where) from None
    if not isinstance(header, dict):
        raise BankError("header", type(header).__name__, "a JSON object", where)
    return header


def stored_dtypes(
    header: Mapping[str, Any] | None, columns: Collection[str]
) -> dict[str, np.dtype[Any]]:
    """Return the dtypes of columns of which a file holds only the bits: BF16 and FP8.

    What else is in the header is not looked at here.
    """
    tensors = (header or {}).get("tensors")
    found = {}
    for name, entry in tensors.items() if isinstance(tensors, dict) else ():
        dtype = entry.get("dtype") if isinstance(entry, dict) else None
        if name in columns and isinstance(dtype, str) and dtype in BITS:
            found[name] = DTYPES[dtype]
    return found
