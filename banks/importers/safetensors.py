"""Import of a safetensors file that holds one layer's router inputs and recorded outputs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

# Registers bfloat16 and the 8-bit floats with numpy, which safetensors needs for them.
import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from ..bank import Array, Header, RowBlock
from ..errors import BankError, InputError
from ..geometry import Geometry, ScoringRule, TieContract
from ..schema import DTYPES
from ..store import FINITE_WEIGHTS, check_finite
from ..write import write_bank

_BF16: Final = np.dtype(ml_dtypes.bfloat16)
_F32: Final = np.dtype(np.float32)
_I32: Final = np.dtype(np.int32)


@dataclass(frozen=True)
class Names:
    """What the tensors of a file are called; a name of None is not looked for.

    Attributes:
        hidden: [row, hidden] BF16.
        router_weight: [expert, hidden] BF16.
        correction_bias: [expert] float32.
        latent: [latent, hidden] BF16, optional in the file.
        master: [expert, hidden] float32, optional in the file.
        logits: [row, expert] float32, optional in the file; at stage hidden it becomes the tensor
            ``logits_recorded``, beside the inputs.
        keys: integer columns [row], optional in the file.
        recorded: by path name, the tensors of ids and weights, optional in the file.
    """

    hidden: str = "hidden"
    router_weight: str = "router_weight"
    correction_bias: str = "correction_bias"
    latent: str | None = "latent_down_weight"
    master: str | None = "router_weight_master"
    logits: str | None = "logits"
    keys: tuple[str, ...] = ("token_ids", "doc", "position", "window_start", "source")
    recorded: Mapping[str, tuple[str, str]] = field(
        default_factory=lambda: {
            "gpu": ("topk_ids", "topk_weights"),
            "forward": ("forward_topk_ids", "forward_topk_weights"),
        }
    )


@dataclass(frozen=True)
class Recording:
    """What the file itself does not say.

    Attributes:
        name: the bank's name; None takes the file's.
        layer: layer number; None takes the digits after "layer" in the file's name, else 0.
        widths: rows per launch by recorded path; None or absent where unknown.
        step_width: rows per launch of the inputs: row r belongs to step r // step_width; None
            puts every row in step 0.
        independence_unit: ``row``, a key column, or ``none`` for rows that were chosen.
    """

    name: str | None = None
    layer: int | None = None
    widths: Mapping[str, int | None] = field(default_factory=lambda: {"gpu": 20})
    step_width: int | None = 20
    independence_unit: str = "doc"
    scoring: ScoringRule = field(default_factory=ScoringRule)
    tie_contract: TieContract = "unspecified"
    provenance: Mapping[str, Any] = field(default_factory=dict)


def import_safetensors(
    path: str | Path,
    directory: str | Path,
    *,
    drop: Collection[str] = (),
    stage: str = "hidden",
    names: Names | None = None,
    recording: Recording | None = None,
    top_k: int | None = None,
) -> str:
    """Write the bank of a safetensors file and return its digest.

    The defaults are the layout of the k3-mini recordings.

    Args:
        path: the file.
        directory: a new or empty directory for the bank.
        drop: tensors of the file to leave out.
        stage: ``hidden``, or ``logits`` to start from the recorded logits; hidden is left out then.
        names: what the tensors are called.
        recording: what the file does not say.
        top_k: experts per row; None takes it from the recorded ids.

    Raises:
        BankError: a missing tensor, a wrong dtype or shape, a weight or hidden value that is not
            finite, or a recorded id that is no expert. Nothing is left behind.
        InputError: another stage.
    """
    if stage not in ("hidden", "logits"):
        raise InputError("stage", stage, "hidden or logits", str(path))
    names = names or Names()
    recording = recording or Recording()
    file = _File(Path(path), drop)
    weights = _weights(file, names)
    block = _rows(file, names, recording, stage)
    slots = [ids.shape[1] for ids, _ in block.recorded.values()]
    if top_k is None and not slots:
        raise BankError("top_k", "nothing", "given where no ids are recorded", str(path))
    name = recording.name or file.path.stem
    experts, hidden = weights["router_weight"].shape
    _check_ids(file, names, block, experts)
    header = Header(
        name=name,
        rows=block.rows,
        geometry=Geometry(
            name.partition("/")[0],
            hidden,
            len(weights.get("latent_down_weight", ())),
            experts,
            slots[0] if top_k is None else top_k,
        ),
        scoring=recording.scoring,
        tie_contract=recording.tie_contract,
        independence_unit=recording.independence_unit,
        stage="hidden" if stage == "hidden" else "logits",
        digest="",
        recorded_widths={path: recording.widths.get(path) for path in block.recorded},
        provenance=recording.provenance,
    )
    return write_bank(directory, header, weights, [block])


def _check_ids(file: _File, names: Names, block: RowBlock, experts: int) -> None:
    for name, (ids, _) in block.recorded.items():
        wrong = np.argwhere((ids < 0) | (ids >= experts))
        if len(wrong):
            row, slot = wrong[0].tolist()
            what = f"tensor {names.recorded[name][0]}[{row}, {slot}]"
            raise BankError(what, ids[row, slot], f"0..{experts - 1}", str(file.path))


def _weights(file: _File, names: Names) -> dict[str, Array]:
    weights = {
        "router_weight": file.take(names.router_weight, 2, _BF16),
        "correction_bias": file.take(names.correction_bias, 1, _F32),
    }
    for name, source, dtype in (
        ("latent_down_weight", names.latent, _BF16),
        ("router_weight_master", names.master, _F32),
    ):
        if source is not None and file.has(source):
            weights[name] = file.take(source, 2, dtype)
    sources = {"router_weight": names.router_weight, "latent_down_weight": names.latent}
    sources["router_weight_master"] = names.master
    for name in FINITE_WEIGHTS:
        if name in weights:
            check_finite(weights[name], f"tensor {sources[name]}", str(file.path))
    return weights


def _rows(file: _File, names: Names, recording: Recording, stage: str) -> RowBlock:
    hidden = logits = None
    extra = {}
    if stage == "hidden":
        hidden = file.take(names.hidden, 2, _BF16)
        check_finite(hidden, f"tensor {names.hidden}", str(file.path))
        rows = len(hidden)
        if names.logits is not None and file.has(names.logits):
            extra["logits_recorded"] = file.take(names.logits, 2, _F32, rows)
    else:
        logits = file.take(names.logits or "logits", 2, _F32)
        rows = len(logits)
    recorded: dict[str, tuple[Array, Array | None]] = {
        name: (file.take(ids, 2, _I32, rows), file.take(values, 2, _F32, rows))
        for name, (ids, values) in names.recorded.items()
        if file.has(ids)
    }
    keys = _keys(file, names, recording, rows)
    return RowBlock(0, rows, keys, hidden, logits, recorded=recorded, extra=extra)


def _keys(file: _File, names: Names, recording: Recording, rows: int) -> dict[str, Array]:
    layer = recording.layer
    if layer is None:
        found = re.search(r"layer(\d{1,6})", file.path.stem)
        layer = int(found[1]) if found else 0
    row = np.arange(rows, dtype=np.int32)
    keys: dict[str, Array] = {
        "layer": np.full(rows, layer, np.int32),
        "step": row // recording.step_width if recording.step_width else np.zeros_like(row),
        "row": row,
        "rank": np.full(rows, -1, np.int32),
    }
    for name in names.keys:
        if file.has(name):
            keys[name] = file.take(name, 1, _I32, rows)
    return keys


class _File:
    """A safetensors file whose every surprise is a BankError."""

    def __init__(self, path: Path, drop: Collection[str]) -> None:
        self.path = path
        try:
            self._file = safe_open(str(path), "np")
            held: set[str] = set(self._file.keys())  # type: ignore[no-untyped-call]
        except (SafetensorError, OSError) as error:
            text = str(error).splitlines()[0]
            raise BankError("file", text, "a safetensors file", str(path)) from None
        for name in drop:
            if name not in held:
                raise BankError("drop", name, f"one of {', '.join(sorted(held))}", str(path))
        self._held = held - set(drop)

    def has(self, name: str) -> bool:
        return name in self._held

    def take(self, name: str, axes: int, dtype: np.dtype[Any], rows: int | None = None) -> Array:
        where = str(self.path)
        if name not in self._held:
            raise BankError(f"tensor {name}", "nothing", "present", where)
        try:
            values: Array = self._file.get_tensor(name)  # type: ignore[no-untyped-call]
        except (SafetensorError, OSError, TypeError, ValueError) as error:
            raise BankError(f"tensor {name}", error, "readable", where) from None
        if values.dtype != dtype:
            known = next((k for k, v in DTYPES.items() if v == dtype), dtype)
            raise BankError(f"tensor {name} dtype", values.dtype, known, where)
        if values.ndim != axes or 0 in values.shape:
            expected = f"{axes} axes, not empty"
            raise BankError(f"tensor {name} shape", list(values.shape), expected, where)
        if rows is not None and len(values) != rows:
            raise BankError(f"tensor {name} rows", len(values), rows, where)
        return values
