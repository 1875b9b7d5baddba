"""Banks in directories: the reader, mapped into memory, and its checks.

A bank is ``bank.json`` and three Arrow IPC files: rows.arrow (a record per row: integer keys and
tensors), ranks.arrow where tensors vary per rank (a record per row and rank, in that order), and
weights.arrow (one record). Nothing is unpickled. The writer is in ``write``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .arrow_tables import Table, key_field, tensor_field
from .bank import NO_UNIT, Array, Bank, Header, RowBlock
from .errors import BankError, InputError
from .files import Files, files_at
from .key_checks import check_keys, check_rank_keys
from .records import Records
from .remote import RemoteFiles
from .remote_table import RemoteTable
from .schema import (
    DTYPES,
    HEADER_FILE,
    RANKS_FILE,
    ROWS_FILE,
    WEIGHTS_FILE,
    BankModel,
    file_keys,
    file_records,
    parse_header,
)

if TYPE_CHECKING:
    import torch

VERIFIED_AT_OPEN: Final = 1 << 30
"""Banks up to this many bytes have every file's sha256 checked when they are opened; at a URL,
where batches have digests, the keys alone."""

BLOCK_TENSORS: Final = ("hidden", "logits", "latent_partials", "latent_shards", "logits_shards")
_OUTPUTS: Final = ("ids", "weights")
FINITE_WEIGHTS: Final = ("router_weight", "router_weight_master", "latent_down_weight")


def open_directory(path: str | Path, verify: bool | None = None) -> StoredBank:
    """Return the bank of a directory or URL; its rows stay on disk until they are read.

    Args:
        path: a directory, or any URL that pyarrow or fsspec opens (s3, gs, ...). Of a URL only the
            header, the footers and the keys are read here; rows and weights when they are asked
            for, each column of each record batch held against its digest.
        verify: whether to check every file's sha256, and every digest of a batch. None checks the
            files of banks up to 1 GiB, but not of a URL whose bank has digests of its batches;
            sizes, schema, keys and weights are checked always, but the keys of such a bank above
            1 GiB, which its writer checked, are not. ``verify_bank`` checks banks of any size.

    Raises:
        BankError: anything wrong with a file; names the file and the field.
    """
    files = files_at(str(path))
    text = files.read(HEADER_FILE)
    where = files.where(HEADER_FILE)
    model, geometry, scoring = parse_header(text, where)
    _check_sizes(files, model)
    remote = isinstance(files, RemoteFiles)
    small = sum(entry.bytes for entry in model.files.values()) <= VERIFIED_AT_OPEN
    # Each part of such a bank is checked when it is read.
    checked_later = remote and all(entry.batches for entry in model.files.values())
    if verify or (verify is None and small and not checked_later):
        _check_digests(files, model)
    header = Header(
        name=model.name,
        rows=model.rows,
        geometry=geometry,
        scoring=scoring,
        tie_contract=model.tie_contract,
        independence_unit=model.independence_unit,
        stage=model.stage,
        digest=hashlib.sha256(text).hexdigest(),
        ranks=model.ranks,
        recorded_widths={name: entry.width for name, entry in model.recorded.items()},
        provenance=model.provenance.model_dump(exclude_unset=True),
    )
    tables = _open_tables(files, model)
    if verify:
        _check_batches(tables, model)
    if verify or small or not checked_later:
        _check_tables(tables, files, model)
    weights = partial(_read_weights, tables, files, model)
    bank = StoredBank(header, model, tables, weights if remote else weights())
    bank.spec = str(path)
    return bank


def _check_sizes(files: Files, model: BankModel) -> None:
    for name, entry in model.files.items():
        size = files.size(name)
        if size != entry.bytes:
            raise BankError("bytes", size, f"{entry.bytes} as in {HEADER_FILE}", files.where(name))


def _check_digests(files: Files, model: BankModel) -> None:
    for name, entry in model.files.items():
        digest = files.sha256(name)
        if digest != entry.sha256:
            expected = f"{entry.sha256} as in {HEADER_FILE}"
            raise BankError("sha256", digest, expected, files.where(name))


def _check_batches(tables: _Tables, model: BankModel) -> None:
    places = {ROWS_FILE: tables.rows, RANKS_FILE: tables.ranks, WEIGHTS_FILE: tables.weights}
    for name, entry in model.files.items():
        table = places[name]
        if entry.batches is not None and table is not None:
            table.check_digests(entry.batches)


@dataclass(frozen=True, eq=False)
class _Tables:
    rows: Records
    weights: Records | None
    ranks: Records | None


def file_schema(model: BankModel, file: str) -> pa.Schema:
    """Return the Arrow fields that ``bank.json`` says a file has."""
    fields = [key_field(name, dtype) for name, dtype in file_keys(model, file).items()]
    fields += [
        tensor_field(name, tensor.dtype, tensor.shape)
        for name, tensor in model.tensors.items()
        if tensor.file == file
    ]
    return pa.schema(fields)


def _open_tables(files: Files, model: BankModel) -> _Tables:
    def table(name: str) -> Records:
        schema, records = file_schema(model, name), file_records(model, name)
        if isinstance(files, RemoteFiles):
            return RemoteTable(files, name, schema, records, model.files[name].batches)
        return Table(files.open(name), schema, records, files.where(name))

    return _Tables(
        rows=table(ROWS_FILE),
        weights=table(WEIGHTS_FILE) if WEIGHTS_FILE in model.files else None,
        ranks=table(RANKS_FILE) if model.ranks is not None else None,
    )


def _check_tables(tables: _Tables, files: Files, model: BankModel) -> None:
    check_keys(tables.rows, model, files.where(ROWS_FILE))
    if tables.ranks is not None:
        check_rank_keys(tables.rows, tables.ranks, model, files.where(RANKS_FILE))


def _read_weights(tables: _Tables, files: Files, model: BankModel) -> dict[str, Array]:
    """The tensors of weights.arrow by name, those that must be finite checked."""
    if tables.weights is None:
        return {}
    found = {
        name: tables.weights.column(name, 0, 1)[0]
        for name, tensor in model.tensors.items()
        if tensor.file == WEIGHTS_FILE
    }
    for name in FINITE_WEIGHTS:
        if name in found:
            check_finite(found[name], name, files.where(WEIGHTS_FILE))
    return found


def check_finite(weight: Array, name: str, where: str) -> None:
    """Refuse a tensor [row, ...] with a NaN or infinity in it.

    Raises:
        BankError: names the first such row.
    """
    # A row at a time: no FP32 copy of a large weight.
    for index, line in enumerate(weight):
        if not np.isfinite(line.astype(np.float32)).all():
            raise BankError(f"{name}[{index}]", "a NaN or infinity", "finite", where)


class StoredBank(Bank):
    """A bank on disk or in an object store.

    Arrays are read-only views of the mapped files, or of the columns read last, where one batch
    holds them. Weights of a remote bank are read when they are first asked for.
    """

    def __init__(
        self,
        header: Header,
        model: BankModel,
        tables: _Tables,
        weights: Mapping[str, Array] | Callable[[], Mapping[str, Array]],
    ) -> None:
        super().__init__(header, weights)
        self._model = model
        self._tables = tables
        self.batch_digests = all(entry.batches is not None for entry in model.files.values())

    def _read(self, start: int, stop: int) -> RowBlock:
        names = [n for n, tensor in self._model.tensors.items() if tensor.file != WEIGHTS_FILE]
        tensors = {name: self._column(name, start, stop) for name in names}
        keys = {name: self._tables.rows.column(name, start, stop) for name in self._model.keys}
        return self._block(np.arange(start, stop, dtype=np.int64), keys, tensors)

    def read_outputs(self, start: int, stop: int) -> RowBlock:
        """Return keys and recorded outputs of rows start..stop; no other column is touched."""
        if not 0 <= start < stop <= self.rows:
            raise InputError("rows", f"{start}:{stop}", f"a part of 0:{self.rows}", self.name)
        rows = self._tables.rows
        tensors = {name: rows.column(name, start, stop) for name in self._output_names()}
        keys = {name: rows.column(name, start, stop) for name in self._model.keys}
        return self._block(np.arange(start, stop, dtype=np.int64), keys, tensors)

    def _read_rows(self, rows: npt.NDArray[np.int64]) -> RowBlock:
        if self._tables.ranks is not None:
            return super()._read_rows(rows)
        table = self._tables.rows
        names = [n for n, tensor in self._model.tensors.items() if tensor.file == ROWS_FILE]
        tensors = {name: table.take(name, rows) for name in names}
        return self._block(rows, {n: table.take(n, rows) for n in self._model.keys}, tensors)

    def forget(self, start: int, stop: int) -> None:
        """Drop the mapped pages of rows start..stop, of whole record batches."""
        names = [n for n, tensor in self._model.tensors.items() if tensor.file == ROWS_FILE]
        self._tables.rows.forget([*self._model.keys, *names], start, stop)

    def _output_names(self) -> list[str]:
        names = [f"recorded.{n}.{part}" for n in self._model.recorded for part in _OUTPUTS]
        return [name for name in names if name in self._model.tensors]

    def _block(
        self, rows: npt.NDArray[np.int64], keys: dict[str, Array], tensors: dict[str, Array]
    ) -> RowBlock:
        recorded = {
            name: (
                tensors.pop(f"recorded.{name}.ids"),
                tensors.pop(f"recorded.{name}.weights", None),
            )
            for name in self._model.recorded
        }
        unit = self.independence_unit
        keys["unit"] = rows if unit in ("row", NO_UNIT) else keys[unit]
        known: dict[str, Any] = {
            name: tensors.pop(name) for name in BLOCK_TENSORS if name in tensors
        }
        return RowBlock(int(rows[0]), len(rows), keys, recorded=recorded, extra=tensors, **known)

    def _column(self, name: str, start: int, stop: int) -> Array:
        if self._model.tensors[name].file == ROWS_FILE or self._tables.ranks is None:
            return self._tables.rows.column(name, start, stop)
        count = self.ranks or 1
        values = self._tables.ranks.column(name, start * count, stop * count)
        shaped = values.reshape(stop - start, count, *values.shape[1:])
        return np.moveaxis(shaped, 1, 0)

    def numpy(self, name: str) -> Array:
        """Return a tensor of all rows [row, ...] or [rank, row, ...], or a weight.

        Raises:
            BankError: the bank has no such tensor.
        """
        if name not in self._model.tensors:
            known = ", ".join(self._model.tensors)
            raise BankError("tensor", name, f"one of {known}", self.name)
        if self._model.tensors[name].file == WEIGHTS_FILE:
            return self.weights[name]
        return self._column(name, 0, self.rows)

    def tensor(self, name: str) -> torch.Tensor:
        """Return ``numpy(name)`` as a torch tensor of the same memory; do not write to it."""
        return as_torch(self.numpy(name))


def as_torch(array: npt.NDArray[Any]) -> torch.Tensor:
    """Return a torch tensor over the memory of an array of any bank dtype."""
    import warnings

    import torch

    viewed = array
    kind = next(name for name, dtype in DTYPES.items() if dtype == array.dtype)
    if array.dtype.kind not in "iuf":
        viewed = array.view({1: np.uint8, 2: np.int16}[array.dtype.itemsize])
    with warnings.catch_warnings():
        # A mapped file is read-only, which torch cannot express.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writ")
        tensor = torch.from_numpy(viewed)
    dtype: torch.dtype = getattr(torch, kind)
    return tensor.view(dtype)
