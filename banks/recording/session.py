"""An open recording: hooks, marks, the shard of this rank, and its end."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from ..bank import Array
from ..disk import writing
from ..errors import InputError
from ..geometry import ScoringRule
from .background import BackgroundWriter, RecordingError
from .capture import Mark, Stream, make_mark, to_numpy
from .group import Group, RankLostError
from .merge import check_parent, check_place, check_target, merge_ranks
from .report import RecordingReport
from .shard import GATE, LATENT, ShardWriter
from .spec import Gate, output_rows
from .tap import Tap, forget_compiled
from .timer import ForwardTimer


@dataclass(frozen=True, eq=False)
class Settings:
    """What ``record`` was told.

    Attributes:
        target: where the banks, or the shards, appear.
        about: fields of ``shard.json`` that do not depend on what is recorded.
        group: the ranks.
        max_rows: rows a layer at most.
        memory: bytes that may wait for the writing thread.
        merge: whether the shards become banks at the end.
        quiet: no line at the end.
    """

    target: Path
    about: Mapping[str, Any]
    group: Group
    max_rows: int | None
    memory: int
    merge: bool
    quiet: bool


class Recording:
    """A recording, made by ``record``; open as a context.

    Attributes:
        report: what was recorded; there once the context is left without an error.
    """

    def __init__(self, model: torch.nn.Module, gates: Sequence[Gate], settings: Settings) -> None:
        self.report: RecordingReport | None = None
        self._model, self._gates, self._settings = model, gates, settings
        self._group = settings.group
        self._mark = Mark()
        self._taps: list[Tap] = []
        self._timer = ForwardTimer()

    def mark(self, rows: Any = None, **keys: Any) -> None:
        """Tell of the calls from now on, until the next mark.

        Args:
            rows: ascending rows of each call to record, such as those that are no padding, or a
                mask [row] of them; None records all, an empty list none.
            keys: integers [row] of the call, such as ``doc``, or one integer for all its rows.
                Each mark gives the same names.

        Raises:
            InputError: rows that do not ascend, or keys that are no integers or have a taken name.
        """
        self._mark = make_mark(rows, keys)

    def __enter__(self) -> Self:
        group, settings = self._group, self._settings
        self._known = group.together(lambda: {g.layer: _Known.of(g) for g in self._gates})
        with writing(settings.target, "recording"):
            self._shards = group.from_first(self._make_place)
            # A rank that has failed since then may have removed it.
            self._shards.mkdir(exist_ok=True)
            prefix = f".rank{group.rank}.partial-"
            self._place = Path(tempfile.mkdtemp(prefix=prefix, dir=self._shards))
        self._shard = ShardWriter(self._place, settings.target)
        self._writer = BackgroundWriter(settings.memory)
        try:
            self._streams = [stream for gate in self._gates for stream in self._listen(gate)]
        except InputError:
            self._end()
            raise
        self._timer.attach(self._model)
        forget_compiled()
        return self

    def _make_place(self) -> Path:
        """Make the directory of the shards: beside the banks, or itself what was asked for."""
        target = self._settings.target
        if not self._settings.merge:
            check_parent(target)
            target.mkdir(exist_ok=True)
            check_target(target / f"rank{self._group.rank}")
            return target
        check_target(target)
        if self._group.ranks == 1:
            prefix = f".{target.name}.partial-"
            return Path(tempfile.mkdtemp(prefix=prefix, dir=target.absolute().parent))
        place = target.with_name(f"{target.name}.ranks")
        check_place(place, target)
        place.mkdir(exist_ok=True)
        return place

    def _listen(self, gate: Gate) -> list[Stream]:
        streams = [self._stream(gate, GATE, gate.tensor_names())]
        self._taps.append(Tap(gate.module, gate.tensors, streams[0].take))
        if self._settings.about["layouts"]["latent"] != "replicated":
            module = gate.latent_module()
            streams.append(self._stream(gate, LATENT, (LATENT,)))
            self._taps.append(Tap(module, output_rows, streams[1].take))
        return streams

    def _stream(self, gate: Gate, kind: str, names: Sequence[str]) -> Stream:
        rank = self._group.rank if self._settings.about["parallel"] == "data" else -1
        place, limit = (gate.layer, kind, rank), self._settings.max_rows
        unit = self._settings.about["unit"]
        return Stream(place, names, self._writer, self._shard, lambda: self._mark, limit, unit)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._silence()
        if error is not None:
            self._end()
            return
        try:
            size, digests = self._complete()
        finally:
            self._end()
        self.report = self._told(size, digests)
        if not self._settings.quiet and self._group.rank == 0:
            print(self.report, file=sys.stderr)

    def _complete(self) -> tuple[int, dict[str, str]]:
        """Complete this rank's shard, and merge all: its bytes, and the banks' digests."""
        try:
            size = self._group.together(self._finish_shard)
        except RankLostError as error:
            raise RecordingError(f"{error}; {self._left()}") from error
        except Exception:
            # Every rank knows that one has no shard: nobody can merge the others.
            if self._merges:
                shutil.rmtree(self._own_shard, ignore_errors=True)
            raise
        if not self._settings.merge:
            return size, {}
        try:
            return size, self._group.from_first(self._merge)
        except RankLostError as error:
            raise RecordingError(f"{error}; {self._left()}") from error
        except Exception as error:
            if self._merges:
                error.add_note(self._left())
            raise

    @property
    def _merges(self) -> bool:
        """Whether shards of several ranks are merged here: their directory is no one's wish."""
        return self._settings.merge and self._group.ranks > 1

    @property
    def _own_shard(self) -> Path:
        return self._shards / f"rank{self._group.rank}"

    def _left(self) -> str:
        """What lies on the disk where the shards were not merged, and what to do with it."""
        target, place = self._settings.target, self._shards
        held = sorted(path.name for path in place.glob("rank*")) if place.is_dir() else []
        if not held:
            return f"no shard is left in {place}"
        whole = f"neartie bank merge-ranks {place} {target} makes the banks"
        return (
            f"{place} keeps the shards {', '.join(held)} of {self._group.ranks}: with all of them, "
            f"{whole}; else remove {place} before the next recording there"
        )

    def _silence(self) -> None:
        """Take every hook away."""
        for tap in self._taps:
            tap.remove()
        self._timer.detach()
        forget_compiled()

    def _end(self) -> None:
        """Remove hooks, thread and what is no complete shard; a complete one was renamed before."""
        self._silence()
        self._writer.abandon()
        self._shard.close()
        shutil.rmtree(self._place, ignore_errors=True)
        if self._settings.merge and self._group.ranks == 1:
            shutil.rmtree(self._shards, ignore_errors=True)
        elif self._merges:
            # The last rank to leave nothing there removes the directory.
            with contextlib.suppress(OSError):
                self._shards.rmdir()

    def _finish_shard(self) -> int:
        """Complete this rank's shard under its name and return its bytes."""
        self._writer.close()
        self._check_complete()
        document = {
            **self._settings.about,
            "rank": self._group.rank,
            "ranks": self._group.ranks,
            "layers": {f"layer{gate.layer}": self._about(gate) for gate in self._gates},
        }
        self._shard.finish(document)
        size = self._shard.bytes
        with writing(self._settings.target, "recording"):
            self._place.rename(self._own_shard)
        return size

    def _check_complete(self) -> None:
        for stream in self._streams:
            if not stream.rows:
                expected = "at least 1: the gate was not called, or no row was marked"
                raise InputError("rows", 0, expected, f"layer {stream.layer}, {stream.kind}")
        for gate in self._gates:
            for name, now in _on_host(gate.weights()).items():
                before = self._known[gate.layer].weights[name]
                if now.shape != before.shape or now.tobytes() != before.tobytes():
                    expected = "the same bits from start to end of a recording"
                    raise InputError(name, "changed", expected, f"layer {gate.layer}")

    def _about(self, gate: Gate) -> dict[str, Any]:
        """What ``shard.json`` has of a layer; writes its weights."""
        stream = next(one for one in self._streams if one.layer == gate.layer)
        known, layer = self._known[gate.layer], f"layer{gate.layer}"
        return {
            "module": gate.name,
            "spec": gate.spec.name,
            "notes": list(gate.spec.notes),
            "scoring": asdict(known.scoring),
            "sizes": dict(known.sizes),
            "streams": self._shard.streams(layer),
            "weights": self._shard.write_weights(layer, known.weights),
            "calls": stream.calls,
            "call_rows": [stream.fewest, stream.most],
        }

    def _merge(self) -> dict[str, str]:
        digests = merge_ranks(self._shards, self._settings.target)
        shutil.rmtree(self._shards)
        return digests

    def _told(self, size: int, digests: Mapping[str, str]) -> RecordingReport:
        return RecordingReport(
            directory=self._settings.target,
            rows={one.layer: one.rows for one in self._streams if one.kind == GATE},
            bytes=size,
            hook_seconds=sum(stream.seconds for stream in self._streams),
            waited_seconds=self._writer.waited,
            forward_seconds=self._timer.seconds,
            peak_bytes=self._writer.peak,
            limit_bytes=self._writer.limit,
            digests=digests,
        )


@dataclass(frozen=True, eq=False)
class _Known:
    """What a gate is when its recording begins."""

    scoring: ScoringRule
    sizes: Mapping[str, int]
    weights: Mapping[str, Array]

    @classmethod
    def of(cls, gate: Gate) -> Self:
        return cls(gate.scoring(), gate.sizes(), _on_host(gate.weights()))


def _on_host(weights: Mapping[str, torch.Tensor]) -> dict[str, Array]:
    """Copies: a weight on the CPU may change later."""
    return {name: to_numpy(tensor.to("cpu", copy=True)) for name, tensor in weights.items()}
