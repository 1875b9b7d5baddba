"""A CSV file, or a directory of them, as named arrays, for small things.

The first line names the columns; ``logits[0]``, ``logits[1]``, ... are one tensor. Numbers are
decimal; they get their dtype where a bank is made of them.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
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
_INDEXED: Final = re.compile(r"(.+?)\[(\d{1,9}(?:,\d{1,9})*)\]")


def read_csv(path: Path, reading: Reading) -> Content:
    """Return what CSV files hold: one file, or the directory of an exported bank.

    Raises:
        BankError: a damaged file, or a cell that is no number; names line and column.
    """
    del reading
    if not path.is_dir():
        return _one(path)
    header = path / HEADER_NAME
    text = _text(header) if header.is_file() else None
    whole = joined(read_parts(path, ".csv", _one), str(path))
    found = parse_exported(text, str(header))
    return Content(str(path), whole.columns, found, decimal=True, sources=whole.sources)


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
    columns = {}
    for name, group in table.groups.items():
        dtype = np.dtype(np.float64) if table.has_point(group) else np.dtype(np.int64)
        shape = (table.rows, *group.shape)
        columns[name] = Column(dtype, shape, _reader(table, group, dtype))
    return Content(str(path), columns, decimal=True)


def _reader(table: _Table, group: _Group, dtype: np.dtype[Any]) -> Any:
    def read(start: int, stop: int) -> Array:
        return table.read(start, stop, group, dtype)

    return read


class _Table:
    """Lines of one file, in blocks; the last block is kept for the other columns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._where = str(path)
        self.groups: dict[str, _Group] = {}
        self.rows = 0
        self._floats: set[int] = set()
        self._block: tuple[int, list[list[str]]] = (0, [])
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
            count = int(np.prod(shape, dtype=np.float64))
            if len(axes) != 1 or count != len(order):
                got = f"{len(order)} of {name}[{','.join(str(size) for size in shape)}]"
                raise BankError(f"columns of {name}", got, "each index from 0 on", self._where)
            self.groups[name] = _Group(tuple(held[index] for index in order), shape)

    def has_point(self, group: _Group) -> bool:
        """Return whether any of the columns has a number that is not whole."""
        return any(place in self._floats for place in group.places)

    def read(self, start: int, stop: int, group: _Group, dtype: np.dtype[Any]) -> Array:
        """Return lines start..stop of a tensor's columns."""
        lines = self._held(start, stop)
        cells = [line[place] for line in lines for place in group.places]
        try:
            values = np.array(cells, dtype=dtype)
        except (ValueError, OverflowError):
            raise self._wrong(lines, start, group, dtype) from None
        return values.reshape(len(lines), *group.shape)

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

    def _held(self, start: int, stop: int) -> list[list[str]]:
        first, lines = self._block
        if first > start or first + len(lines) < stop:
            self._block = (start, self._slice(start, max(stop, min(start + STEP, self.rows))))
            first, lines = self._block
        return lines[start - first : stop - first]

    def _slice(self, start: int, stop: int) -> list[list[str]]:
        if self._next != start:
            self._running = self._lines()
            for _ in range(start + 1):
                next(self._running)
        self._next = stop
        return [next(self._running) for _ in range(stop - start)]
