"""What ``bank.json`` may hold, and the check that its fields fit together."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Final, Literal, NoReturn

import ml_dtypes
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, JsonValue, ValidationError

from .bank import KEYS, NO_UNIT, Stage
from .errors import BankError, InputError, check_name
from .geometry import Geometry, ScoreFunction, ScoringRule, TieContract

SCHEMA_VERSION: Final = 1
HEADER_FILE: Final = "bank.json"
ROWS_FILE: Final = "rows.arrow"
RANKS_FILE: Final = "ranks.arrow"
WEIGHTS_FILE: Final = "weights.arrow"

DTYPES: Final = {
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "float16": np.dtype(np.float16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
}
WEIGHTS: Final = ("router_weight", "router_weight_master", "correction_bias", "latent_down_weight")
STORED_KEYS: Final = tuple(key for key in KEYS if key != "unit")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

Layout = Literal["replicated", "column", "partial"]
Count = Annotated[int, Field(ge=1)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")]
PathName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$")]


class _Model(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True
    )


class GeometryModel(_Model):
    """Sizes of the front."""

    name: str
    hidden: int
    latent: int
    experts: int
    top_k: int
    groups: int = 1
    top_groups: int = 1


class ScoringModel(_Model):
    """Rule from logits to experts."""

    function: ScoreFunction
    renormalize: bool
    epsilon: FiniteFloat
    scale: FiniteFloat


class TensorModel(_Model):
    """One tensor of the bank."""

    dtype: str
    """One of ``DTYPES``."""
    shape: tuple[Count, ...]
    """Axes of one record, so without row and rank."""
    layout: Layout
    """How the tensor lies over ranks: whole on each, a column shard each, or a partial sum each."""
    file: str
    """rows.arrow, ranks.arrow (per row and rank) or weights.arrow; the column has its name."""


class RecordedModel(_Model):
    """Outputs of a path, which are the tensors ``recorded.NAME.ids`` and ``.weights``."""

    width: Count | None
    """Rows per launch when they were recorded; null where unknown."""


class BatchesModel(_Model):
    """Sizes and digests of a file's record batches."""

    rows: tuple[Count, ...]
    """Records of each batch."""
    sha256: dict[Name, tuple[Digest, ...]]
    """Of each column: a digest of its values for each batch."""


class FileModel(_Model):
    """Size and digest of one file."""

    bytes: Count
    sha256: Digest
    batches: BatchesModel | None = None
    """Absent in older banks: a reader of parts has nothing to hold them against."""


class ProvenanceModel(BaseModel):
    """Where the rows come from: these fields, and any others that JSON can hold."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    __pydantic_extra__: dict[str, JsonValue]  # pyright: ignore[reportIncompatibleVariableOverride]

    model: JsonValue = None
    layer: int | None = None
    source: JsonValue = None
    seeds: JsonValue = None
    device: JsonValue = None
    library_versions: dict[str, str] | None = None
    commit: str | None = None
    date: str | None = None


class BankModel(_Model):
    """The whole of ``bank.json``."""

    schema_version: Literal[1]
    name: str
    rows: Count
    stage: Stage
    ranks: Count | None
    geometry: GeometryModel
    scoring: ScoringModel
    tie_contract: TieContract
    independence_unit: str
    keys: dict[Name, Literal["int32", "int64"]]
    tensors: dict[Name, TensorModel]
    recorded: dict[PathName, RecordedModel]
    provenance: ProvenanceModel
    files: dict[str, FileModel]


def parse_header(text: bytes, where: str) -> tuple[BankModel, Geometry, ScoringRule]:
    """Return the checked header.

    Args:
        text: content of ``bank.json``.
        where: the file's name for messages.

    Raises:
        BankError: not JSON, an unknown version, a wrong or extra field, or fields that contradict
            each other; the message names the field.
    """
    raw = _loaded(text, where)
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if isinstance(raw, dict) and (version != SCHEMA_VERSION or isinstance(version, bool)):
        raise BankError("schema_version", version, SCHEMA_VERSION, where)
    try:
        model = BankModel.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "document"
        got = "nothing" if first["type"] == "missing" else _brief(first["input"])
        raise BankError(field, got, _expected(first["type"], first["msg"]), where) from None
    try:
        check_name("name", model.name, where)
        geometry = Geometry(**model.geometry.model_dump())
        scoring = ScoringRule(**model.scoring.model_dump())
        if model.ranks is not None:
            geometry.check_ranks(model.ranks)
    except InputError as error:
        raise BankError(error.what, error.got, error.expected, where) from None
    _check_files(model, where)
    _check_tensors(model, geometry, where)
    _check_batches(model, where)
    return model, geometry, scoring


def _loaded(text: bytes, where: str) -> object:
    def constant(name: str) -> NoReturn:
        raise BankError("number", name, "finite", where)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise BankError("field", f"{name} twice", "each field once", where)
            found[name] = value
        return found

    try:
        return json.loads(text, parse_constant=constant, object_pairs_hook=unique)
    except BankError:
        raise
    # A number of too many digits is a ValueError, as broken JSON and broken UTF-8 are.
    except (ValueError, RecursionError) as error:
        raise BankError("document", str(error) or "too deep", "JSON", where) from None


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _expected(kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return "absent (unknown field)"
    if kind == "missing":
        return "present"
    return message.removeprefix("Input should be ").removeprefix("a valid ")


def check_file_name(name: str, where: str) -> None:
    """Refuse a file name that is not a plain name inside the bank's directory.

    Raises:
        BankError: separators, "..", an absolute path or other characters.
    """
    if not _PLAIN_NAME.fullmatch(name) or ".." in name or name == HEADER_FILE:
        raise BankError("files", repr(name), "a plain name inside the bank", where)


def _check_files(model: BankModel, where: str) -> None:
    for name in model.files:
        check_file_name(name, where)
        if name not in (ROWS_FILE, RANKS_FILE, WEIGHTS_FILE):
            known = f"{ROWS_FILE}, {RANKS_FILE} or {WEIGHTS_FILE}"
            raise BankError("files", repr(name), known, where)
    needed = (ROWS_FILE,) if model.stage == "outputs" else (ROWS_FILE, WEIGHTS_FILE)
    for name in needed:
        if name not in model.files:
            raise BankError(f"files.{name}", "nothing", "present", where)
    for name, tensor in model.tensors.items():
        ranked = tensor.layout != "replicated"
        known = RANKS_FILE if ranked else f"{ROWS_FILE} or {WEIGHTS_FILE}"
        if tensor.file not in model.files or (tensor.file == RANKS_FILE) != ranked:
            raise BankError(f"tensors.{name}.file", repr(tensor.file), known, where)
        if tensor.dtype not in DTYPES:
            known = ", ".join(DTYPES)
            raise BankError(f"tensors.{name}.dtype", repr(tensor.dtype), f"one of {known}", where)


def _check_batches(model: BankModel, where: str) -> None:
    for file, entry in model.files.items():
        if entry.batches is None:
            continue
        place = f"files.{file}.batches"
        records, lengths = file_records(model, file), entry.batches.rows
        if sum(lengths) != records:
            raise BankError(f"{place}.rows", f"{sum(lengths)} in all", records, where)
        columns = {*file_keys(model, file)}
        columns |= {name for name, tensor in model.tensors.items() if tensor.file == file}
        for name in sorted(columns ^ entry.batches.sha256.keys()):
            found, expected = ("nothing", "present") if name in columns else ("present", "absent")
            raise BankError(f"{place}.sha256.{name}", found, expected, where)
        for name, digests in entry.batches.sha256.items():
            if len(digests) != len(lengths):
                what = f"{place}.sha256.{name}"
                raise BankError(what, f"{len(digests)} digests", len(lengths), where)


def file_keys(model: BankModel, file: str) -> dict[str, str]:
    """Return the dtypes of a file's key columns by name."""
    if file == WEIGHTS_FILE:
        return {}
    if file == RANKS_FILE:
        return {name: dtype for name, dtype in model.keys.items() if name in STORED_KEYS}
    return dict(model.keys)


def file_records(model: BankModel, file: str) -> int:
    """Return the number of records that a file has."""
    return {WEIGHTS_FILE: 1, RANKS_FILE: model.rows * (model.ranks or 1)}.get(file, model.rows)


def _check_tensors(model: BankModel, geometry: Geometry, where: str) -> None:
    for key in STORED_KEYS:
        if key not in model.keys:
            raise BankError("keys", f"{key} missing", "layer, step, row, rank and more", where)
    if "unit" in model.keys:
        raise BankError("keys", "unit", "no column of this name: it is derived", where)
    unit = model.independence_unit
    if unit not in ("row", NO_UNIT) and unit not in model.keys:
        known = f"row, {NO_UNIT} or one of {', '.join(model.keys)}"
        raise BankError("independence_unit", unit, known, where)
    for name, (shape, dtypes, layout) in known_tensors(model, geometry).items():
        tensor = model.tensors.get(name)
        if tensor is None:
            continue
        weight = name in WEIGHTS
        if (tensor.file == WEIGHTS_FILE) != weight:
            expected = WEIGHTS_FILE if weight else f"{ROWS_FILE} or {RANKS_FILE}"
            raise BankError(f"tensors.{name}.file", repr(tensor.file), expected, where)
        if list(tensor.shape) != shape:
            raise BankError(f"tensors.{name}.shape", list(tensor.shape), shape, where)
        if tensor.dtype not in dtypes:
            raise BankError(f"tensors.{name}.dtype", tensor.dtype, " or ".join(dtypes), where)
        if tensor.layout != layout:
            raise BankError(f"tensors.{name}.layout", tensor.layout, layout, where)
    for name in model.tensors:
        if name in model.keys:
            raise BankError(f"tensors.{name}", "also a key", "one column a name", where)
        if name.startswith("recorded.") and name.split(".")[1] not in model.recorded:
            raise BankError(f"recorded.{name.split('.')[1]}", "nothing", "present", where)
    needed = _stage_tensors(model.stage)
    needed += [f"recorded.{name}.ids" for name in model.recorded]
    for name in needed:
        if name not in model.tensors:
            raise BankError(f"tensors.{name}", "nothing", f"present at stage {model.stage}", where)
    if model.stage == "outputs" and not model.recorded:
        raise BankError("recorded", "nothing", "present at stage outputs", where)
    ranked = any(tensor.layout != "replicated" for tensor in model.tensors.values())
    if ranked != (model.ranks is not None):
        expected = "a number where tensors vary per rank" if ranked else "null: nothing varies"
        raise BankError("ranks", model.ranks, expected, where)


def _stage_tensors(stage: Stage) -> list[str]:
    inputs = {
        "hidden": ["hidden", "router_weight"],
        "partials": ["logits_shards"],
        "shards": ["logits_shards"],
        "logits": ["logits"],
        "outputs": [],
    }
    return inputs[stage] if stage == "outputs" else ["correction_bias", *inputs[stage]]


def known_tensors(
    model: BankModel, geometry: Geometry
) -> dict[str, tuple[list[int], tuple[str, ...], Layout]]:
    """Return shape, dtypes and rank layout of the tensors whose names have a fixed meaning."""
    ranks = model.ranks or 1
    weight = ("bfloat16", "float16", "float32")
    known: dict[str, tuple[list[int], tuple[str, ...], Layout]] = {
        "router_weight": ([geometry.experts, geometry.hidden], weight, "replicated"),
        "router_weight_master": ([geometry.experts, geometry.hidden], ("float32",), "replicated"),
        "correction_bias": ([geometry.experts], ("float32",), "replicated"),
        "latent_down_weight": ([geometry.latent, geometry.hidden], ("bfloat16",), "replicated"),
        "hidden": ([geometry.hidden], ("bfloat16",), "replicated"),
        "logits": ([geometry.experts], ("float32",), "replicated"),
        "latent_partials": ([geometry.latent], ("bfloat16",), "partial"),
        "latent_shards": ([geometry.latent // ranks], ("bfloat16",), "column"),
        "logits_shards": ([geometry.experts // ranks], ("float32",), "column"),
    }
    for name in model.recorded:
        known[f"recorded.{name}.ids"] = ([geometry.top_k], ("int32",), "replicated")
        known[f"recorded.{name}.weights"] = ([geometry.top_k], ("float32",), "replicated")
    return known
