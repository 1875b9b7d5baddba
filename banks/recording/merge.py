"""From the shards of a recording to its banks: one bank a layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..arrow_tables import Table
from ..atomic import new_directory
from ..bank import Array, Header, RowBlock, Stage
from ..disk import writing
from ..errors import BankError
from ..geometry import MAX_WIDTH, Geometry, ScoringRule
from ..schema import DTYPES
from ..write import write_bank
from .agree import STEP, RankDisagreement, disagreements
from .shard import GATE, LATENT, Shard, open_shards, spans

_BF16: Final = DTYPES["bfloat16"]
_F32: Final = DTYPES["float32"]


def merge_ranks(directory: str | Path, out: str | Path) -> dict[str, str]:
    """Write the banks of a recording, one a layer, and return their digests by name.

    What every rank must hold is compared bit for bit first and kept once. Column shards and partial
    sums become tensors with that rank layout. Rows of data-parallel ranks stand one rank after
    the other, with the rank in their key.

    Args:
        directory: holds the shards ``rank0``, ``rank1``, ...
        out: a new or empty directory; gets ``layer0``, ``layer1``, ... all at once.

    Raises:
        RankDisagreement: a rank holds other bits; nothing is written.
        BankError: a rank is missing or incomplete, a file is damaged, or ``out`` is taken.
    """
    place, target = _path(directory, "directory"), _path(out, "out")
    shards = open_shards(place)
    found = disagreements(shards)
    if found:
        raise RankDisagreement(found, str(directory))
    with writing(target, "directory"):
        check_target(target)
    digests = {}
    with new_directory(target, "directory") as partial:
        for layer in shards[0].about.layers:
            merged = _Layer(shards, layer)
            header = merged.header()
            digests[header.name] = write_bank(
                partial / layer, header, merged.weights, merged.blocks()
            )
    return digests


def _path(given: str | Path, what: str) -> Path:
    if not isinstance(given, str | Path):
        raise BankError(what, repr(given)[:60], "the path of a directory", "merge_ranks")
    return Path(given)


def check_target(target: Path) -> None:
    """Refuse a directory that is not new or empty, or whose parent does not exist.

    Raises:
        BankError: it is so.
    """
    check_parent(target)
    taken = target.is_symlink() or (target.exists() and not target.is_dir())
    if taken or (target.is_dir() and any(target.iterdir())):
        raise BankError("directory", target, "new or empty", "record")


def check_place(place: Path, target: Path) -> None:
    """Refuse a directory for shards in which an earlier recording left some.

    Raises:
        BankError: it is so; says how to merge or to remove them.
    """
    if place.is_dir() and any(place.iterdir()):
        expected = (
            f"empty: an earlier recording left it; neartie bank merge-ranks {place} {target} "
            f"makes banks of its shards where all are there, else remove it"
        )
        raise BankError("directory", place, expected, "record")
    check_target(place)


def check_parent(target: Path) -> None:
    """Refuse a directory whose parent does not exist.

    Raises:
        BankError: it does not.
    """
    if not target.absolute().parent.is_dir():
        raise BankError("directory", target.parent, "an existing directory", "record")


@dataclass(frozen=True, slots=True)
class _Start:
    """The stage that a bank can start at, and why it is not an earlier one."""

    stage: Stage
    reason: str | None


class _Layer:
    """The shards of one layer as one bank."""

    def __init__(self, shards: Sequence[Shard], layer: str) -> None:
        self._shards, self._layer = shards, layer
        self._about = shards[0].about
        self._of = shards[0].layer(layer)
        if GATE not in self._of.streams:
            raise BankError("rows", 0, "at least 1", f"{shards[0].directory}, {layer}")
        self._ranks = self._about.ranks if self._about.parallel == "tensor" else 1
        self._tensors = self._of.streams["gate"].tensors
        self._raw = self._whole_weights()
        self._start = self._stage()
        self.weights = self._named_weights()

    def _whole_weights(self) -> dict[str, Array]:
        """The weights with the pieces of the ranks put together again."""
        held = [shard.weights(self._layer) for shard in self._shards[: self._ranks]]
        axes = {"column": 0, "partial": 1}
        layouts = self._about.layouts
        split = {name: layouts["logits"] for name in ("router_weight", "logit_bias")}
        split["latent_down_weight"] = layouts["latent"]
        return {
            name: np.concatenate([weights[name] for weights in held], axes[split[name]])
            if split.get(name, "replicated") != "replicated"
            else held[0][name]
            for name in held[0]
        }

    def _stage(self) -> _Start:
        layouts = self._about.layouts
        if layouts["latent"] == "partial":
            return _Start("partials", "partial sums of the ranks were recorded")
        if "column" in layouts.values():
            return _Start("shards", "pieces of the ranks were recorded")
        weight = self._raw["router_weight"].dtype
        hidden, logits = self._tensors["hidden"].dtype, self._tensors["logits"].dtype
        if "logit_bias" in self._raw:
            return _Start("logits", "the logits have a bias of their own")
        if hidden != "bfloat16":
            return _Start("logits", f"the router's input is {hidden}, not bfloat16")
        if not (weight == _BF16 or (weight == _F32 and logits == "float32")):
            reason = f"a {weight} weight that gives {logits} logits was rounded for the product"
            return _Start("logits", reason)
        return _Start("hidden", None)

    def _named_weights(self) -> dict[str, Array]:
        raw = dict(self._raw)
        experts = len(raw["router_weight"])
        bias = raw.pop("correction_bias", np.zeros(experts, np.float32))
        weights = {"router_weight": raw.pop("router_weight")}
        weights["correction_bias"] = _widened(bias, "correction_bias", self._layer)
        latent = raw.pop("latent_down_weight", None)
        if latent is not None:
            exact = latent.dtype == _BF16
            weights["latent_down_weight" if exact else "latent_down_weight_recorded"] = latent
        return weights | raw

    def header(self) -> Header:
        """The bank's header; rows and digest come from what is written."""
        of, about = self._of, self._about
        experts, hidden = self._raw["router_weight"].shape
        latent = len(self._raw["latent_down_weight"]) if "latent_down_weight" in self._raw else 0
        sizes = {str(name): value for name, value in of.sizes.items()}
        geometry = Geometry(about.name, hidden, latent, experts, **sizes)
        fewest, most = of.call_rows
        width = most if fewest == most <= MAX_WIDTH else None
        ranked = self._start.stage in ("partials", "shards")
        return Header(
            name=f"{about.name}/{self._layer}",
            rows=0,
            geometry=geometry,
            scoring=ScoringRule(**of.scoring.model_dump()),
            tie_contract="unspecified",
            independence_unit=about.unit,
            stage=self._start.stage,
            digest="",
            ranks=self._ranks if ranked else None,
            recorded_widths={about.path: width} if "ids" in self._tensors else {},
            provenance=self._provenance(),
        )

    def _provenance(self) -> dict[str, Any]:
        of, about = self._of, self._about
        bias = self._raw.get("correction_bias")
        told: dict[str, Any] = {
            **about.provenance,
            "layer": int(self._layer.removeprefix("layer")),
            "source": {"module": of.module, "spec": of.spec, "path": about.path},
            "recorded_dtypes": {name: tensor.dtype for name, tensor in self._tensors.items()},
            "correction_bias": "none in the model: zeros" if bias is None else str(bias.dtype),
            "rows_per_call": list(of.call_rows),
            "calls": of.calls,
            "recorded_ranks": {"ranks": about.ranks, "parallel": about.parallel},
        }
        if of.notes:
            told["notes"] = list(of.notes)
        if self._start.reason is not None:
            told["stage_reason"] = self._start.reason
        return told

    def blocks(self) -> Iterator[RowBlock]:
        """Yield the rows."""
        start = 0
        tensor = self._about.parallel == "tensor"
        sources = [self._shards] if tensor else [[shard] for shard in self._shards]
        for ranks in sources:
            gates = [shard.table(self._layer, "gate") for shard in ranks]
            latents = [
                shard.table(self._layer, "latent")
                for shard in ranks
                if LATENT in shard.layer(self._layer).streams
            ]
            rows = ranks[0].layer(self._layer).streams["gate"].rows
            for first, last in spans(rows, STEP):
                yield self._block(start, gates, latents, first, last)
                start += last - first

    def _block(
        self, start: int, gates: list[Table], latents: list[Table], first: int, last: int
    ) -> RowBlock:
        def column(name: str) -> Array:
            return gates[0].column(name, first, last)

        def pieces(tables: list[Table], name: str) -> Array:
            return np.stack([table.column(name, first, last) for table in tables])

        stage = self._start.stage
        layout = self._about.layouts["latent"]
        inputs: dict[str, Any] = {}
        extra: dict[str, Array] = {}
        if stage == "hidden":
            inputs["hidden"] = column("hidden")
            extra["logits_recorded"] = column("logits")
        else:
            extra["hidden_recorded"] = column("hidden")
        if stage == "logits":
            inputs["logits"] = _widened(column("logits"), "logits", self._layer)
        if stage in ("partials", "shards"):
            inputs["logits_shards"] = self._logit_pieces(pieces(gates, "logits"))
            kinds = {"partial": "latent_partials", "column": "latent_shards"}
            if layout in kinds:
                inputs[kinds[layout]] = pieces(latents, LATENT)
        keys = {name: column(name) for name in self._of.streams["gate"].keys}
        recorded = {self._about.path: self._outputs(column)} if "ids" in self._tensors else {}
        return RowBlock(start, last - first, keys, recorded=recorded, extra=extra, **inputs)

    def _logit_pieces(self, held: Array) -> Array:
        """[rank, row, expert / ranks] float32 of [rank, row, expert or expert / ranks]."""
        wide = _widened(held, "logits", self._layer)
        if self._about.layouts["logits"] == "column":
            return wide
        rows, experts = wide.shape[1:]
        return np.moveaxis(wide[0].reshape(rows, self._ranks, experts // self._ranks), 1, 0)

    def _outputs(self, column: Any) -> tuple[Array, Array | None]:
        ids = column("ids")
        experts = len(self._raw["router_weight"])
        if ids.min() < 0 or ids.max() >= experts:
            wrong = ids[(ids < 0) | (ids >= experts)].flat[0]
            raise BankError("ids", wrong, f"0..{experts - 1}", f"{self._layer}")
        if "weights" not in self._tensors:
            return ids.astype(np.int32), None
        return ids.astype(np.int32), _widened(column("weights"), "weights", self._layer)


def _widened(values: Array, name: str, layer: str) -> Array:
    """As float32, without a change of value.

    Raises:
        BankError: a dtype that float32 does not hold.
    """
    if values.dtype == _F32:
        return values
    if values.dtype.itemsize > 2:
        raise BankError(f"{name}.dtype", values.dtype, "float32 or narrower", layer)
    return values.astype(np.float32)
