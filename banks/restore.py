"""A bank as content that can be exported, and content that was exported as that bank again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from .arrow_tables import dtype_name
from .bank import Array, Bank, Header, RowBlock
from .errors import BankError
from .geometry import Geometry, ScoringRule
from .interchange import Column, Content, as_dtype, column, steps
from .schema import DTYPES, RANKS_FILE, ROWS_FILE, WEIGHTS_FILE, BankModel, parse_header
from .store import BLOCK_TENSORS
from .write import RANKED, bank_document, block_columns, write_bank

_BATCH_DIGESTS: Final = "batch_digests"
"""Of an exported header: the bank had a digest for each record batch, and gets them again."""


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
    if bank.batch_digests:
        header[_BATCH_DIGESTS] = True
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
    document = {key: value for key, value in content.header.items() if key != _BATCH_DIGESTS}
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
        if found.dtype != DTYPES[dtype] and not found.decimal:
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

    digested = content.header is not None and content.header.get(_BATCH_DIGESTS) is True
    return write_bank(directory, header, weights, blocks(), batch_digests=digested)


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
