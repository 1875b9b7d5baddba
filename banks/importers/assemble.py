"""A bank made from named arrays: which stage, paths and keys they have, and its rows in blocks."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, cast

import numpy as np

from ..bank import NO_UNIT, STAGES, Array, Header, RowBlock, Stage
from ..errors import BankError, InputError
from ..interchange import Content, steps, together, without
from ..restore import restore_bank, row_block
from ..schema import WEIGHTS
from ..store import FINITE_WEIGHTS
from ..write import RANKED, write_bank
from .distinct import DistinctRows
from .naming import check_names
from .reading import KEY_NAMES, Reading, Recording, changed, check_recording
from .sizes import geometry_of
from .tensors import FLOAT32, INTEGERS, Found, Tensors

_INPUTS: Final[dict[str, tuple[str, ...]]] = {
    "hidden": ("hidden",),
    "partials": ("latent_partials", "logits_shards"),
    "shards": ("latent_shards", "logits_shards"),
    "logits": ("logits",),
    "outputs": (),
}
"""Row tensors of a stage; the latent ones may be missing."""

LeftOut = Callable[[Sequence[str]], None]

_TOLD: Final = ("layer", "widths", "step_width", "independence_unit", "zero_bias", "scoring",
                "tie_contract")  # fmt: skip
"""What a file with a header says itself of its rows."""


def import_content(
    contents: list[Content],
    directory: str | Path,
    *,
    reading: Reading | None = None,
    recording: Recording | None = None,
    stage: str | None = None,
    drop: Collection[str] = (),
    left_out: LeftOut | None = None,
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
        left_out: called with the files' names of further tensors that the bank has no place for,
            once it is written, where there are any.

    Raises:
        BankError: a missing tensor, a wrong dtype or shape, a weight or hidden value that is not
            finite, a recorded id that is no expert. Nothing is left behind.
        InputError: another stage, or an option that a file with a header has no use for.
    """
    reading, recording = reading or Reading(), recording or Recording()
    if stage is not None and stage not in STAGES:
        raise InputError("stage", stage, f"one of {', '.join(STAGES)}", contents[0].where)
    check_recording(recording)
    content = together(contents)
    check_names(content, reading)
    content = without(content, drop)
    if content.header is not None:
        given = {"stage": stage, "drop": drop or None, "geometry": reading.geometry}
        given |= {spelled: "given" for spelled in changed(recording, _TOLD).values()}
        given |= {spelled: "given" for spelled in changed(reading, ("keys",)).values()}
        for option, value in given.items():
            if value is not None:
                expected = "absent: the file says what its bank is (change it with bank select)"
                raise InputError(option, "given", expected, content.where)
        digest = restore_bank(content, directory, recording.name)
        held = {*content.header["keys"], *content.header["tensors"]}
    else:
        assembly = _Assembly(content, reading, recording, stage)
        digest, held = assembly.write(directory), assembly.held
    unused = [content.label(name) for name in content.columns if name not in held]
    if unused and left_out is not None:
        left_out(unused)
    return digest


class _Assembly:
    """One import: what the files hold is found first, then written in blocks."""

    def __init__(
        self, content: Content, reading: Reading, recording: Recording, stage: str | None
    ) -> None:
        self.file = Tensors(content)
        self.content = content
        self.reading = reading
        self.recording = recording
        self.stage: Stage = self._stage(stage)
        self.paths = self._paths()
        self._check_widths()
        self.keys = self._find_keys()
        self.rows = self._find_rows()
        self.count = self._count()
        self.narrow: dict[str, str] = {}
        self.weights = self._read_weights()
        self.name = name = Path(content.where).stem if recording.name is None else recording.name
        self.geometry = geometry_of(
            self.file, self.rows, self.weights, reading.geometry, name.partition("/")[0]
        )
        if recording.zero_bias and "correction_bias" not in self.weights:
            self.weights["correction_bias"] = np.zeros(self.geometry.experts, np.float32)
        self.only_layer: int | None = None

    @property
    def held(self) -> set[str]:
        """Names of the columns that the bank has."""
        return {*self.rows, *self.weights, *self.keys} | (
            {"logits"} if "logits_recorded" in self.rows else set()
        )

    def write(self, directory: str | Path) -> str:
        """Write the bank and return its digest."""
        widths = self.recording.widths
        narrow = self.narrow | {n: f.widened for n, f in self.rows.items() if f.widened}
        facts = {**self.content.facts, **({"widened": narrow} if narrow else {})}
        pieces = [found for name, found in self.rows.items() if name in RANKED]
        header = Header(
            name=self.name,
            rows=self.count,
            geometry=self.geometry,
            scoring=self.recording.scoring,
            tie_contract=self.recording.tie_contract,
            independence_unit=self._unit(),
            stage=self.stage,
            digest="",
            ranks=pieces[0].column.shape[1] if pieces else None,
            recorded_widths={path: widths.get(path) for path in self.paths},
            provenance={**facts, **self.recording.provenance},
        )
        digested = self.recording.batch_digests
        return write_bank(directory, header, self.weights, self._blocks(), batch_digests=digested)

    def _stage(self, stage: str | None) -> Stage:
        if stage is None:
            have = [n for n, inputs in _INPUTS.items() if inputs and self.file.has(inputs[-1])]
            # Both kinds of pieces have shards of the logits.
            if "partials" in have and not self.file.has("latent_partials"):
                have.remove("partials")
            stage = have[0] if have else "outputs"
        return cast("Stage", stage)

    def _paths(self) -> list[str]:
        """Names of the paths whose outputs the file has; a bank has gpu and forward first."""
        matches = [re.fullmatch(r"recorded\.(.+)\.ids", name) for name in self.content.columns]
        order = {"gpu": 0, "forward": 1}
        return sorted((m[1] for m in matches if m), key=lambda path: order.get(path, 2))

    def _check_widths(self) -> None:
        for path in self.recording.widths:
            if path not in self.paths:
                expected = f"a path whose outputs are recorded: {', '.join(self.paths) or 'none'}"
                raise InputError("width", path, expected, self.content.where)

    def _find_keys(self) -> dict[str, Found]:
        found = {}
        for name in (*KEY_NAMES, *self.reading.keys):
            if self.file.has(name) or name in self.reading.keys:
                # A key above the largest int64 is no number that anybody gave.
                given = self.file.find_as(name, 1, INTEGERS[:-1])
                wide = given.dtype in (np.dtype("i8"), np.dtype("u4"))
                found[name] = Found(name, given.column, np.dtype(np.int64 if wide else np.int32))
        return found

    def _find_rows(self) -> dict[str, Found]:
        found = {}
        for name in _INPUTS[self.stage]:
            if not name.startswith("latent_") or self.file.has(name):
                found[name] = self.file.find(name)
        if self.stage == "hidden" and self.file.has("logits"):
            found["logits_recorded"] = self.file.find("logits")
        for path in self.paths:
            ids, weights = f"recorded.{path}.ids", f"recorded.{path}.weights"
            found[ids] = Found(ids, self.file.find_as(ids, 2, INTEGERS).column, np.dtype(np.int32))
            if self.file.has(weights):
                found[weights] = self.file.find_as(weights, 2, FLOAT32)
        if not found:
            expected = "inputs or outputs of a router"
            raise BankError("tensors", "none known", expected, self.content.where)
        return found

    def _count(self) -> int:
        # The first is the stage's own input, or the first path's ids.
        count = next(iter(self.rows.values())).column.shape[0]
        for found in [*self.rows.values(), *self.keys.values()]:
            if found.column.shape[0] != count:
                what = f"tensor {self.file.label(found)} rows"
                raise BankError(what, found.column.shape[0], count, self.file.source(found))
        return count

    def _read_weights(self) -> dict[str, Array]:
        weights = {}
        for name in WEIGHTS:
            needed = self.stage == "hidden" and name == "router_weight"
            needed |= self.stage != "outputs" and name == "correction_bias"
            needed &= not (name == "correction_bias" and self.recording.zero_bias)
            if not needed and not self.file.has(name):
                continue
            if name == "correction_bias" and not self.file.has(name):
                expected = "present, or said to be none (--no-bias, zero_bias=True)"
                raise BankError(f"tensor {name}", "nothing", expected, self.content.where)
            found = self.file.find(name)
            if found.widened is not None:
                self.narrow[name] = found.widened
            weights[name] = self.file.values(found, 0, found.column.shape[0])
            if name in FINITE_WEIGHTS:
                self.file.check_finite(found, weights[name], 0)
        return weights

    def _unit(self) -> str:
        if self.recording.independence_unit is not None:
            return self.recording.independence_unit
        return next((key for key in ("doc", "request") if key in self.keys), NO_UNIT)

    def _blocks(self) -> Iterator[RowBlock]:
        # Without inputs, a slot of -1 is one that its producer filled: it holds no expert.
        least = -1 if self.stage == "outputs" else 0
        distinct = DistinctRows(self.content.where) if self._unit() == "row" else None
        inputs = [name for name in _INPUTS[self.stage] if name in self.rows]
        for start, stop in steps(self.count):
            columns = self._key_columns(start, stop)
            keys = tuple(columns)
            for name, found in self.rows.items():
                values = self.file.values(found, start, stop)
                if name == "hidden":
                    self.file.check_finite(found, values, start)
                if name.endswith(".ids"):
                    experts = self.geometry.experts
                    values = self.file.expert_ids(found, values, start, least, experts)
                columns[name] = values
            if distinct is not None and inputs:
                distinct.add([columns[name] for name in inputs])
            yield row_block(start, columns, keys, self.paths)
        if distinct is not None and inputs:
            distinct.check()

    def _key_columns(self, start: int, stop: int) -> dict[str, Array]:
        row = np.arange(start, stop, dtype=np.int32)
        width = self.recording.step_width
        columns: dict[str, Array] = {
            "layer": np.full_like(row, self._layer()),
            "step": row // width if width else np.zeros_like(row),
            "row": row,
            "rank": np.full_like(row, -1),
        }
        for name, found in self.keys.items():
            columns[name] = found.column.read(start, stop).astype(found.dtype, copy=False)
        if self.weights:
            self._check_layer(columns["layer"], start)
        return columns

    def _check_layer(self, layers: Array, start: int) -> None:
        if self.only_layer is None:
            self.only_layer = int(layers[0])
        for row in np.flatnonzero(layers != self.only_layer)[:1].tolist():
            expected = f"{self.only_layer} in every row: a bank has the weights of one layer"
            raise BankError(f"layer[{start + row}]", layers[row], expected, self.content.where)

    def _layer(self) -> int:
        if self.recording.layer is not None:
            return self.recording.layer
        found = re.search(r"layer(\d{1,6})", Path(self.content.where).stem)
        return int(found[1]) if found else 0
