"""A bank as a numpy .npz file: numpy has neither BF16 nor FP8, of which the bits are kept."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from ..atomic import new_file
from ..interchange import HEADER_KEY, Column, Content, column
from .writing import Writing, bits, header_text, parts


def write_npz(content: Content, target: Path, writing: Writing) -> None:
    """Write all columns, one after the other, uncompressed.

    The header is a member of bytes; ``numpy.load`` opens the rest without unpickling.

    Raises:
        BankError: the name is taken, or it cannot be written.
    """
    del writing
    header = np.frombuffer(header_text(content).encode(), np.uint8)
    with new_file(target, ".npz file") as partial, zipfile.ZipFile(partial, "w") as file:
        for name, values in {HEADER_KEY: column(header), **content.columns}.items():
            _write(file, name, values)


def _write(file: zipfile.ZipFile, name: str, values: Column) -> None:
    # A fixed date: the same bank is the same file.
    member = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
    dtype = bits(np.empty(0, values.dtype)).dtype
    with file.open(member, "w", force_zip64=True) as sink:
        npy.write_array_header_1_0(
            sink,
            {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": values.shape},
        )
        for part in parts(values):
            sink.write(bits(part).reshape(-1).view(np.uint8).data)
