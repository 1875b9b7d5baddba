"""A bank as a directory of CSV files, for small things: rows.csv, and a file for each weight."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np

from ..atomic import new_directory
from ..bank import Array
from ..errors import BankError
from ..importers.csv_file import MAX_NUMBERS
from ..importers.directory import HEADER_NAME, ROWS_STEM
from ..interchange import Column, Content, steps
from .writing import Writing, bits, header_text, row_columns, weight_columns

_LINES: Final = 256
"""Lines that are made at a time: a number's text takes ten times its own memory."""

_QUIET_NAN: Final = {
    np.dtype(np.float32): 0x7FC00000,
    np.dtype(np.float64): 0x7FF8000000000000,
    np.dtype(np.float16): 0x7E00,
    np.dtype(ml_dtypes.bfloat16): 0x7FC0,
    np.dtype(ml_dtypes.float8_e4m3fn): 0x7F,
    np.dtype(ml_dtypes.float8_e5m2): 0x7E,
}
"""The bits that the text ``nan`` becomes when it is read."""


def write_csv(content: Content, target: Path, writing: Writing) -> None:
    """Write rows and weights as decimal numbers that are read to the same bits.

    Raises:
        BankError: more numbers than a CSV file is for, a NaN of other bits than the usual ones, or
            the directory is taken.
    """
    del writing
    for name, column in content.columns.items():
        count = int(np.prod(column.shape, dtype=np.int64))
        if count > MAX_NUMBERS:
            expected = f"at most {MAX_NUMBERS:,}: use Parquet or npz"
            raise BankError(f"numbers of {name}", f"{count:,}", expected, content.where)
    with new_directory(target, "directory of CSV files") as partial:
        _write(partial / f"{ROWS_STEM}.csv", row_columns(content), content.where)
        for name, column in weight_columns(content).items():
            _write(partial / f"{name}.csv", {name: column}, content.where)
        (partial / HEADER_NAME).write_text(header_text(content), encoding="utf-8")


def _write(path: Path, columns: dict[str, Column], where: str) -> None:
    rows = max(column.shape[0] for column in columns.values())
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([n for name, column in columns.items() for n in _names(name, column)])
        for start, stop in steps(rows, _LINES):
            cells = [_texts(name, c, start, stop, where) for name, c in columns.items()]
            writer.writerows([*itertools.chain(*line)] for line in zip(*cells, strict=True))


def _names(name: str, column: Column) -> list[str]:
    if len(column.shape) == 1:
        return [name]
    indices = itertools.product(*(range(size) for size in column.shape[1:]))
    return [f"{name}[{','.join(map(str, index))}]" for index in indices]


def _texts(name: str, column: Column, start: int, stop: int, where: str) -> list[list[str]]:
    values = np.ascontiguousarray(column.read(start, stop)).reshape(stop - start, -1)
    if values.dtype.kind in "iu":
        return [[str(value) for value in line] for line in values.tolist()]
    _check_nans(name, values, start, where)
    # The shortest decimal of the value as float64 is that value again.
    wide: Any = values.astype(np.float64)
    return [[repr(value) for value in line] for line in wide.tolist()]


def _check_nans(name: str, values: Array, start: int, where: str) -> None:
    usual = _QUIET_NAN[values.dtype]
    held = bits(values)
    if held.dtype.kind == "f":
        held = held.view(f"u{held.dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        odd = np.argwhere(np.isnan(values) & (held != usual))
    if len(odd):
        row, place = odd[0].tolist()
        got = f"a NaN with the bits {int(held[row, place]):#x}"
        expected = f"{usual:#x}: a decimal number cannot tell others (use another format)"
        raise BankError(f"{name}[{start + row}, {place}]", got, expected, where)
