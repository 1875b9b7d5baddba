"""Recording a model: the bits of the model, and the content of the banks."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from toy_moe import EXPERTS, HIDDEN, LATENT, SPEC, TOP_K, ToyModel, toy_input

import neartie
from neartie.banks.recording.capture import to_numpy
from neartie.banks.recording.shard import ShardWriter

pytestmark = pytest.mark.usefixtures("one_thread")


def _record(model: torch.nn.Module, out: Path, **options: Any) -> Any:
    return neartie.record(model, out=out, specs=[SPEC], **options)


def _run(recording: Any, work: Callable[[], object]) -> None:
    with recording:
        work()


@pytest.fixture
def model() -> ToyModel:
    return ToyModel().eval()


@torch.no_grad()
def test_the_model_keeps_its_bits_and_the_bank_has_its_tensors(
    model: ToyModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = [toy_input(seed) for seed in range(3)]
    alone = [model(x) for x in inputs]
    with _record(model, tmp_path / "bank", provenance={"seeds": {"model": 0}}) as recording:
        recorded = [model(x) for x in inputs]
    assert all(torch.equal(a, b) for a, b in zip(alone, recorded, strict=True))
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["bank"]

    gate = model.moe(1).gate
    bank = neartie.open_bank(tmp_path / "bank" / "layer1")
    assert (bank.name, bank.rows, bank.stage) == ("bank/layer1", 30, "hidden")
    g = bank.geometry
    assert (g.hidden, g.latent, g.experts, g.top_k) == (HIDDEN, LATENT, EXPERTS, TOP_K)
    assert bank.independence_unit == "step"
    assert bank.provenance["seeds"] == {"model": 0}
    assert bank.provenance["rows_per_call"] == [10, 10]
    assert dict(bank.recorded_widths) == {"model": 10}
    weights = bank.weights
    assert (weights["router_weight"] == to_numpy(gate.weight.detach())).all()
    assert (weights["correction_bias"] == gate.bias.numpy()).all()
    down = to_numpy(model.moe(1).down.weight.detach())
    assert (weights["latent_down_weight"] == down).all()
    block = bank.read(0, 30)
    assert (block.keys["layer"] == 1).all()
    assert (block.keys["step"] == np.repeat([0, 1, 2], 10)).all()
    assert (block.keys["row"] == np.tile(np.arange(10), 3)).all()
    logits, values, ids = (
        torch.cat(parts) for parts in zip(*(gate(x) for x in inputs), strict=True)
    )
    hidden = torch.cat([x.reshape(-1, HIDDEN) for x in inputs])
    assert block.hidden is not None
    assert block.hidden.tobytes() == to_numpy(hidden).tobytes()
    assert (block.extra["logits_recorded"] == logits.numpy()).all()
    assert (block.recorded["model"][0] == ids.numpy()).all()
    found = block.recorded["model"][1]
    assert found is not None
    assert (found == values.numpy()).all()

    report = recording.report
    assert report is not None
    assert dict(report.rows) == {1: 30, 3: 30}
    assert report.digests["bank/layer1"] == bank.digest
    assert report.forward_seconds > report.hook_seconds > 0
    assert "recorded 2 layers, 30 rows each" in capsys.readouterr().err


@torch.no_grad()
def test_marks_choose_rows_and_name_them(model: ToyModel, tmp_path: Path) -> None:
    with _record(model, tmp_path / "bank", unit="doc", quiet=True) as recording:
        recording.mark(rows=[1, 4, 9], doc=7)
        model(toy_input(0))
        recording.mark(rows=torch.arange(10) % 2 == 1, doc=np.arange(10))
        model(toy_input(1))
        recording.mark(rows=[], doc=0)
        model(toy_input(2))
    bank = neartie.open_bank(tmp_path / "bank" / "layer3")
    keys = bank.read(0, bank.rows).keys
    assert keys["row"].tolist() == [1, 4, 9, 1, 3, 5, 7, 9]
    assert keys["step"].tolist() == [0] * 3 + [1] * 5
    assert keys["unit"].tolist() == [7, 7, 7, 1, 3, 5, 7, 9]
    first = neartie.open_bank(tmp_path / "bank" / "layer1").read(3, 8).hidden
    assert first is not None
    expected = to_numpy(toy_input(1).reshape(-1, HIDDEN)[1::2])
    assert first.tobytes() == expected.tobytes()


@torch.no_grad()
def test_at_most_so_many_rows_of_the_wanted_layers(model: ToyModel, tmp_path: Path) -> None:
    with _record(model, tmp_path / "bank", layers=[3], max_rows=13, quiet=True) as recording:
        for seed in range(3):
            model(toy_input(seed))
    assert dict(recording.report.rows) == {3: 13}
    assert [p.name for p in (tmp_path / "bank").iterdir()] == ["layer3"]


@torch.no_grad()
def test_a_compiled_model(model: ToyModel, tmp_path: Path) -> None:
    x = toy_input(0)
    eager = model(x)
    # The whole graph: recording breaks it nowhere.
    compiled: Any = torch.compile(model, backend="aot_eager", fullgraph=True)
    before = compiled(x)
    with _record(compiled, tmp_path / "bank", quiet=True) as recording:
        during = [compiled(x), compiled(x)]
    assert torch.equal(before, eager)
    assert all(torch.equal(one, before) for one in (*during, compiled(x)))
    assert dict(recording.report.rows) == {1: 20, 3: 20}
    block = neartie.open_bank(tmp_path / "bank" / "layer1").read(10, 20)
    assert (block.keys["step"] == 1).all()
    assert (block.extra["logits_recorded"] == model.moe(1).gate(x)[0].numpy()).all()


@torch.no_grad()
def test_autocast_is_recorded_as_it_rounds(model: ToyModel, tmp_path: Path) -> None:
    wide = model.float()
    x = toy_input(0).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        alone = wide(x)
        with _record(wide, tmp_path / "bank", quiet=True):
            assert torch.equal(wide(x), alone)
    bank = neartie.open_bank(tmp_path / "bank" / "layer1")
    # FP32 rows are no input of a bank at stage hidden; the logits were rounded to BF16.
    assert bank.stage == "logits"
    assert "router's input is float32" in bank.provenance["stage_reason"]
    block = bank.read(0, 10)
    assert block.logits is not None
    rounded = block.logits.astype(ml_dtypes.bfloat16).astype(np.float32)
    assert (block.logits == rounded).all()
    assert (block.extra["hidden_recorded"] == x.reshape(-1, HIDDEN).numpy()).all()


def test_training_keeps_its_gradients(model: ToyModel, tmp_path: Path) -> None:
    model.train()
    gradients = []
    for place in (None, tmp_path / "bank"):
        model.zero_grad()
        if place is None:
            model(toy_input(0)).float().sum().backward()
        else:
            with _record(model, place, quiet=True):
                model(toy_input(0)).float().sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    assert gradients[0]
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


class _Overwriting(torch.nn.Module):
    """A model that reuses the gate's input and weights for something else."""

    def __init__(self) -> None:
        super().__init__()
        self.moe = ToyModel().moe(1)

    def forward(self, x: torch.Tensor) -> None:
        _, weights, _ = self.moe.gate(x)
        weights.zero_()
        x.zero_()


@torch.no_grad()
def test_what_the_model_writes_over_later_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = ShardWriter.append

    def late(*args: Any) -> None:
        time.sleep(0.2)
        plain(*args)

    monkeypatch.setattr(ShardWriter, "append", late)
    model = _Overwriting()
    _run(_record(model, tmp_path / "bank", quiet=True), lambda: model(toy_input(0)))
    block = neartie.open_bank(tmp_path / "bank" / "layer0").read(0, 10)
    assert block.hidden is not None
    assert block.hidden.tobytes() == to_numpy(toy_input(0)).tobytes()
    assert (block.recorded["model"][1] == model.moe.gate(toy_input(0))[1].numpy()).all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@torch.no_grad()
def test_a_model_on_a_gpu(tmp_path: Path) -> None:
    model = ToyModel().eval().cuda()
    inputs = [toy_input(seed, sequence=64).cuda() for seed in range(20)]
    alone = [model(x) for x in inputs]
    # Little memory: pinned copies are used again while their rows are still on the way.
    with _record(model, tmp_path / "bank", memory=200_000, quiet=True):
        again = [model(x) for x in inputs]
    assert all(torch.equal(a, b) for a, b in zip(alone, again, strict=True))
    bank = neartie.open_bank(tmp_path / "bank" / "layer1")
    hidden = bank.read(0, bank.rows).hidden
    assert hidden is not None
    expected = torch.cat([x.reshape(-1, HIDDEN) for x in inputs]).cpu()
    assert hidden.tobytes() == to_numpy(expected).tobytes()
