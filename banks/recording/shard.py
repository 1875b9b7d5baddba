"""Shards: what one rank recorded, as it was, in a directory that appears when it is complete.

``shard.json`` tells what is there, with the digests of the files, and is written last. By layer,
``layer3.gate.arrow`` has a record per row (keys and the gate's tensors), ``layer3.latent.arrow``
the same of the latent projection's output, where ranks hold pieces of it, and
``layer3.weights.arrow`` one record.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from ..arrow_tables import Table, dtype_name, key_field, tensor_field, to_batch
from ..bank import Array
from ..disk import measured, write_synced, writing
from ..errors import BankError
from ..files import LocalFiles
from ..schema import PathName, ScoringModel

SHARD_FILE: Final = "shard.json"
SHARD_VERSION: Final = 1
LATENT: Final = "latent"
GATE: Final = "gate"

Layout = Literal["replicated", "column", "partial"]
Count = Annotated[int, Field(ge=0)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TensorModel(_Model):
    """dtype (a name of ``schema.DTYPES``) and shape of one record."""

    dtype: Literal[
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
        "float16",
        "float32",
        "float64",
        "int32",
        "int64",
    ]
    shape: tuple[Count, ...]


class StreamModel(_Model):
    """One Arrow file: its rows, integer keys and tensors."""

    rows: Count
    keys: dict[str, Literal["int32", "int64"]]
    tensors: dict[str, TensorModel]


class LayerModel(_Model):
    """What one gate is, and what was recorded of it."""

    module: str
    spec: str
    notes: tuple[str, ...]
    scoring: ScoringModel
    sizes: dict[Literal["top_k", "groups", "top_groups"], int]
    streams: dict[Literal["gate", "latent"], StreamModel]
    weights: dict[str, TensorModel]
    calls: Count
    call_rows: tuple[Count, Count]
    """Fewest and most rows of a call."""


class DigestModel(_Model):
    """Size and digest of a file."""

    bytes: Count
    sha256: str


class ShardModel(_Model):
    """The whole of ``shard.json``."""

    shard_version: Literal[1]
    name: str
    path: PathName
    rank: Count
    ranks: Annotated[int, Field(ge=1)]
    parallel: Literal["tensor", "data"]
    layouts: dict[Literal["logits", "latent"], Layout]
    unit: str
    layers: dict[str, LayerModel]
    provenance: dict[str, JsonValue]
    files: dict[str, DigestModel]


class ShardWriter:
    """A shard being written into a directory that exists and is empty; called by one thread.

    Args:
        directory: hidden, until the shard is complete.
        target: what the user called the place, for messages; None is the directory itself.
    """

    def __init__(self, directory: Path, target: Path | None = None) -> None:
        self._directory = directory
        self._target = target or directory
        self._sinks: dict[str, tuple[pa.ipc.RecordBatchFileWriter, pa.Schema]] = {}
        self._streams: dict[str, dict[str, Any]] = {}
        self._signatures: dict[str, list[Any]] = {}

    def append(self, stream: str, keys: Mapping[str, Array], tensors: Mapping[str, Array]) -> None:
        """Add rows to the file ``stream`` (``layer3.gate``): keys [row], tensors [row, ...].

        Raises:
            BankError: other columns, dtypes or shapes than in the first rows, or a full disk.
        """
        columns = {**keys, **tensors}
        signature = [(name, v.dtype, v.shape[1:]) for name, v in columns.items()]
        with writing(self._target, "recording"):
            if self._signatures.get(stream) != signature:
                self._check(stream, keys, tensors)
                self._signatures[stream] = signature
            sink, schema = self._sinks[stream]
            batch = to_batch(schema, columns)
            sink.write_batch(batch)
        self._streams[stream]["rows"] += batch.num_rows

    def _check(self, stream: str, keys: Mapping[str, Array], tensors: Mapping[str, Array]) -> None:
        """Begin a stream with its first rows, or refuse rows with other columns."""
        keyed = {name: dtype_name(values, name, stream) for name, values in keys.items()}
        shaped = {
            name: {"dtype": dtype_name(values, name, stream), "shape": list(values.shape[1:])}
            for name, values in tensors.items()
        }
        if stream not in self._streams:
            self._begin(stream, keyed, shaped)
        known = self._streams[stream]
        for name, got in {**keyed, **shaped}.items():
            expected = {**known["keys"], **known["tensors"]}.get(name)
            if got != expected:
                raise BankError(f"column {name}", got, expected or "absent", stream)
        if len(keyed) != len(known["keys"]):
            missing = ", ".join(sorted(known["keys"].keys() - keyed.keys()))
            raise BankError("keys", f"no {missing}", "as in the first rows", stream)

    def _begin(self, stream: str, keys: dict[str, str], tensors: dict[str, Any]) -> None:
        fields = [key_field(name, dtype) for name, dtype in keys.items()]
        fields += _fields(tensors)
        schema = pa.schema(fields)
        sink = pa.ipc.new_file(str(self._directory / f"{stream}.arrow"), schema)
        self._sinks[stream] = (sink, schema)
        self._streams[stream] = {"rows": 0, "keys": keys, "tensors": tensors}

    def streams(self, layer: str) -> dict[str, dict[str, Any]]:
        """Return what was written of a layer: ``rows``, ``keys`` and ``tensors`` by stream."""
        prefix = f"{layer}."
        return {
            name.removeprefix(prefix): about
            for name, about in self._streams.items()
            if name.startswith(prefix)
        }

    def write_weights(self, layer: str, weights: Mapping[str, Array]) -> dict[str, Any]:
        """Write the weights of a layer and return dtype and shape by name.

        Raises:
            BankError: a full disk.
        """
        about = {
            name: {"dtype": dtype_name(values, name, layer), "shape": list(values.shape)}
            for name, values in weights.items()
        }
        schema = pa.schema(_fields(about))
        path = str(self._directory / f"{layer}.weights.arrow")
        with writing(self._target, "recording"), pa.ipc.new_file(path, schema) as sink:
            sink.write_batch(to_batch(schema, {n: v[np.newaxis] for n, v in weights.items()}))
        return about

    def finish(self, document: Mapping[str, Any]) -> None:
        """Close the files and write ``shard.json``, with their digests, as the last of them.

        Raises:
            BankError: a full disk.
        """
        with writing(self._target, "recording"):
            for sink, _ in self._sinks.values():
                sink.close()
            self._sinks.clear()
            files = {path.name: measured(path) for path in sorted(self._directory.iterdir())}
            text = json.dumps({**document, "files": files}, indent=1, allow_nan=False) + "\n"
            write_synced(self._directory / SHARD_FILE, text.encode())

    def close(self) -> None:
        """Let go of the files, whatever is in them; without ``shard.json`` they are no shard."""
        for sink, _ in self._sinks.values():
            with contextlib.suppress(OSError):
                sink.close()
        self._sinks.clear()

    @property
    def bytes(self) -> int:
        """Bytes of the files so far."""
        return sum(path.stat().st_size for path in self._directory.iterdir())


def _fields(tensors: Mapping[str, Mapping[str, Any]]) -> list[pa.Field]:
    return [
        tensor_field(name, about["dtype"], tuple(about["shape"])) for name, about in tensors.items()
    ]


class Shard:
    """A complete shard, its rows mapped into memory.

    Raises:
        BankError: no ``shard.json`` (the recording was interrupted), or a damaged file.
    """

    def __init__(self, directory: Path) -> None:
        self.directory: Final = directory
        files = LocalFiles(directory)
        where = files.where(SHARD_FILE)
        try:
            self.about: Final = ShardModel.model_validate_json(files.read(SHARD_FILE))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in first["loc"]) or "document"
            raise BankError(field, str(first["input"])[:60], first["msg"], where) from None
        for name, entry in self.about.files.items():
            if files.sha256(name) != entry.sha256:
                raise BankError("sha256", files.sha256(name), entry.sha256, files.where(name))
        self._files = files

    def layer(self, layer: str) -> LayerModel:
        """Return what is known of a layer."""
        return self.about.layers[layer]

    def table(self, layer: str, stream: Literal["gate", "latent"]) -> Table:
        """Return the rows of a stream."""
        about = self.layer(layer).streams[stream]
        fields = [key_field(name, dtype) for name, dtype in about.keys.items()]
        fields += _fields({name: tensor.model_dump() for name, tensor in about.tensors.items()})
        name = f"{layer}.{stream}.arrow"
        return Table(self._files.open(name), pa.schema(fields), about.rows, self._files.where(name))

    def weights(self, layer: str) -> dict[str, Array]:
        """Return the weights of a layer by name."""
        about = {name: t.model_dump() for name, t in self.layer(layer).weights.items()}
        name = f"{layer}.weights.arrow"
        schema = pa.schema(_fields(about))
        table = Table(self._files.open(name), schema, 1, self._files.where(name))
        return {weight: table.column(weight, 0, 1)[0] for weight in about}


def open_shards(directory: Path) -> list[Shard]:
    """Return the shards of all ranks, ``rank0``, ``rank1``, ..., in order.

    Raises:
        BankError: a rank is missing, or two shards are not of one recording.
    """
    first = Shard(directory / "rank0")
    shards = [first, *(Shard(directory / f"rank{n}") for n in range(1, first.about.ranks))]
    for rank, shard in enumerate(shards):
        where = str(shard.directory / SHARD_FILE)
        if shard.about.rank != rank:
            raise BankError("rank", shard.about.rank, rank, where)
        for field in ("name", "path", "ranks", "parallel", "layouts", "unit"):
            got, expected = getattr(shard.about, field), getattr(first.about, field)
            if got != expected:
                raise BankError(field, got, f"{expected} as on rank 0", where)
        if list(shard.about.layers) != list(first.about.layers):
            got, expected = list(shard.about.layers), list(first.about.layers)
            raise BankError("layers", got, f"{expected} as on rank 0", where)
    return shards


def spans(rows: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of at most ``step`` rows that make up ``rows``."""
    for start in range(0, rows, step):
        yield start, min(start + step, rows)
