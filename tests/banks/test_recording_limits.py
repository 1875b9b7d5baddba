"""What ends or refuses a recording: interrupts, a full disk, a full memory, a wrong use."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_moe import SPEC, ToyModel, toy_input

import neartie
from neartie.banks.errors import InputError
from neartie.banks.recording.background import BackgroundWriter, RecordingError
from neartie.banks.recording.capture import Mark, Stream, make_mark
from neartie.banks.recording.find import find_gates
from neartie.banks.recording.shard import ShardWriter
from neartie.banks.recording.spec import Attr, GateSpec, Output

pytestmark = pytest.mark.usefixtures("one_thread")


def _record(model: torch.nn.Module, out: Path, **options: Any) -> Any:
    return neartie.record(model, out=out, **{"specs": [SPEC], **options})


def _run(recording: Any, work: Callable[[], object]) -> None:
    with recording:
        work()


@pytest.fixture
def model() -> ToyModel:
    return ToyModel().eval()


@torch.no_grad()
def test_an_interrupted_recording_leaves_nothing(model: ToyModel, tmp_path: Path) -> None:
    def work() -> None:
        model(toy_input(0))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _run(_record(model, tmp_path / "bank"), work)
    assert not list(tmp_path.iterdir())
    assert not model.moe(1).gate._forward_hooks
    model(toy_input(0))


@torch.no_grad()
def test_a_killed_recording_never_looks_complete(model: ToyModel, tmp_path: Path) -> None:
    recording = _record(model, tmp_path / "bank", merge=False).__enter__()
    model(toy_input(0))
    # What a kill leaves behind: the files so far, without shard.json, under a hidden name.
    left = [p for p in (tmp_path / "bank").iterdir()]
    assert [p.name.startswith(".rank0.partial") for p in left] == [True]
    with pytest.raises(InputError, match=r"file=nothing, but should be present \[.*rank0"):
        neartie.merge_ranks(tmp_path / "bank", tmp_path / "merged")
    recording.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert not (tmp_path / "merged").exists()
    assert not list((tmp_path / "bank").iterdir())


def _rows_of(size: int) -> list[torch.Tensor]:
    return [torch.zeros(size, 8), torch.zeros(size, 2)]


def test_memory_is_bounded(tmp_path: Path) -> None:
    gate = threading.Event()
    writer = BackgroundWriter(4000)
    shard = ShardWriter(tmp_path)
    slow = shard.append

    def wait(*args: Any) -> None:
        gate.wait(10)
        slow(*args)

    shard.append = wait  # type: ignore[assignment, method-assign]
    stream = Stream((0, "gate", -1), ("a", "b"), writer, shard, Mark, None)
    # 40 bytes a row: the third call of 40 rows does not fit, whatever comes of the first two.
    done = threading.Event()

    def calls() -> None:
        for _ in range(6):
            stream.take(_rows_of(40))
        # More than the limit at once: in parts.
        stream.take(_rows_of(250))
        done.set()

    thread = threading.Thread(target=calls)
    thread.start()
    deadline = time.monotonic() + 10
    while stream.calls < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    assert stream.calls == 2
    assert not done.is_set()
    gate.set()
    thread.join(10)
    writer.close()
    assert done.is_set()
    assert 3200 <= writer.peak <= writer.limit
    assert writer.waited > 0.05
    assert shard.streams("layer0")["gate"]["rows"] == 6 * 40 + 250
    shard.close()


@torch.no_grad()
def test_one_row_over_the_limit_is_refused(model: ToyModel, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="memory=100, but should be at least the 208 of one row"):
        _run(_record(model, tmp_path / "bank", memory=100), lambda: model(toy_input(0)))
    assert not list(tmp_path.iterdir())


@torch.no_grad()
def test_a_full_disk_is_told(
    model: ToyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ShardWriter, "append", full)

    def work() -> None:
        for seed in range(50):
            model(toy_input(seed))
            time.sleep(0.01)

    with pytest.raises(RecordingError, match="No space left"):
        _run(_record(model, tmp_path / "bank"), work)
    assert not list(tmp_path.iterdir())
    assert all(t.name != "neartie-record" for t in threading.enumerate())


@torch.no_grad()
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m, r: m.moe(3).gate.weight[0, 0].add_(1), "router_weight=changed"),
        (lambda m, r: r.mark(rows=[]), r"rows=0, but should be at least 1.*\[layer 1, gate\]"),
        (lambda m, r: r.mark(doc=[1, 2, 3]), "doc rows=3, but should be 10"),
        (lambda m, r: r.mark(doc=7), "mark=the new key doc, but should be the same keys"),
        (lambda m, r: r.mark(rows=[2, 10]), r"mark rows=10, but should be 0\.\.9"),
    ],
)
def test_what_is_refused_on_the_way(
    model: ToyModel, tmp_path: Path, change: Any, words: str
) -> None:
    recording = _record(model, tmp_path / "bank")

    def work() -> None:
        if "rows=0" not in words:
            model(toy_input(0))
        change(model, recording)
        model(toy_input(1))

    with pytest.raises((InputError, RecordingError), match=words):
        _run(recording, work)
    assert not list(tmp_path.iterdir())


def test_what_is_refused_at_once(model: ToyModel, tmp_path: Path) -> None:
    out = tmp_path / "bank"
    with pytest.raises(InputError, match="layers=2, but should be some of 1, 3"):
        _record(model, out, layers=[2])
    with pytest.raises(InputError, match="model=ToyModel, but should be one with a gate"):
        neartie.record(model, out=out)
    both = torch.nn.ModuleDict({"text": ToyModel(), "vision": ToyModel()})
    with pytest.raises(InputError, match=r"text\.layers\.1\.gate and vision\.layers\.1\.gate"):
        _record(both, out)
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank" / "file").touch()
    with pytest.raises(InputError, match="new or empty"):
        _record(model, out).__enter__()
    for options, words in (
        ({"parallel": "both"}, "parallel=both"),
        ({"max_rows": 0}, "max_rows=0"),
        ({"layouts": {"ids": "column"}}, "layouts=ids"),
        ({"layouts": {"logits": "partial"}}, "layouts logits=partial"),
        ({"layouts": {"logits": "column"}, "parallel": "data"}, "data-parallel"),
        ({"layouts": ["logits"]}, "layouts=list"),
        ({"layers": 3}, "layers=3, but should be layer numbers"),
        ({"layers": "3"}, "layers='3', but should be layer numbers"),
        ({"layers": []}, "layers=none"),
        ({"specs": [ToyModel]}, r"specs=.*but should be a list of GateSpec"),
        ({"name": ""}, "name='', but should be printable text"),
        ({"name": "a\x1bb"}, "name="),
        ({"name": 3}, "name=int 3, but should be text"),
        ({"path": "my path"}, "path='my path', but should be letters"),
        ({"path": None}, "path=NoneType None, but should be text"),
        ({"unit": "two words"}, "unit='two words', but should be row, step, none, or a key"),
        ({"unit": "hidden"}, "unit='hidden', but should be row, step, none, or a key"),
        ({"unit": 3}, "unit=int 3, but should be text"),
        ({"max_rows": "9"}, "max_rows=str '9'"),
        ({"max_rows": True}, "max_rows=bool True"),
        ({"memory": 1.5}, "memory=float 1.5"),
        ({"memory": 0}, "memory=0, but should be at least 1"),
        ({"merge": "no"}, "merge=str 'no', but should be True or False"),
        ({"group": (1,), "merge": False}, r"group=\(1,\), but should be \(rank, ranks\)"),
        ({"group": "all"}, "group='all', but should be a torch.distributed group"),
        ({"provenance": {"a": model}}, "provenance=Object of type ToyModel is not JSON"),
        ({"provenance": {"a": float("nan")}}, "provenance=.*a mapping of JSON values"),
        ({"provenance": {1: 2}}, "provenance=1, but should be names that are text"),
        ({"provenance": {"commit": 7}}, r"provenance\.commit=7"),
        ({"provenance": [1]}, "provenance=list"),
    ):
        with pytest.raises(InputError, match=words):
            _record(model, tmp_path / "other", **options)
    for place, words in ((3, "out=int 3"), (".", "out='.'"), ("x/..", r"out='x/\.\.'")):
        with pytest.raises(InputError, match=words):
            _record(model, place)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"model=str 'x', but should be a torch\.nn\.Module"):
        _record("x", tmp_path / "other")  # type: ignore[arg-type]


@torch.no_grad()
def test_a_unit_that_no_mark_gives_ends_the_first_call(model: ToyModel, tmp_path: Path) -> None:
    recording = _record(model, tmp_path / "bank", unit="doc")
    calls = 0

    def work() -> None:
        nonlocal calls
        recording.mark(text=1)
        model(toy_input(0))
        calls += 1

    words = "mark=text, but should be the key doc in a mark before the first call"
    with pytest.raises(InputError, match=words):
        _run(recording, work)
    assert not calls
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ({}, {"doc": 1}, "mark=the new key doc, but should be the same keys .*so far: none"),
        ({"doc": 1, "text": 2}, {"text": 2}, r"mark=no key doc, but .*\(so far: doc, text\)"),
        ({"doc": 1}, {"text": 1}, "mark=the new key text, no key doc, but should be the same"),
        ({"doc": 1}, {"doc": np.zeros(10, np.int32)}, "mark=key doc of int32 after int64, but"),
    ],
)
@torch.no_grad()
def test_every_call_has_the_same_keys(
    first: Any, second: Any, words: str, model: ToyModel, tmp_path: Path
) -> None:
    recording = _record(model, tmp_path / "bank")
    reached = False

    def work() -> None:
        nonlocal reached
        recording.mark(**first)
        model(toy_input(0))
        # No row is recorded: its keys are nobody's.
        recording.mark([], other=1)
        model(toy_input(0))
        recording.mark(**second)
        reached = True
        model(toy_input(0))

    with pytest.raises(InputError, match=words):
        _run(recording, work)
    assert reached
    assert not list(tmp_path.iterdir())


def test_marks_are_checked(model: ToyModel, tmp_path: Path) -> None:
    recording = _record(model, tmp_path / "bank")
    for rows in ([3, 1], [1, 1], [0.5]):
        with pytest.raises(InputError, match="rows="):
            recording.mark(rows=rows)
    for keys, words in (
        ({"layer": 1}, "key=layer, but should be another name"),
        ({"hidden": 1}, "key=hidden, but should be another name"),
        ({"recorded.model.ids": 1}, "another name"),
        ({"two words": 1}, "key='two words', but should be letters"),
        ({"doc": [0.5]}, "doc=float64, but should be integers"),
        ({"doc": torch.zeros(2, dtype=torch.bfloat16)}, r"doc=torch\.bfloat16"),
        ({"doc": [[1], [2, 3]]}, "doc=.*but should be integers, one a row"),
        ({"doc": 1 << 63}, "doc=9223372036854775808, but should be a number of 64 bits"),
        ({"doc": [1 << 90]}, "doc=object"),
        ({"doc": "one"}, "doc="),
        ({"doc": None}, "doc=object"),
    ):
        with pytest.raises(InputError, match=words):
            recording.mark(**keys)


def test_the_values_of_a_key_are_kept() -> None:
    mark = make_mark(None, {"a": np.array([1, 1 << 31], np.uint32), "b": np.int64(7)})
    assert np.asarray(mark.keys["a"]).tolist() == [1, 1 << 31]
    assert mark.keys["b"] == 7


@torch.no_grad()
def test_a_missing_attribute_is_named(model: ToyModel, tmp_path: Path) -> None:
    spec = GateSpec(name="mine", classes=("Toy*Gate",), function="sigmoid", scale=Attr("factor"))
    assert [gate.layer for gate in find_gates(model, [spec])] == [1, 3]
    message = r"factor=nothing.*layers\.1\.gate \(ToyGate\), spec mine"
    with pytest.raises(InputError, match=message):
        neartie.record(model, out=tmp_path / "bank", specs=[spec]).__enter__()
    wrong = GateSpec(name="mine", classes=("ToyGate",), function="sigmoid", logits=Output("x"))
    message = r"logits=.*but should be a tensor at Output\(place='x'\).*spec mine"
    with pytest.raises(InputError, match=message):
        _run(
            neartie.record(model, out=tmp_path / "bank", specs=[wrong]), lambda: model(toy_input(0))
        )
    latent = neartie.record(
        model, out=tmp_path / "bank", specs=[replace(SPEC, latent_module=None)],
        layouts={"latent": "column"},
    )  # fmt: skip
    with pytest.raises(InputError, match="latent_module=None"):
        latent.__enter__()
    assert not model.moe(1).gate._forward_hooks
    assert not list(tmp_path.iterdir())


def test_gates_without_a_number_are_counted() -> None:
    pair = torch.nn.ModuleDict({"a": ToyModel().moe(1), "b": ToyModel().moe(1)})
    assert [gate.layer for gate in find_gates(pair, [SPEC])] == [0, 1]
