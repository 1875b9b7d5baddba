"""Writing a bank: streamed, into a temporary directory that is renamed when it is complete."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from .arrow_tables import dtype_name, key_field, tensor_field, to_batch
from .atomic import begin_directory, finish_directory
from .bank import KEYS, Array, Header, RowBlock
from .disk import measured, write_synced, writing
from .errors import BankError
from .records import values_digest
from .schema import (
    HEADER_FILE,
    RANKS_FILE,
    ROWS_FILE,
    SCHEMA_VERSION,
    WEIGHTS_FILE,
    ProvenanceModel,
    parse_header,
)
from .store import BLOCK_TENSORS, open_directory

BATCH_ROWS: Final = 4096
RANKED: Final = {
    "latent_partials": "partial",
    "latent_shards": "column",
    "logits_shards": "column",
}

_WHAT: Final = "directory"


def write_bank(
    directory: str | Path,
    header: Header,
    weights: Mapping[str, Array],
    blocks: Iterable[RowBlock],
    *,
    batch_digests: bool = True,
) -> str:
    """Write a bank and return its digest.

    Args:
        directory: a new or empty directory; its parent exists.
        header: name, geometry and so on; ``rows`` and ``digest`` come from what is written.
        weights: whole tensors by name.
        blocks: rows in order, all with the same columns; any size, held one batch at a time.
        batch_digests: whether ``bank.json`` gets a digest for each column of each record batch,
            by which a reader of parts checks what it reads. False writes the bits of a bank that
            had none.

    Raises:
        BankError: the directory is taken, or the blocks do not fit the header. Nothing is left.
    """
    with BankWriter(directory, header, weights, batch_digests=batch_digests) as writer:
        for block in blocks:
            writer.append(block)
        return writer.finish()


class BankWriter:
    """A bank being written; ``finish`` makes it appear, leaving the context without it drops it."""

    def __init__(
        self,
        directory: str | Path,
        header: Header,
        weights: Mapping[str, Array],
        *,
        batch_digests: bool = True,
    ) -> None:
        self._target = Path(directory)
        self._header = header
        self._weights = dict(weights)
        self._tensors: dict[str, dict[str, Any]] = {}
        self._keys: dict[str, str] = {}
        self._rows = 0
        self._pending: list[dict[str, Array]] = []
        self._pending_rows = 0
        self._sinks: dict[str, pa.ipc.RecordBatchFileWriter] = {}
        self._batches: dict[str, _Batches] | None = {} if batch_digests else None
        self._partial = begin_directory(self._target, _WHAT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for sink in self._sinks.values():
            # Of what is dropped: a full disk has been told of when it was written to.
            with contextlib.suppress(OSError):
                sink.close()
        self._sinks.clear()
        shutil.rmtree(self._partial, ignore_errors=True)

    def append(self, block: RowBlock) -> None:
        """Add rows.

        Raises:
            BankError: other columns, dtypes or shapes than the first block's, or a full disk.
        """
        columns = block_columns(block)
        if not self._keys:
            self._begin(block, columns)
        expected = {*self._keys, *self._tensors}
        for name in sorted(expected ^ columns.keys()):
            found = "present" if name in columns else "absent"
            raise BankError(f"column {name}", found, "as in the first block", self._where(block))
        for name, values in columns.items():
            self._check_column(name, values, block)
        self._pending.append(columns)
        self._pending_rows += block.rows
        self._rows += block.rows
        if self._pending_rows >= BATCH_ROWS:
            self._flush()

    def _where(self, block: RowBlock) -> str:
        return f"{self._target}, block at row {block.start}"

    def _begin(self, block: RowBlock, columns: Mapping[str, Array]) -> None:
        where = self._where(block)
        keys = [key for key in block.keys if key != "unit"]
        self._keys = {key: dtype_name(block.keys[key], key, where) for key in keys}
        for name, values in columns.items():
            if name in self._keys:
                continue
            lead = 2 if name in RANKED else 1
            self._tensors[name] = {
                "dtype": dtype_name(values, name, where),
                "shape": list(values.shape[lead:]),
                "layout": RANKED.get(name, "replicated"),
                "file": RANKS_FILE if name in RANKED else ROWS_FILE,
            }

    def _check_column(self, name: str, values: Array, block: RowBlock) -> None:
        where = self._where(block)
        got = dtype_name(values, name, where)
        if name in self._keys:
            expected, shape = self._keys[name], (block.rows,)
        else:
            tensor = self._tensors[name]
            lead = (self._header.ranks, block.rows) if name in RANKED else (block.rows,)
            expected, shape = tensor["dtype"], (*lead, *tensor["shape"])
        if got != expected:
            raise BankError(f"column {name}", got, expected, where)
        if values.shape != shape:
            raise BankError(f"column {name} shape", values.shape, shape, where)

    def _flush(self) -> None:
        if not self._pending:
            return
        merged = {}
        for name in self._pending[0]:
            axis = 1 if name in RANKED else 0
            merged[name] = np.concatenate([columns[name] for columns in self._pending], axis)
        self._pending, self._pending_rows = [], 0
        rows = len(next(merged[key] for key in self._keys))
        for start in range(0, rows, BATCH_ROWS):
            stop = min(start + BATCH_ROWS, rows)
            self._write_rows(merged, start, stop)
            if self._header.ranks is not None:
                self._write_ranks(merged, start, stop)

    def _write_rows(self, columns: Mapping[str, Array], start: int, stop: int) -> None:
        part = {n: values[start:stop] for n, values in columns.items() if n not in RANKED}
        self._write(ROWS_FILE, self._schema(ROWS_FILE), part)

    def _write_ranks(self, columns: Mapping[str, Array], start: int, stop: int) -> None:
        ranks = self._header.ranks or 1
        part = {}
        for key in KEYS[:3]:
            part[key] = np.repeat(columns[key][start:stop], ranks)
        rank_dtype = columns["rank"].dtype
        part["rank"] = np.tile(np.arange(ranks, dtype=rank_dtype), stop - start)
        for name in RANKED:
            if name in columns:
                moved = np.moveaxis(columns[name][:, start:stop], 0, 1)
                part[name] = np.ascontiguousarray(moved).reshape(-1, *moved.shape[2:])
        self._write(RANKS_FILE, self._schema(RANKS_FILE), part)

    def _schema(self, file: str) -> pa.Schema:
        keys = self._keys
        if file == RANKS_FILE:
            keys = {name: dtype for name, dtype in keys.items() if name in KEYS}
        fields = [key_field(name, dtype) for name, dtype in keys.items()]
        return pa.schema(fields + _tensor_fields(self._tensors, file))

    def _write(self, file: str, schema: pa.Schema, columns: Mapping[str, Array]) -> None:
        with writing(self._target, _WHAT):
            if file not in self._sinks:
                self._sinks[file] = pa.ipc.new_file(str(self._partial / file), schema)
            self._sinks[file].write_batch(to_batch(schema, columns))
        if self._batches is not None:
            self._batches.setdefault(file, _Batches()).add(schema.names, columns)

    def finish(self) -> str:
        """Complete the bank under its name and return its digest.

        Raises:
            BankError: no rows, a header that does not fit them, a full disk, or the name was taken
                meanwhile.
        """
        with writing(self._target, _WHAT):
            return self._finish()

    def _finish(self) -> str:
        self._flush()
        if not self._rows:
            raise BankError("rows", 0, "at least 1", str(self._target))
        where = f"{self._target}, weights"
        weights = {
            name: {
                "dtype": dtype_name(values, name, where),
                "shape": list(values.shape),
                "layout": "replicated",
                "file": WEIGHTS_FILE,
            }
            for name, values in self._weights.items()
        }
        if weights:
            schema = pa.schema(_tensor_fields(weights, WEIGHTS_FILE))
            self._write(WEIGHTS_FILE, schema, {n: v[np.newaxis] for n, v in self._weights.items()})
        files = list(self._sinks)
        for sink in self._sinks.values():
            sink.close()
        self._sinks.clear()
        document = bank_document(self._header, self._rows, self._keys, {**self._tensors, **weights})
        document["files"] = {name: self._measured(name) for name in sorted(files)}
        text = (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()
        parse_header(text, str(self._target / HEADER_FILE))
        # Last: a directory without bank.json is no bank.
        write_synced(self._partial / HEADER_FILE, text)
        self._check_readable()
        finish_directory(self._partial, self._target, _WHAT)
        return hashlib.sha256(text).hexdigest()

    def _measured(self, name: str) -> dict[str, Any]:
        entry = measured(self._partial / name)
        if self._batches is not None:
            batches = self._batches[name]
            entry["batches"] = {"rows": batches.rows, "sha256": batches.sha256}
        return entry

    def _check_readable(self) -> None:
        """Refuse what the reader would refuse, before it has the bank's name."""
        try:
            open_directory(self._partial, verify=False)
        except BankError as error:
            where = error.where.replace(str(self._partial), str(self._target))
            raise BankError(error.what, error.got, error.expected, where) from None


class _Batches:
    """Sizes and digests of a file's record batches so far, as ``schema.BatchesModel``."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.sha256: dict[str, list[str]] = {}

    def add(self, names: Sequence[str], columns: Mapping[str, Array]) -> None:
        self.rows.append(len(columns[names[0]]))
        for name in names:
            self.sha256.setdefault(name, []).append(values_digest(columns[name]))


def block_columns(block: RowBlock) -> dict[str, Array]:
    """Return a block's stored arrays by column name, in the order in which a bank keeps them."""
    columns = {name: values for name, values in block.keys.items() if name != "unit"}
    for name in BLOCK_TENSORS:
        values = getattr(block, name)
        if values is not None:
            columns[name] = values
    for path, (ids, weights) in block.recorded.items():
        columns[f"recorded.{path}.ids"] = ids
        if weights is not None:
            columns[f"recorded.{path}.weights"] = weights
    return {**columns, **block.extra}


def _tensor_fields(tensors: Mapping[str, Mapping[str, Any]], file: str) -> list[pa.Field]:
    return [
        tensor_field(name, tensor["dtype"], tuple(tensor["shape"]))
        for name, tensor in tensors.items()
        if tensor["file"] == file
    ]


def bank_document(
    header: Header, rows: int, keys: Mapping[str, str], tensors: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields of ``bank.json`` but for ``files``."""

    def record(value: Any) -> dict[str, Any]:
        return {name: getattr(value, name) for name in value.__slots__}

    return {
        "schema_version": SCHEMA_VERSION,
        "name": header.name,
        "rows": rows,
        "stage": header.stage,
        "ranks": header.ranks,
        "geometry": record(header.geometry),
        "scoring": record(header.scoring),
        "tie_contract": header.tie_contract,
        "independence_unit": header.independence_unit,
        "keys": dict(keys),
        "tensors": dict(tensors),
        "recorded": {name: {"width": width} for name, width in header.recorded_widths.items()},
        "provenance": _in_order(header.provenance),
    }


def _in_order(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """The known fields first, as every reader gives them back: the same bits after a round trip."""
    known = [name for name in ProvenanceModel.model_fields if name in provenance]
    return {**{name: provenance[name] for name in known}, **provenance}
