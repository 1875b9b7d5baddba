"""``record``: what the gates of a running model see and choose, as banks."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

import numpy as np
import torch

from ..bank import NO_UNIT, Array
from ..errors import InputError
from .background import BackgroundWriter
from .capture import Mark, Stream, to_numpy
from .find import find_gates
from .group import Group
from .merge import check_target, merge_ranks
from .ready import READY
from .report import RecordingReport, environment
from .shard import GATE, LATENT, SHARD_VERSION, Layout, ShardWriter
from .spec import Gate, GateSpec, output_rows
from .tap import Tap, forget_compiled

MEMORY: Final = 256 << 20
"""Default limit, in bytes, of what waits for the writing thread."""

_KEY_NAMES: Final = ("layer", "step", "row", "rank", "unit")


def record(
    model: torch.nn.Module,
    *,
    out: str | Path,
    layers: Collection[int] | None = None,
    specs: Sequence[GateSpec] = READY,
    name: str | None = None,
    path: str = "model",
    unit: str = "step",
    max_rows: int | None = None,
    memory: int = MEMORY,
    parallel: Literal["tensor", "data"] = "tensor",
    layouts: Mapping[str, Layout] | None = None,
    group: Any = None,
    merge: bool = True,
    provenance: Mapping[str, Any] | None = None,
    quiet: bool = False,
) -> Recording:
    """Record the gates of a model while the context is open; one bank a layer at its end.

    The model is only listened to: its outputs keep their bits. Keys of a row: its layer, the step
    (the call of that gate, from 0), the row within the call, and the rank (-1 where every rank
    holds it).

    Args:
        model: a torch module, compiled or not; the gates are found anywhere below it.
        out: a new or empty directory; ``out/layer3`` and so on appear there together, at the end.
        layers: layers to record; None records all.
        specs: how gates are recognised.
        name: the banks are ``NAME/layer3``; None takes the directory's name.
        path: the model's ids and weights become the path ``recorded:name=PATH``.
        unit: what is independent: ``step`` (rows of one call share their text), ``row``, ``none``,
            or a key that ``mark`` gives, such as ``doc``.
        max_rows: rows a layer at most; later ones are left out. None records all.
        memory: bytes that may wait for the writing thread; the model waits where it is full.
        parallel: ``tensor``: the ranks of the group see the same rows; ``data``: each its own.
        layouts: how a rank holds the logits (``column``: its experts) and the latent (``column``:
            its columns; ``partial``: a partial sum); both ``replicated`` unless told.
        group: a torch.distributed group; None is the default group, or this process alone.
        merge: False leaves a shard a rank in ``out``, for ``merge_ranks``.
        provenance: JSON values beside those that the model and the machine tell.
        quiet: leave out the line on stderr at the end.

    Raises:
        InputError: no gate, a wrong option; at the end: a gate without a row, a changed weight.
        RankDisagreement: at the end: a rank holds other bits; the shards stay in ``OUT.ranks``.
        RecordingError: the writing thread failed.
    """
    if parallel not in ("tensor", "data"):
        raise InputError("parallel", parallel, "tensor or data", "record")
    if max_rows is not None and max_rows < 1:
        raise InputError("max_rows", max_rows, "at least 1", "record")
    held: dict[str, Layout] = {"logits": "replicated", "latent": "replicated", **(layouts or {})}
    _check_layouts(held, parallel)
    target = Path(out)
    settings = {
        "shard_version": SHARD_VERSION,
        "name": name or target.name,
        "path": path,
        "parallel": parallel,
        "layouts": held,
        "unit": unit,
        "provenance": {**environment(model), **(provenance or {})},
    }
    gates = find_gates(model, specs, layers)
    return Recording(model, gates, target, settings, Group(group), max_rows, memory, merge, quiet)


def _check_layouts(layouts: Mapping[str, str], parallel: str) -> None:
    known = {
        "logits": ("replicated", "column"),
        "latent": ("replicated", "column", "partial"),
    }
    for tensor, layout in layouts.items():
        if tensor not in known:
            raise InputError("layouts", tensor, f"one of {', '.join(known)}", "record")
        if layout not in known[tensor]:
            expected = f"one of {', '.join(known[tensor])}"
            raise InputError(f"layouts {tensor}", layout, expected, "record")
        if parallel == "data" and layout != "replicated":
            expected = "replicated where ranks are data-parallel"
            raise InputError(f"layouts {tensor}", layout, expected, "record")


class Recording:
    """An open recording; made by ``record``.

    Attributes:
        report: what was recorded; there once the context is left without an error.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        gates: Sequence[Gate],
        target: Path,
        settings: Mapping[str, Any],
        group: Group,
        max_rows: int | None,
        memory: int,
        merge: bool,
        quiet: bool,
    ) -> None:
        self.report: RecordingReport | None = None
        self._model, self._gates, self._target = model, gates, target
        self._settings, self._group = dict(settings), group
        self._max_rows, self._memory = max_rows, memory
        self._merge, self._quiet = merge, quiet
        self._mark = Mark()
        self._taps: list[Tap] = []
        self._timer = _Timer()

    def mark(self, rows: Any = None, **keys: Any) -> None:
        """Tell of the calls from now on, until the next mark.

        Args:
            rows: ascending rows of each call to record, such as those that are no padding, or a
                mask [row] of them; None records all, an empty list none.
            keys: integers [row] of the call, such as ``doc``, or one integer for all its rows.
                Each mark gives the same names.

        Raises:
            InputError: rows that do not ascend, or keys that are no integers or no name.
        """
        named = {name: _key(name, values) for name, values in keys.items()}
        self._mark = Mark(None if rows is None else _ascending(rows), named)

    def __enter__(self) -> Self:
        group = self._group
        self._shards = group.from_first(self._make_place)
        self._place = Path(tempfile.mkdtemp(prefix=f".rank{group.rank}.partial-", dir=self._shards))
        self._writer = BackgroundWriter(self._memory)
        self._shard = ShardWriter(self._place)
        self._held = {gate.layer: _on_host(gate.weights()) for gate in self._gates}
        self._weights = {
            layer: self._shard.write_weights(f"layer{layer}", weights)
            for layer, weights in self._held.items()
        }
        self._streams = [stream for gate in self._gates for stream in self._listen(gate)]
        self._timer.attach(self._model)
        forget_compiled()
        return self

    def _make_place(self) -> Path:
        check_target(self._target)
        if not self._merge:
            self._target.mkdir(exist_ok=True)
            return self._target
        if self._group.ranks == 1:
            prefix = f".{self._target.name}.partial-"
            return Path(tempfile.mkdtemp(prefix=prefix, dir=self._target.absolute().parent))
        place = self._target.with_name(f"{self._target.name}.ranks")
        check_target(place)
        place.mkdir(exist_ok=True)
        return place

    def _listen(self, gate: Gate) -> list[Stream]:
        streams = [self._stream(gate, GATE, gate.tensor_names())]
        self._taps.append(Tap(gate.module, gate.tensors, streams[0].take))
        if self._settings["layouts"]["latent"] != "replicated":
            module = gate.latent_module()
            streams.append(self._stream(gate, LATENT, (LATENT,)))
            self._taps.append(Tap(module, output_rows, streams[1].take))
        return streams

    def _stream(self, gate: Gate, kind: str, names: Sequence[str]) -> Stream:
        rank = self._group.rank if self._settings["parallel"] == "data" else -1
        place = (gate.layer, kind, rank)
        return Stream(place, names, self._writer, self._shard, lambda: self._mark, self._max_rows)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for tap in self._taps:
            tap.remove()
        self._timer.detach()
        forget_compiled()
        if error is not None:
            self._writer.abandon()
            self._drop()
            return
        try:
            size = self._group.together(self._finish_shard)
            digests = self._group.from_first(self._merge_shards) if self._merge else {}
        finally:
            self._writer.abandon()
            self._drop()
        self.report = self._told(size, digests)
        if not self._quiet and self._group.rank == 0:
            print(self.report, file=sys.stderr)

    def _drop(self) -> None:
        """Remove what is no complete shard; a complete one was renamed before."""
        self._shard.close()
        shutil.rmtree(self._place, ignore_errors=True)
        if self._merge and self._group.ranks == 1:
            shutil.rmtree(self._shards, ignore_errors=True)

    def _finish_shard(self) -> int:
        """Complete this rank's shard under its name and return its bytes."""
        self._writer.close()
        self._check_complete()
        document = {
            **self._settings,
            "rank": self._group.rank,
            "ranks": self._group.ranks,
            "layers": {f"layer{gate.layer}": self._about(gate) for gate in self._gates},
        }
        self._shard.finish(document)
        size = self._shard.bytes
        self._place.rename(self._shards / f"rank{self._group.rank}")
        return size

    def _check_complete(self) -> None:
        for stream in self._streams:
            if not stream.rows:
                expected = "at least 1: the gate was not called, or no row was marked"
                raise InputError("rows", 0, expected, f"layer {stream.layer}, {stream.kind}")
        for gate in self._gates:
            for name, now in _on_host(gate.weights()).items():
                before = self._held[gate.layer][name]
                if now.shape != before.shape or now.tobytes() != before.tobytes():
                    expected = "the same bits from start to end of a recording"
                    raise InputError(name, "changed", expected, f"layer {gate.layer}")

    def _about(self, gate: Gate) -> dict[str, Any]:
        stream = next(one for one in self._streams if one.layer == gate.layer)
        rule = gate.scoring()
        return {
            "module": gate.name,
            "spec": gate.spec.name,
            "notes": list(gate.spec.notes),
            "scoring": {name: getattr(rule, name) for name in rule.__slots__},
            "sizes": gate.sizes(),
            "streams": self._shard.streams(f"layer{gate.layer}"),
            "weights": self._weights[gate.layer],
            "calls": stream.calls,
            "call_rows": [stream.fewest, stream.most],
        }

    def _merge_shards(self) -> dict[str, str]:
        digests = merge_ranks(self._shards, self._target)
        shutil.rmtree(self._shards)
        return digests

    def _told(self, size: int, digests: Mapping[str, str]) -> RecordingReport:
        return RecordingReport(
            directory=self._target,
            rows={one.layer: one.rows for one in self._streams if one.kind == GATE},
            bytes=size,
            hook_seconds=sum(stream.seconds for stream in self._streams),
            waited_seconds=self._writer.waited,
            forward_seconds=self._timer.seconds,
            peak_bytes=self._writer.peak,
            limit_bytes=self._writer.limit,
            digests=digests,
        )


class _Timer:
    """Seconds in a module's forward; None where it was never seen to be called eagerly."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._began = 0.0
        self._handles: list[Any] = []

    def attach(self, model: torch.nn.Module) -> None:
        self._handles = [
            model.register_forward_pre_hook(self._before, prepend=True),
            model.register_forward_hook(self._after),
        ]

    def _before(self, module: torch.nn.Module, args: Any) -> None:
        # A compiler would read the clock once.
        if not torch.compiler.is_compiling():
            self._began = time.perf_counter()

    def _after(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        if not torch.compiler.is_compiling():
            self.seconds = (self.seconds or 0.0) + time.perf_counter() - self._began

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()


def _on_host(weights: Mapping[str, torch.Tensor]) -> dict[str, Array]:
    """Copies: a weight on the CPU may change later."""
    return {name: to_numpy(tensor.to("cpu", copy=True)) for name, tensor in weights.items()}


def _array(values: Any, what: str) -> Array:
    found = values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else values
    array = np.asarray(found).reshape(-1)
    if array.dtype.kind not in "iub":
        raise InputError(what, array.dtype, "integers", "mark")
    return array


def _ascending(rows: Any) -> Array:
    if not np.size(rows):
        return np.zeros(0, np.int64)
    array = _array(rows, "rows")
    if array.dtype.kind == "b":
        return np.flatnonzero(array)
    whole = array.astype(np.int64)
    if (np.diff(whole) <= 0).any():
        raise InputError("rows", "numbers that do not ascend", "ascending", "mark")
    return whole


def _key(name: str, values: Any) -> Array | int:
    if name in (*_KEY_NAMES, "row", NO_UNIT):
        raise InputError("key", name, "another name: this one is taken", "mark")
    if isinstance(values, int):
        return values
    array = _array(values, name)
    return array.astype(np.int32 if array.dtype.itemsize <= 4 else np.int64)
