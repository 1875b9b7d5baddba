"""A file of torch.save as named arrays: tensors alone are loaded, nothing else is unpickled."""

from __future__ import annotations

import lzma
import pickle
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..bank import Array
from ..errors import BankError, first_sentence
from ..interchange import HEADER_KEY, Column, Content
from ..schema import DTYPES
from .header import parse_exported
from .reading import Reading

if TYPE_CHECKING:
    import torch

# What torch's own unpickler is known to raise on a file that is none of its own.
_BROKEN: Final = (
    pickle.UnpicklingError, RuntimeError, OSError, EOFError, ValueError, LookupError, TypeError,
    AttributeError, AssertionError, struct.error, zipfile.BadZipFile,
)  # fmt: skip
# Of a damaged directory or member; a compression that nobody knows is a RuntimeError.
_BROKEN_ZIP: Final = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, RuntimeError,
    struct.error,
)  # fmt: skip
_VIEWED: Final = {"bfloat16": "int16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}
_CHUNK: Final = 1 << 20
_HELD: Final = 4
"""A nesting of {"value": {"logits": ...}} deeper than this is no file of tensors."""


def load_safely(path: Path) -> Any:
    """Return what torch.save wrote, mapped into memory, if it is tensors, numbers and text alone.

    Any other object would be made by code that the file names: torch refuses the file then.

    Raises:
        BankError: not a whole file of torch.save, one that holds other objects, or one of whose
            members has other bytes than were written.
    """
    import torch

    where = str(path)
    if _is_zip(path):
        _check_members(path)
    try:
        with warnings.catch_warnings():
            # Torch warns of what it refuses, or reads all the same, in lines of its own source.
            warnings.simplefilter("ignore", UserWarning)
            return torch.load(where, map_location="cpu", weights_only=True, mmap=_is_zip(path))
    except _BROKEN as error:
        text = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, LookupError):
            # The byte that is no instruction of a pickle, and nothing else.
            text = "something else"
        if "weights_only" in text.lower() or isinstance(error, pickle.UnpicklingError):
            named = re.search(r"GLOBAL ([\w.]+)", text)
            got = f"an object of {named[1]}" if named else "objects, or no file of torch.save"
            expected = "tensors, numbers and text: no other object is unpickled"
            raise BankError("file", got, expected, where) from None
        raise BankError("file", first_sentence(text), "a file of torch.save", where) from None


def _is_zip(path: Path) -> bool:
    # Files older than torch 1.6 are a pickle in a row with the tensors, which cannot be mapped.
    return path.is_file() and zipfile.is_zipfile(path)


def _check_members(path: Path) -> None:
    """Read every member of the archive and hold it to its CRC, which torch does not look at.

    Raises:
        BankError: names the first that is not as it was written.
    """
    what = "file"
    try:
        with zipfile.ZipFile(path) as file:
            for member in file.infolist():
                what = f"member {member.filename}"
                # set_crc32_options(False) of torch writes 0: there is nothing to hold it to.
                if member.CRC:
                    with file.open(member) as source:
                        while source.read(_CHUNK):
                            pass
    except _BROKEN_ZIP as error:
        got = str(error) or "damaged"
        raise BankError(what, got, "as torch.save wrote it", str(path)) from None


def read_torch(path: Path, reading: Reading) -> Content:
    """Return what a file of torch.save holds: a dictionary of tensors, such as a state dict.

    Raises:
        BankError: not such a file, or one that would have to be unpickled.
    """
    del reading
    where = str(path)
    held = load_safely(path)
    if not isinstance(held, Mapping):
        raise BankError("file", type(held).__name__, "a dictionary of tensors", where)
    columns = {}
    for name, values in _flat(held, "", 0, where):
        columns[name] = tensor_column(values, f"tensor {name}", where)
    text = held.get(HEADER_KEY)
    header = parse_exported(text if isinstance(text, str) else None, where)
    return Content(where, columns, header)


def _flat(
    held: Mapping[Any, Any], prefix: str, depth: int, where: str
) -> list[tuple[str, torch.Tensor]]:
    """Tensors of nested dictionaries, whose names are joined by dots; what else is there is not."""
    import torch

    if depth > _HELD:
        raise BankError("file", f"{prefix}...", f"at most {_HELD} dictionaries deep", where)
    found: list[tuple[str, torch.Tensor]] = []
    for key, value in held.items():
        name = f"{prefix}{key}"
        if isinstance(value, torch.Tensor):
            found.append((name, value))
        elif isinstance(value, Mapping):
            found += _flat(value, f"{name}.", depth + 1, where)
    return found


def tensor_column(tensor: torch.Tensor, what: str, where: str) -> Column:
    """Return a tensor as a column.

    Raises:
        BankError: a sparse or quantized tensor, or one without memory.
    """
    import torch

    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
        got = f"{tensor.layout} on {tensor.device}"
        raise BankError(what, got, "a plain dense tensor", where)
    tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    kind = str(tensor.dtype).removeprefix("torch.")
    dtype = DTYPES.get(kind)
    if dtype is None:
        try:
            dtype = np.dtype(kind)
        except TypeError:
            raise BankError(f"{what} dtype", kind, f"one of {', '.join(DTYPES)}", where) from None
    shape = tuple(tensor.shape)

    def read(start: int, stop: int) -> Array:
        part = (tensor[start:stop] if shape else tensor).contiguous()
        if kind in _VIEWED:
            part = part.view(getattr(torch, _VIEWED[kind]))
        values: Array = part.numpy().view(dtype)
        return values

    return Column(dtype, shape, read)
