"""A bank made from named arrays: which column is what, and every check of their values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import ml_dtypes
import numpy as np

from ..bank import NO_UNIT, STAGES, Array, Header, RowBlock, Stage
from ..errors import BankError, InputError
from ..geometry import Geometry
from ..interchange import (
    Column,
    Content,
    as_dtype,
    restore_bank,
    row_block,
    steps,
    together,
    without,
)
from ..schema import DTYPES, WEIGHTS
from ..store import FINITE_WEIGHTS
from ..write import write_bank
from .naming import check_names
from .reading import KEY_NAMES, Reading, Recording

_BF16: Final = np.dtype(ml_dtypes.bfloat16)
_F32: Final = np.dtype(np.float32)
_INPUTS: Final[dict[str, tuple[str, ...]]] = {
    "hidden": ("hidden",),
    "partials": ("latent_partials", "logits_shards"),
    "shards": ("latent_shards", "logits_shards"),
    "logits": ("logits",),
    "outputs": (),
}
"""Row tensors of a stage; the latent ones may be missing."""
_AXES: Final = {"latent_partials": 3, "latent_shards": 3, "logits_shards": 3, "correction_bias": 1}
_F16: Final = np.dtype(np.float16)
_FLOAT32: Final = (_F32, _BF16, _F16)
"""A bank keeps these in float32; BF16 and FP16 values are widened, which is exact."""
_DTYPES: Final[dict[str, tuple[np.dtype[Any], ...]]] = {
    "logits": _FLOAT32,
    "logits_shards": _FLOAT32,
    "correction_bias": _FLOAT32,
    "router_weight": (_BF16, _F16, _F32),
    "router_weight_master": (_F32,),
}
"""What a tensor may be in the file; the others are BF16."""
_INTEGERS: Final = tuple(np.dtype(k) for k in ("i4", "i8", "i2", "i1", "u1", "u2", "u4", "u8"))


def import_content(
    contents: list[Content],
    directory: str | Path,
    *,
    reading: Reading | None = None,
    recording: Recording | None = None,
    stage: str | None = None,
    drop: Collection[str] = (),
) -> str:
    """Write the bank that files hold and return its digest.

    A file that was exported from a bank becomes that bank again, with its digest where its name is
    kept; of any other file the tensors are found by their names.

    Args:
        contents: the files, their tensors under their bank's names.
        directory: a new or empty directory for the bank.
        reading: names and geometry.
        recording: what no file says.
        stage: one of ``STAGES``, to start there; None takes the first that the tensors allow.
        drop: tensors of the files to leave out.

    Raises:
        BankError: a missing tensor, a wrong dtype or shape, a weight or hidden value that is not
            finite, a recorded id that is no expert. Nothing is left behind.
        InputError: another stage, or an option that a file with a header has no use for.
    """
    reading, recording = reading or Reading(), recording or Recording()
    if stage is not None and stage not in STAGES:
        raise InputError("stage", stage, f"one of {', '.join(STAGES)}", contents[0].where)
    content = together(contents)
    check_names(content, reading)
    content = without(content, drop)
    if content.header is not None:
        given = {"stage": stage, "drop": drop or None, "geometry": reading.geometry}
        for option, value in given.items():
            if value is not None:
                expected = "absent: the file says what its bank is (change it with bank select)"
                raise InputError(option, "given", expected, content.where)
        return restore_bank(content, directory, recording.name)
    return _Assembly(content, reading, recording, stage).write(directory)


@dataclass(frozen=True)
class _Found:
    """One column of the file, as the bank will have it."""

    name: str
    column: Column
    dtype: np.dtype[Any]


class _Assembly:
    def __init__(
        self, content: Content, reading: Reading, recording: Recording, stage: str | None
    ) -> None:
        self.content = content
        self.reading = reading
        self.recording = recording
        self.stage: Stage = self._stage(stage)
        self.paths = self._paths()
        self.keys = self._find_keys()
        self.tensors = self._find_rows()
        self.rows = self._count()
        self.found_weights: dict[str, _Found] = {}
        self.weights = self._read_weights()
        self.geometry = self._geometry()
        self.unit = self._unit()
        self.only_layer: int | None = None

    def write(self, directory: str | Path) -> str:
        widths = self.recording.widths
        provenance = {**self.content.facts, **self._widened(), **self.recording.provenance}
        pieces = [f for name, f in self.tensors.items() if name in _AXES]
        header = Header(
            name=self._name(),
            rows=self.rows,
            geometry=self.geometry,
            scoring=self.recording.scoring,
            tie_contract=self.recording.tie_contract,
            independence_unit=self.unit,
            stage=self.stage,
            digest="",
            ranks=pieces[0].column.shape[1] if pieces else None,
            recorded_widths={path: widths.get(path) for path in self.paths},
            provenance=provenance,
        )
        return write_bank(directory, header, self.weights, self._blocks())

    def _widened(self) -> dict[str, Any]:
        """What the provenance says of tensors that the file has in a narrower dtype."""
        narrow = {
            name: _dtype_name(found.column.dtype)
            for name, found in {**self.tensors, **self.found_weights}.items()
            if found.dtype == _F32 and found.column.dtype in (_BF16, _F16)
        }
        return {"widened": narrow} if narrow else {}

    def _name(self) -> str:
        return self.recording.name or Path(self.content.where).stem

    def _label(self, found: _Found) -> str:
        return self.content.label(found.name)

    def _has(self, name: str) -> bool:
        return name in self.content.columns

    def _stage(self, stage: str | None) -> Stage:
        if stage is None:
            have = [n for n, inputs in _INPUTS.items() if inputs and self._has(inputs[-1])]
            # Both kinds of pieces have shards of the logits.
            if "partials" in have and not self._has("latent_partials"):
                have.remove("partials")
            stage = have[0] if have else "outputs"
        return cast("Stage", stage)

    def _paths(self) -> list[str]:
        """Names of the paths whose outputs the file has; a bank has gpu and forward first."""
        matches = [re.fullmatch(r"recorded\.(.+)\.ids", name) for name in self.content.columns]
        order = {"gpu": 0, "forward": 1}
        return sorted((m[1] for m in matches if m), key=lambda path: order.get(path, 2))

    def _find(
        self, name: str, axes: int, dtypes: tuple[np.dtype[Any], ...], rows: int | None = None
    ) -> _Found:
        if not self._has(name):
            raise BankError(f"tensor {name}", "nothing", "present", self.content.where)
        theirs, where = self.content.label(name), self.content.source(name)
        column = self.content.columns[name]
        if column.dtype not in dtypes and not self._decimal(column, dtypes[0]):
            known = " or ".join(_dtype_name(dtype) for dtype in dtypes)
            raise BankError(f"tensor {theirs} dtype", _dtype_name(column.dtype), known, where)
        shape = column.shape
        if len(shape) != axes or 0 in shape:
            expected = f"{axes} axes, not empty"
            raise BankError(f"tensor {theirs} shape", list(shape), expected, where)
        if rows is not None and shape[0] != rows:
            raise BankError(f"tensor {theirs} rows", shape[0], rows, where)
        widened = dtypes == _FLOAT32 or column.dtype not in dtypes
        return _Found(name, column, dtypes[0] if widened else column.dtype)

    def _decimal(self, column: Column, dtype: np.dtype[Any]) -> bool:
        kinds = "iu" if dtype.kind in "iu" else "iuf"
        return self.content.decimal and column.dtype.kind in kinds

    def _find_keys(self) -> dict[str, _Found]:
        found = {}
        for name in (*KEY_NAMES, *self.reading.keys):
            if self._has(name) or name in self.reading.keys:
                # A key above the largest int64 is no number that anybody gave.
                given = self._find(name, 1, _INTEGERS[:-1])
                wide = given.dtype in (np.dtype("i8"), np.dtype("u4"))
                dtype = np.dtype(np.int64 if wide else np.int32)
                found[name] = _Found(name, given.column, dtype)
        return found

    def _find_rows(self) -> dict[str, _Found]:
        found = {}
        for name in _INPUTS[self.stage]:
            if not name.startswith("latent_") or self._has(name):
                found[name] = self._find(name, _AXES.get(name, 2), _DTYPES.get(name, (_BF16,)))
        if self.stage == "hidden" and self._has("logits"):
            found["logits_recorded"] = self._find("logits", 2, _FLOAT32)
        for path in self.paths:
            ids = self._find(f"recorded.{path}.ids", 2, _INTEGERS)
            found[f"recorded.{path}.ids"] = _Found(ids.name, ids.column, np.dtype(np.int32))
            weights = f"recorded.{path}.weights"
            if self._has(weights):
                found[weights] = self._find(weights, 2, _FLOAT32)
        if not found:
            raise BankError("tensors", "none known", "inputs or outputs of a router",
                            self.content.where)  # fmt: skip
        return found

    def _count(self) -> int:
        # The first is the stage's own input, or the first path's ids.
        rows = next(iter(self.tensors.values())).column.shape[0]
        for found in [*self.tensors.values(), *self.keys.values()]:
            if found.column.shape[0] != rows:
                where = self.content.source(found.name)
                got = found.column.shape[0]
                raise BankError(f"tensor {self._label(found)} rows", got, rows, where)
        return rows

    def _read_weights(self) -> dict[str, Array]:
        weights = {}
        for name in WEIGHTS:
            needed = self.stage == "hidden" and name == "router_weight"
            needed |= self.stage != "outputs" and name == "correction_bias"
            needed &= not (name == "correction_bias" and self.recording.zero_bias)
            if not needed and not self._has(name):
                continue
            found = self._find(name, _AXES.get(name, 2), _DTYPES.get(name, (_BF16,)))
            self.found_weights[name] = found
            weights[name] = self._values(found, found.column.whole(), 0)
            if name in FINITE_WEIGHTS:
                self._check_finite(found, weights[name], 0)
        return weights

    def _geometry(self) -> Geometry:
        sizes = self._sizes()
        given = self.reading.geometry
        if given is not None:
            for size, (value, source) in sizes.items():
                expected: int = getattr(given, size)
                # A preset may tell sizes that the file does not have.
                if value != expected:
                    raise BankError(f"{size} of {source}", value, f"{expected}, as in the geometry",
                                    self.content.where)  # fmt: skip
            geometry = given
        else:
            for size in ("experts", "top_k"):
                if size not in sizes:
                    why = "given where no ids are recorded" if size == "top_k" else "given"
                    raise BankError(size, "nothing", why, self.content.where)
            known = {size: value for size, (value, _) in sizes.items()}
            name = self._name().partition("/")[0]
            geometry = Geometry(name, **{"hidden": 0, "latent": 0, **known})
        if self.recording.zero_bias and "correction_bias" not in self.weights:
            self.weights["correction_bias"] = np.zeros(geometry.experts, np.float32)
        return geometry

    def _sizes(self) -> dict[str, tuple[int, str]]:
        """Sizes that the tensors have, with the tensor that tells each."""
        sizes: dict[str, tuple[int, str]] = {}

        def tell(size: str, value: int, source: str) -> None:
            sizes.setdefault(size, (value, f"tensor {source}"))

        for name, weight in self.weights.items():
            if name == "latent_down_weight":
                tell("latent", weight.shape[0], name)
            elif name != "router_weight_master":
                tell("experts", weight.shape[0], name)
            if name == "router_weight":
                tell("hidden", weight.shape[1], name)
        for name, found in self.tensors.items():
            shape = found.column.shape
            if name in ("logits", "logits_recorded"):
                tell("experts", shape[1], self._label(found))
            elif name == "logits_shards":
                tell("experts", shape[1] * shape[2], self._label(found))
            elif name in ("latent_shards", "latent_partials"):
                tell("latent", shape[2] * (shape[1] if name == "latent_shards" else 1),
                     self._label(found))  # fmt: skip
            elif name.endswith(".ids"):
                tell("top_k", shape[1], self._label(found))
        return sizes

    def _unit(self) -> str:
        if self.recording.independence_unit is not None:
            return self.recording.independence_unit
        return next((key for key in ("doc", "request") if key in self.keys), NO_UNIT)

    def _blocks(self) -> Iterator[RowBlock]:
        for start, stop in steps(self.rows):
            columns = self._key_columns(start, stop)
            keys = tuple(columns)
            for name, found in self.tensors.items():
                values = self._values(found, found.column.read(start, stop), start)
                if name == "hidden":
                    self._check_finite(found, values, start)
                if name.endswith(".ids"):
                    values = self._checked_ids(found, values, start)
                columns[name] = values
            yield row_block(start, columns, keys, self.paths)

    def _values(self, found: _Found, values: Array, start: int) -> Array:
        if found.dtype.kind in "iu":
            return values
        if values.dtype in (_BF16, _F16) and found.dtype == _F32:
            return values.astype(np.float32)
        return as_dtype(self.content, found.name, values, found.dtype, start)

    def _check_finite(self, found: _Found, values: Array, start: int) -> None:
        for index, line in enumerate(values):
            if not np.isfinite(line.astype(np.float32)).all():
                what = f"tensor {self._label(found)}[{start + index}]"
                raise BankError(
                    what, "a NaN or infinity", "finite", self.content.source(found.name)
                )

    def _checked_ids(self, found: _Found, ids: Array, start: int) -> Array:
        experts = self.geometry.experts
        # Without inputs, a slot of -1 is one that its producer filled: it holds no expert.
        least = -1 if self.stage == "outputs" else 0
        wrong = np.argwhere((ids < least) | (ids >= experts))
        if len(wrong):
            row, slot = wrong[0].tolist()
            what = f"tensor {self._label(found)}[{start + row}, {slot}]"
            expected = f"{least}..{experts - 1}"
            raise BankError(what, ids[row, slot], expected, self.content.source(found.name))
        return ids.astype(np.int32, copy=False)

    def _key_columns(self, start: int, stop: int) -> dict[str, Array]:
        row = np.arange(start, stop, dtype=np.int32)
        width = self.recording.step_width
        made: Mapping[str, Array] = {
            "layer": np.full_like(row, self._layer()),
            "step": row // width if width else np.zeros_like(row),
            "row": row,
            "rank": np.full_like(row, -1),
        }
        columns = dict(made)
        for name, found in self.keys.items():
            columns[name] = found.column.read(start, stop).astype(found.dtype, copy=False)
        if self.weights:
            self._check_layer(columns["layer"], start)
        return columns

    def _check_layer(self, layers: Array, start: int) -> None:
        if self.only_layer is None:
            self.only_layer = int(layers[0])
        other = np.flatnonzero(layers != self.only_layer)
        if len(other):
            got = int(layers[other[0]])
            expected = f"{self.only_layer} in every row: a bank has the weights of one layer"
            raise BankError(f"layer[{start + other[0]}]", got, expected, self.content.where)

    def _layer(self) -> int:
        if self.recording.layer is not None:
            return self.recording.layer
        found = re.search(r"layer(\d{1,6})", Path(self.content.where).stem)
        return int(found[1]) if found else 0


def _dtype_name(dtype: np.dtype[Any]) -> str:
    return next((name for name, known in DTYPES.items() if known == dtype), str(dtype))
