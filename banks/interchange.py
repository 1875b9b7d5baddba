"""What a foreign file and a bank have in common: named arrays and, where we wrote it, a header.

A reader turns a file into ``Content``, a writer turns ``Content`` into a file, and a bank is turned
into it and made from it here or in ``importers.assemble``: N formats are N readers and N writers.
Columns have the names of a bank's columns and the row as first axis; pieces that vary per rank are
[row, rank, ...].
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from .arrow_tables import dtype_name
from .bank import Array, Bank, Header, RowBlock
from .errors import BankError
from .geometry import Geometry, ScoringRule
from .schema import DTYPES, RANKS_FILE, ROWS_FILE, WEIGHTS_FILE, BankModel, parse_header
from .store import BLOCK_TENSORS
from .write import RANKED, bank_document, block_columns, write_bank

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
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    read: Callable[[int, int], Array]

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
        decimal: whether values were written as decimal numbers and have no dtype of their own.
        sources: which file each column is of, where there are several.
        labels: what the file itself calls a column, where it has been renamed.
    """

    where: str
    columns: Mapping[str, Column]
    header: Mapping[str, Any] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    decimal: bool = False
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
        decimal=any(content.decimal for content in contents),
        sources=sources,
        labels={key: text for content in contents for key, text in content.labels.items()},
    )


def steps(rows: int, step: int = STEP) -> Iterator[tuple[int, int]]:
    """Yield the (start, stop) of the parts in which rows are copied."""
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


def bank_content(bank: Bank) -> Content:
    """Return a bank as an exporter takes it; the rows are read as they are asked for."""
    cache: dict[tuple[int, int], dict[str, Array]] = {}

    def rows_of(start: int, stop: int) -> dict[str, Array]:
        if (start, stop) not in cache:
            cache.clear()
            columns = block_columns(bank.read(start, stop))
            cache[start, stop] = {
                name: np.moveaxis(values, 0, 1) if name in RANKED else values
                for name, values in columns.items()
            }
        return cache[start, stop]

    def row_column(name: str, first: Array) -> Column:
        shape = (bank.rows, *first.shape[1:])
        return Column(first.dtype, shape, lambda start, stop: rows_of(start, stop)[name])

    first = rows_of(0, 1)
    columns = {name: row_column(name, values) for name, values in first.items()}
    columns |= {name: column(values) for name, values in bank.weights.items()}
    header = _document(bank, first)
    return Content(bank.name, columns, json.loads(json.dumps(header, allow_nan=False)))


def _document(bank: Bank, first: Mapping[str, Array]) -> dict[str, Any]:
    keys = {key for key in bank.read(0, 1).keys if key != "unit"}
    tensors: dict[str, Any] = {}
    for name, values in first.items():
        if name not in keys:
            tensors[name] = {
                "dtype": dtype_name(values, name, bank.name),
                "shape": list(values.shape[2 if name in RANKED else 1 :]),
                "layout": RANKED.get(name, "replicated"),
                "file": RANKS_FILE if name in RANKED else ROWS_FILE,
            }
    for name, values in bank.weights.items():
        dtype = dtype_name(values, name, bank.name)
        shape = list(values.shape)
        place = {"layout": "replicated", "file": WEIGHTS_FILE}
        tensors[name] = {"dtype": dtype, "shape": shape, **place}
    key_dtypes = {
        name: dtype_name(values, name, bank.name) for name, values in first.items() if name in keys
    }
    return bank_document(bank.header, bank.rows, key_dtypes, tensors)


def read_header(content: Content) -> tuple[BankModel, Geometry, ScoringRule]:
    """Return the checked header of an exported bank.

    Raises:
        BankError: a wrong field, or columns that are not as the header says.
    """
    assert content.header is not None
    document = dict(content.header)
    tensors = document.get("tensors")
    kinds: list[Any] = list(tensors.values()) if isinstance(tensors, Mapping) else []
    held = [kind.get("file") for kind in kinds if isinstance(kind, Mapping)]
    # What the bank will be, not what it was: digests are made when its files are written.
    unknown = {"bytes": 1, "sha256": "0" * 64}
    document["files"] = {str(file): unknown for file in [ROWS_FILE, *held]}
    where = f"{content.where}, header"
    model, geometry, scoring = parse_header(json.dumps(document).encode(), where)
    for name, (dtype, shape) in _expected(model).items():
        if name not in content.columns:
            raise BankError(f"tensor {name}", "nothing", "present", content.where)
        found = content.columns[name]
        if found.dtype != DTYPES[dtype] and not content.decimal:
            raise BankError(f"tensor {name} dtype", found.dtype, dtype, content.source(name))
        if found.shape != shape:
            got = list(found.shape)
            raise BankError(f"tensor {name} shape", got, list(shape), content.source(name))
    return model, geometry, scoring


def _expected(model: BankModel) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Dtype and shape of every column, by name."""
    expected = {name: (dtype, (model.rows,)) for name, dtype in model.keys.items()}
    whole: dict[str, tuple[str, tuple[int, ...]]] = dict(expected)
    for name, tensor in model.tensors.items():
        lead = {ROWS_FILE: (model.rows,), RANKS_FILE: (model.rows, model.ranks or 1)}
        whole[name] = (tensor.dtype, (*lead.get(tensor.file, ()), *tensor.shape))
    return whole


def restore_bank(content: Content, directory: str | Path, name: str | None = None) -> str:
    """Write the bank that a file was exported from, and return its digest, which is the same.

    Args:
        content: of a file with a header.
        directory: a new or empty directory.
        name: another name for the bank; None keeps it, and the digest.

    Raises:
        BankError: a wrong header, or columns that do not fit it. Nothing is left behind.
    """
    model, geometry, scoring = read_header(content)
    header = Header(
        name=name or model.name,
        rows=model.rows,
        geometry=geometry,
        scoring=scoring,
        tie_contract=model.tie_contract,
        independence_unit=model.independence_unit,
        stage=model.stage,
        digest="",
        ranks=model.ranks,
        recorded_widths={path: entry.width for path, entry in model.recorded.items()},
        provenance=model.provenance.model_dump(exclude_unset=True),
    )
    dtypes = {name: DTYPES[dtype] for name, (dtype, _) in _expected(model).items()}
    weights = {
        name: as_dtype(content, name, content.columns[name].whole(), dtypes[name])
        for name, tensor in model.tensors.items()
        if tensor.file == WEIGHTS_FILE
    }
    row_names = [*model.keys, *(n for n, t in model.tensors.items() if t.file != WEIGHTS_FILE)]

    def blocks() -> Iterable[RowBlock]:
        for start, stop in steps(model.rows):
            columns = {
                name: as_dtype(
                    content, name, content.columns[name].read(start, stop), dtypes[name], start
                )
                for name in row_names
            }
            yield row_block(start, columns, tuple(model.keys), tuple(model.recorded))

    return write_bank(directory, header, weights, blocks())


def as_dtype(
    content: Content, name: str, values: Array, dtype: np.dtype[Any], start: int = 0
) -> Array:
    """Return decimal numbers as the dtype that the column has; other values as they are.

    A decimal number becomes the nearest float32. A BF16 or FP8 value must be one exactly; ``start``
    is the number of the first record.

    Raises:
        BankError: a number that the dtype does not have.
    """
    if values.dtype == dtype or not content.decimal:
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


def row_block(
    start: int, columns: Mapping[str, Array], keys: Sequence[str], recorded: Sequence[str]
) -> RowBlock:
    """Return columns [row, ...] (pieces [row, rank, ...]) as a block of rows.

    Args:
        start: number of the first row.
        columns: arrays by bank name.
        keys: which of them are keys, in their order.
        recorded: names of the paths whose outputs ``recorded.NAME.ids`` are among them.
    """
    left = dict(columns)
    taken = {key: left.pop(key) for key in keys}
    known: dict[str, Any] = {}
    for name in BLOCK_TENSORS:
        if name in left:
            values = left.pop(name)
            known[name] = np.moveaxis(values, 1, 0) if name in RANKED else values
    outputs = {
        path: (left.pop(f"recorded.{path}.ids"), left.pop(f"recorded.{path}.weights", None))
        for path in recorded
    }
    rows = len(taken[keys[0]])
    return RowBlock(start, rows, taken, recorded=outputs, extra=left, **known)


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
