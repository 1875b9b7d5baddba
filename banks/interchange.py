"""What a foreign file and a bank have in common: named arrays and, where we wrote it, a header.

A reader turns a file into ``Content``, a writer turns ``Content`` into a file, and a bank is turned
into it and made from it in ``restore`` and ``importers.assemble``: N formats are N readers and N
writers.
Columns have the names of a bank's columns and the row as first axis; pieces that vary per rank are
[row, rank, ...].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from .bank import Array
from .errors import BankError
from .schema import DTYPES

STEP: Final = 2048
"""Rows that are held at a time: 2,048 rows of K3 are 29 MB of hidden."""

HEADER_KEY: Final = "neartie"
"""What the header is called in a file's own metadata."""


@dataclass(frozen=True, eq=False)
class Column:
    """An array of a file, read in parts of its first axis.

    Attributes:
        dtype: one of ``DTYPES``' for a bank's column; a foreign file may have others.
        shape: all axes; the first is the row, or the weight's own.
        read: returns records start..stop.
        decimal: whether the values were written as decimal numbers and have no dtype of their own.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    read: Callable[[int, int], Array]
    decimal: bool = False

    def whole(self) -> Array:
        """Return all of it."""
        return self.read(0, self.shape[0])


@dataclass(frozen=True, eq=False)
class Content:
    """Named arrays of one or more files.

    Attributes:
        where: the file's name, for messages.
        columns: arrays by the names that the file gives them.
        header: the fields of ``bank.json`` but for ``files``, where the file was exported from a
            bank; None for any other file.
        facts: what the file says of its origin, kept in the provenance (JSON values).
        sources: which file each column is of, where there are several.
        labels: what the file itself calls a column, where it has been renamed.
    """

    where: str
    columns: Mapping[str, Column]
    header: Mapping[str, Any] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    def source(self, name: str) -> str:
        """Return the name of the file that a column is of."""
        return self.sources.get(name, self.where)

    def label(self, name: str) -> str:
        """Return what the file calls a column."""
        return self.labels.get(name, name)


def column(array: Array) -> Column:
    """Return an array that is in memory (or mapped) as a column."""
    return Column(array.dtype, array.shape, lambda start, stop: array[start:stop])


def stacked(parts: Sequence[Column]) -> Column:
    """Return columns of one dtype and one shape but for the first axis, one after the other."""
    starts = np.concatenate([[0], np.cumsum([part.shape[0] for part in parts], dtype=np.int64)])

    def read(start: int, stop: int) -> Array:
        pieces = []
        first = int(np.searchsorted(starts, start, side="right")) - 1
        for index in range(first, len(parts)):
            low, high = int(starts[index]), int(starts[index + 1])
            if low >= stop:
                break
            if high > low:
                pieces.append(parts[index].read(max(start - low, 0), min(stop, high) - low))
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    return Column(parts[0].dtype, (int(starts[-1]), *parts[0].shape[1:]), read)


def together(contents: Sequence[Content]) -> Content:
    """Return several files as one.

    Raises:
        BankError: two files have a tensor of the same name, or two have a header.
    """
    if len(contents) == 1:
        return contents[0]
    columns: dict[str, Column] = {}
    sources: dict[str, str] = {}
    headers = [content for content in contents if content.header is not None]
    if len(headers) > 1:
        raise BankError("header", "one here too", f"only in {headers[0].where}", headers[1].where)
    for content in contents:
        for name, values in content.columns.items():
            if name in columns:
                expected = f"only in {sources[name]}"
                what = f"tensor {content.label(name)}"
                raise BankError(what, "here too", expected, content.where)
            columns[name] = values
            sources[name] = content.source(name)
    return Content(
        where=contents[0].where,
        columns=columns,
        header=headers[0].header if headers else None,
        facts={key: value for content in contents for key, value in content.facts.items()},
        sources=sources,
        labels={key: text for content in contents for key, text in content.labels.items()},
    )


def steps(rows: int, step: int = STEP) -> Iterator[tuple[int, int]]:
    """Yield the (start, stop) of the parts in which rows are copied."""
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


def as_dtype(
    content: Content, name: str, values: Array, dtype: np.dtype[Any], start: int = 0
) -> Array:
    """Return decimal numbers as the dtype that the column has; other values as they are.

    A decimal number becomes the nearest float32. A BF16 or FP8 value must be one exactly; ``start``
    is the number of the first record.

    Raises:
        BankError: a number that the dtype does not have.
    """
    if values.dtype == dtype or not content.columns[name].decimal:
        return values
    # Too large a number becomes an infinity, which is refused below.
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = values.astype(dtype)
    wide = narrow.astype(np.float64)
    same = (wide == values) | (np.isnan(wide) & np.isnan(values.astype(np.float64)))
    if dtype in (np.float32, np.float64):
        same |= np.isfinite(wide)
    if not same.all():
        place = [int(i) for i in np.argwhere(~same)[0]]
        kind = next(kind for kind, known in DTYPES.items() if known == dtype)
        got = values[tuple(place)]
        place[0] += start
        what = f"tensor {content.label(name)}{place}"
        raise BankError(what, got, f"a {kind}", content.source(name))
    return narrow


def without(content: Content, names: Iterable[str]) -> Content:
    """Return content with columns left out, by their own or the file's name.

    Raises:
        BankError: there is no such column.
    """
    dropped = set(names)
    held = {name: {name, content.label(name)} for name in content.columns}
    for name in sorted(dropped.difference(*held.values())):
        known = ", ".join(sorted(content.label(column) for column in held))
        raise BankError("drop", name, f"one of {known}", content.where)
    kept = {n: values for n, values in content.columns.items() if not held[n] & dropped}
    return replace(content, columns=kept)
