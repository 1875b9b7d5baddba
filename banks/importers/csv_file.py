"""A CSV file, or a directory of them, as named arrays, for small things.

The first line names the columns; ``logits[0]``, ``logits[1]``, ... are one tensor. Numbers are
decimal; they get their dtype where a bank is made of them.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np

from ..bank import Array
from ..errors import BankError
from ..interchange import STEP, Column, Content
from .directory import HEADER_NAME, joined, read_parts
from .header import parse_exported
from .reading import Reading

MAX_NUMBERS: Final = 20_000_000
"""Numbers of a file at most; more belong into another format."""
_LINES: Final = 256
_INDEXED: Final = re.compile(r"(.+?)\[(\d{1,9}(?:,\d{1,9})*)\]")


def read_csv(path: Path, reading: Reading) -> Content:
    """Return what CSV files hold: one file, or the directory of an exported bank.

    Raises:
        BankError: a damaged file, or a cell that is no number, or one that is too large; names
            line and column.
    """
    del reading
    if not path.is_dir():
        return _one(path)
    header = path / HEADER_NAME
    text = _text(header) if header.is_file() else None
    whole = joined(read_parts(path, ".csv", _one), str(path))
    found = parse_exported(text, str(header))
    return Content(str(path), whole.columns, found, sources=whole.sources)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BankError("file", error, "readable text", str(path)) from None


@dataclass(frozen=True)
class _Group:
    """A tensor's columns: their places in a line, in the order of its values, and its axes."""

    places: tuple[int, ...]
    shape: tuple[int, ...]


def _one(path: Path) -> Content:
    table = _Table(path)
    columns = {
        name: Column(
            table.dtype(group),
            (table.rows, *group.shape),
            partial(_part, table, name),
            decimal=True,
        )
        for name, group in table.groups.items()
    }
    return Content(str(path), columns)


def _part(table: _Table, name: str, start: int, stop: int) -> Array:
    return table.read(start, stop, name)


class _Table:
    """Lines of one file, in blocks; the last block is kept for the other columns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._where = str(path)
        self.groups: dict[str, _Group] = {}
        self.rows = 0
        self._floats: set[int] = set()
        self._block: tuple[int, dict[str, Array]] = (0, {})
        self._running: Iterator[list[str]] = iter(())
        self._next = -1
        self._scan()

    def _lines(self) -> Iterator[list[str]]:
        try:
            with self._path.open(encoding="utf-8", newline="") as file:
                yield from self._parsed(file)
        except (OSError, UnicodeDecodeError) as error:
            raise BankError("file", error, "a readable CSV file", self._where) from None

    def _parsed(self, file: TextIO) -> Iterator[list[str]]:
        reader = csv.reader(file, strict=True)
        try:
            yield from reader
        except csv.Error as error:
            where = f"{self._where}, line {reader.line_num}"
            raise BankError("line", error, "a line of a CSV file", where) from None

    def _scan(self) -> None:
        """Count lines, and tell columns of whole numbers from others."""
        lines = self._lines()
        names = next(lines, [])
        self._group(names)
        for number, line in enumerate(lines, start=2):
            if len(line) != len(names):
                where = f"{self._where}, line {number}"
                raise BankError("columns", len(line), len(names), where)
            for place, cell in enumerate(line):
                if place not in self._floats and not cell.lstrip("-").isdecimal():
                    self._floats.add(place)
            self.rows += 1
            if self.rows * len(names) > MAX_NUMBERS:
                expected = f"at most {MAX_NUMBERS:,}: use Parquet or npz"
                raise BankError("numbers", f"over {MAX_NUMBERS:,}", expected, self._where)
        if not self.rows:
            raise BankError("lines", 0, "a line of names and at least one of numbers", self._where)

    def _group(self, names: list[str]) -> None:
        places: dict[str, dict[tuple[int, ...], int]] = {}
        for place, name in enumerate(names):
            found = _INDEXED.fullmatch(name.strip())
            index = tuple(int(part) for part in found[2].split(",")) if found else ()
            held = places.setdefault(found[1] if found else name.strip(), {})
            if index in held:
                raise BankError(f"column {name}", "there twice", "once", self._where)
            held[index] = place
        for name, held in places.items():
            order = sorted(held)
            axes = {len(index) for index in order}
            shape = tuple(size + 1 for size in order[-1])
            count = math.prod(shape)
            if len(axes) != 1 or count != len(order):
                got = f"{len(order)} of {name}[{','.join(str(size) for size in shape)}]"
                raise BankError(f"columns of {name}", got, "each index from 0 on", self._where)
            self.groups[name] = _Group(tuple(held[index] for index in order), shape)

    def dtype(self, group: _Group) -> np.dtype[Any]:
        """Return int64 for whole numbers, else float64."""
        points = any(place in self._floats for place in group.places)
        return np.dtype(np.float64) if points else np.dtype(np.int64)

    def read(self, start: int, stop: int, name: str) -> Array:
        """Return lines start..stop of a tensor's columns."""
        first, held = self._block
        if first > start or first + len(held.get(name, ())) < stop:
            self._block = (start, self._numbers(start, max(stop, min(start + STEP, self.rows))))
            first, held = self._block
        return held[name][start - first : stop - first]

    def _numbers(self, start: int, stop: int) -> dict[str, Array]:
        """All tensors of some lines, made of few lines at a time: text takes ten times as much."""
        if self._next != start:
            self._running = self._lines()
            for _ in range(start + 1):
                next(self._running)
        self._next = stop
        pieces: dict[str, list[Array]] = {name: [] for name in self.groups}
        for low in range(start, stop, _LINES):
            lines = [next(self._running) for _ in range(min(_LINES, stop - low))]
            for name, group in self.groups.items():
                pieces[name].append(self._parsed_cells(lines, low, group))
        return {name: np.concatenate(parts) for name, parts in pieces.items()}

    def _parsed_cells(self, lines: list[list[str]], start: int, group: _Group) -> Array:
        dtype = self.dtype(group)
        cells = [line[place] for line in lines for place in group.places]
        try:
            values = np.array(cells, dtype=dtype)
        except (ValueError, OverflowError):
            raise self._wrong(lines, start, group, dtype) from None
        if dtype.kind == "f":
            self._check_finite(cells, values, start, group)
        return values.reshape(len(lines), *group.shape)

    def _check_finite(self, cells: list[str], values: Array, start: int, group: _Group) -> None:
        """Refuse a number that is too large for float64; one that is written as infinite is not."""
        for place in np.flatnonzero(np.isinf(values)).tolist():
            if any(digit in cells[place] for digit in "0123456789"):
                line, column = divmod(place, len(group.places))
                where = f"{self._where}, line {start + line + 2}, column {group.places[column] + 1}"
                expected = "a number that float64 holds, or inf"
                raise BankError("number", repr(cells[place]), expected, where)

    def _wrong(
        self, lines: list[list[str]], start: int, group: _Group, dtype: np.dtype[Any]
    ) -> BankError:
        for number, line in enumerate(lines, start=start + 2):
            for place in group.places:
                try:
                    np.array([line[place]], dtype=dtype)
                except (ValueError, OverflowError):
                    where = f"{self._where}, line {number}, column {place + 1}"
                    return BankError("number", repr(line[place]), "a decimal number", where)
        raise AssertionError("a number of these cells could not be read")
