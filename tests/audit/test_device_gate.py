"""The gate on a device: with a stand-in that has CPU forms, interpreted, and on a GPU.

The stand-in is ``PlainRows`` on CPU tensors with the CPU's exp and tanh, so a device's gate must
find what the CPU's finds. Triton reads TRITON_INTERPRET when a kernel is defined, so the test of
the kernels themselves runs in a process of its own.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from neartie.audit.cli import main
from neartie.audit.gate import device_plan, device_shard, run
from neartie.audit.gate.device_plan import DevicePlan, margin_limit
from neartie.audit.gate.device_rows import ScreenFault
from neartie.audit.gate.device_shard import DeviceRunner
from neartie.audit.gate.plan import GatePlan, make_plan
from neartie.audit.gate.record import figures
from neartie.audit.gate.run import run_gate
from neartie.audit.gate.shard import ShardResult, sampled_rows
from neartie.audit.gate.sides import parse_side
from neartie.audit.launching import front_weights
from neartie.audit.policy import Policy
from neartie.banks.bank import Bank
from neartie.banks.errors import EnvelopeError, InputError
from neartie.banks.geometry import PRESETS
from neartie.banks.normal import NormalStream
from neartie.kernels.cuda import lang, plain
from neartie.kernels.cuda.facts import why_not_real
from neartie.kernels.cuda.forms import DEVICE_FORMS
from neartie.kernels.cuda.normal_triton import fill_normal
from neartie.kernels.cuda.plain import PlainRows
from neartie.kernels.cuda.rows import UNDECIDED, ScreenedRows
from neartie.kernels.cuda.selects import DEVICE_SELECTS
from neartie.kernels.device_select import device_select, runs_on_device
from neartie.kernels.scores import score
from neartie.kernels.select import SELECTS

HOST_FORMS = {"exp.cuda": "exp", "tanh.cuda": "tanh", "exp.approx": "sigmoid"}
FACTS = {
    "device": "stand-in", "compute_capability": "9.9", "driver": "1", "cuda": "1",
    "libdevice": "1", "torch": "1", "triton": "1",
}  # fmt: skip
SMALL: dict[str, Any] = {"rows": 6000, "widths": (9, 20), "shard_rows": 2000, "seed": 3}
ON_SCREEN = {"plain_rows", "selected_twice", "margins", "prediction"}
"""What depends on how many rows are seen in full, and not on what is found."""

interpreted = pytest.mark.skipif(not lang.INTERPRETED, reason="needs TRITON_INTERPRET=1")
on_device = pytest.mark.skipif(why_not_real() is not None, reason=str(why_not_real()))


def _cpu_score(form: str, logits: Any) -> Any:
    if form == "tanh.approx":
        coarse = torch.from_numpy(score("tanh", logits.numpy())).view(torch.int32) & -4096
        return coarse.view(torch.float32)
    return torch.from_numpy(score(HOST_FORMS[form], logits.numpy()))


def stand_in(everything: bool, where: str = "cpu") -> Any:
    """What makes ``PlainRows`` in place of the kernels."""

    def make(bank: Bank, selects: Any, bound: Any, margin: float, budget: int) -> PlainRows:
        bias = torch.from_numpy(np.array(front_weights(bank).bias)).to(where)
        top_k, scale = bank.geometry.top_k, bank.scoring.scale
        limit = None if everything else margin
        return PlainRows(bias, selects, top_k, scale, margin=limit, budget=budget)

    return make


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device that is a stand-in; called with whether every row is seen."""
    monkeypatch.setattr(run, "unavailable", lambda: None)
    monkeypatch.setattr(device_plan, "why_not_real", lambda: "a stand-in")
    monkeypatch.setattr(device_plan, "device_facts", lambda: FACTS)
    monkeypatch.setattr(plain, "device_score", _cpu_score)

    def use(everything: bool = False) -> None:
        monkeypatch.setattr(device_shard, "_kernels", stand_in(everything))

    use()
    return use


def without(found: Any, left_out: set[str]) -> Any:
    return {name: value for name, value in found.items() if name not in left_out}


@pytest.mark.parametrize(
    ("everything", "sides", "source"),
    [
        (False, ("standalone", "fused"), "normal:geometry=k3"),
        (True, ("standalone", "fused"), "normal:geometry=k3"),
        (False, ("topk_sigmoid", "grouped_topk"), "normal:geometry=k2"),
        (False, ("standalone", "fused"), "near_tie:geometry=k3,gap=1,slot=16"),
        (False, ("topk_sigmoid", "auto"), "special:geometry=k3"),
        (False, ("grouped_topk", "fused"), "k3-mini"),
    ],
)
def test_a_device_with_the_cpus_forms_finds_what_the_cpu_finds(
    device: Any, everything: Any, sides: tuple[str, str], source: Any
) -> None:
    device(everything)
    options: dict[str, Any] = SMALL | (
        {"rows": 600} if "special" in source or "near_tie" in source else {}
    )
    found = run_gate(*sides, source, **options, device="cuda").record
    expected = run_gate(*sides, source, **options).record
    assert without(found["pooled"], ON_SCREEN) == without(expected["pooled"], ON_SCREEN)
    for mine, theirs in zip(found["widths"], expected["widths"], strict=True):
        assert without(mine, ON_SCREEN) == without(theirs, ON_SCREEN)
    # Near margins are the CPU's, row by row; the others are counted and lie in no bin.
    limit = found["device_facts"]["margin_limits"][0]
    near, whole = found["pooled"]["margins"], expected["pooled"]["margins"]
    assert near["rows"] == whole["rows"]
    assert near["undefined"] == whole["undefined"]
    exponents = {
        e: n for e, n in whole["exponents"].items() if e == "zero" or 2.0 ** int(e) <= limit
    }
    assert near["exponents"].items() >= exponents.items()
    assert {s: n for s, n in near["steps"].items() if int(s) <= 63} == {
        s: n for s, n in whole["steps"].items() if int(s) <= 63
    }
    assert near["beyond"] == near["rows"] - sum(near["exponents"].values())
    density = found["pooled"]["prediction"]["density"]
    assert density == expected["pooled"]["prediction"]["density"]


def test_the_screen_saves_work_and_the_prediction_holds(device: Any) -> None:
    found = run_gate("standalone", "fused", rows=40_000, seed=1, device="cuda").record["pooled"]
    assert 0 < found["plain_rows"] < 2000
    assert found["margins"]["beyond"] > 38_000
    assert found["prediction"]["agreement"] == "agrees"


def test_the_record_tells_the_device_and_no_cpu_arithmetic(device: Any) -> None:
    result = run_gate("standalone", "fused:score=tanh.approx", **SMALL, device="cuda")
    record = result.record
    facts = record["device_facts"]
    assert {name: facts[name] for name in FACTS} == FACTS
    assert set(facts["forms"]) == {"exp.cuda", "tanh.approx"}
    assert facts["forms"]["tanh.approx"]["version"] == 1
    assert "tanh.approx on the device" in record["candidate"]["declared"]["score"]
    assert record["candidate"]["declared"]["device"] == "cuda"
    assert "device cuda (stand-in, driver 1" in result.to_markdown()
    assert not any("CPU arithmetic" in text for text in record["limitations"])
    assert any("Triton kernel with tanh.approx" in text for text in record["limitations"])
    assert "--device cuda" in record["command"]
    assert result.verdict.state == "FAIL"
    assert all("CPU arithmetic" in c["snippet"] for c in result.swaps.to_pylist())
    assert "stand-in" not in run_gate("standalone", "fused", **SMALL).to_json()


def test_equal_sets_in_another_order_are_told(device: Any) -> None:
    source = "near_tie:geometry=k3,gap=1,slot=8"
    result = run_gate("topk_sigmoid", "fused", source, rows=600, widths=(9,), device="cuda").record
    (width,) = result["widths"]
    assert width["counts"]["reordered"] > 50
    assert width["bits_equal"]["ids"] is False
    same = run_gate("standalone", "standalone", **SMALL, device="cuda").record
    assert [w["bits_equal"] for w in same["widths"]] == [{"ids": True, "weights": True}] * 2


def test_the_same_bits_in_any_number_of_stops(device: Any, tmp_path: Path) -> None:
    one = run_gate("standalone", "fused", **SMALL, device="cuda")
    work = tmp_path / "work"
    run_gate("standalone", "fused", **SMALL, device="cuda", work=work)
    (folder,) = work.iterdir()
    (folder / "shard-000001.json").unlink()
    again = run_gate("standalone", "fused", **SMALL, device="cuda", work=work)
    assert again.reused_shards == len(list(folder.glob("shard-*.json"))) - 1
    assert again.to_json() == one.to_json()
    assert again.swaps == one.swaps


def test_a_shard_of_another_device_is_not_taken_over(
    device: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_gate("standalone", "fused", **SMALL, device="cuda", work=tmp_path)
    monkeypatch.setattr(device_plan, "device_facts", lambda: FACTS | {"driver": "2"})
    other = run_gate("standalone", "fused", **SMALL, device="cuda", work=tmp_path)
    assert other.reused_shards == 0


def _planted(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Change what the stand-in says of each block."""
    make = stand_in(everything=False)

    class Faulty:
        def __init__(self, *arguments: Any) -> None:
            self._pair = make(*arguments)

            self.host = self._pair.host

        def run(self, rows: int, wanted: Any) -> ScreenedRows:
            return ScreenedRows(*change(self._pair.run(rows, wanted)))

    monkeypatch.setattr(device_shard, "_kernels", Faulty)


def test_a_planted_far_swap_is_found(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def far_swap(rows: ScreenedRows) -> ScreenedRows:
        rows.ids[0, 1, 15] = np.setdiff1d(np.arange(800, 896), rows.ids[0])[0]
        return rows

    _planted(monkeypatch, far_swap)
    result = run_gate("standalone", "fused", **SMALL, device="cuda")
    assert result.verdict.state == "FAIL"
    assert result.record["pooled"]["swaps"]["far_swap"] >= 4


def test_a_screen_that_decides_wrongly_is_caught(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(rows: ScreenedRows) -> ScreenedRows:
        ulp = rows.weight_ulp.copy()
        ulp[ulp != UNDECIDED] += 1
        return rows._replace(weight_ulp=ulp)

    _planted(monkeypatch, wrong)
    with pytest.raises(ScreenFault, match="was decided with"):
        run_gate("standalone", "fused", **SMALL, device="cuda")


def test_weights_beyond_the_budget_are_judged(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def heavier(rows: ScreenedRows) -> ScreenedRows:
        marks = rows.weight_ulp.copy()
        marks[rows.seen[0]] = UNDECIDED
        rows.weights[0, 1, 2] *= np.float32(1.01)
        return rows._replace(weight_ulp=marks)

    _planted(monkeypatch, heavier)
    result = run_gate("standalone", "standalone", **SMALL, device="cuda")
    assert result.verdict.state == "FAIL"
    assert result.record["pooled"]["worst_weight"]["value"] > 8
    assert not any(w["bits_equal"]["weights"] for w in result.record["widths"])


def test_bounds_are_proven_or_absent() -> None:
    plan = DevicePlan(FACTS, {"exp.cuda": 2e-7, "tanh.cuda": 3e-7, "tanh.approx": None})
    assert plan.bound(("exp.cuda", "tanh.cuda")) == 3e-7
    assert plan.bound(("exp.cuda", "tanh.approx")) is None
    bias = np.array([0.0, 100.0], np.float32)
    assert margin_limit(bias) == 64 * float(np.spacing(np.float32(101.0)))
    assert margin_limit(np.array([0.0, np.nan], np.float32)) == 2.0**-14


def test_a_plan_with_a_device_reads_back(device: Any) -> None:
    plan, _ = _device_plan("standalone", "fused")
    assert GatePlan.from_json(json.dumps(asdict(plan))) == plan


def _device_plan(baseline: str, candidate: str, rows: int = 2000) -> Any:
    return make_plan(
        baseline, candidate, "normal:geometry=k3", rows=rows, widths=(9,), seed=0, policy=Policy(),
        device="cuda", on_device=True,
    )  # fmt: skip


@pytest.mark.skipif(lang.unavailable() is None, reason="there is a device")
def test_without_a_device_nothing_runs_and_the_reason_is_told() -> None:
    result = run_gate("standalone", "fused:score=tanh.approx", **SMALL, device="cuda")
    assert result.verdict.state == "NOT_RUN"
    assert result.exit_status == 3
    reasons = {item["reason"] for item in result.record["coverage"]}
    assert reasons == {lang.unavailable()}
    assert result.record["device_facts"] is None
    assert result.record["pooled"]["observed"]["units"] == 0
    assert not any("CPU arithmetic" in text for text in result.record["limitations"])


@pytest.mark.parametrize(
    ("spec", "device", "text"),
    [
        ("fused:score=tanh.approx", "cpu", "a device form needs --device cuda"),
        ("fused:score=tanh", "cuda", "one of exp.cuda, exp.cuda_fma"),
        ("fused:bias=bf16", "cuda", "one of score, sum, normalise on the device"),
        ("fused:sum=ascending", "cuda", "one of left_to_right, fold, butterfly"),
        ("radix_bf16", "cuda", "rounds its inputs"),
        ("ascending", "cuda", "ascending order"),
        ("softmax", "cuda", "no sigmoid"),
        ("fp64", "cuda", "is FP64"),
        ("hf", "cuda", "score=rule, but should be named"),
        ("recorded", "cuda", "recorded outputs need no device"),
    ],
)
def test_a_side_of_the_other_device_is_refused(spec: Any, device: Any, text: Any) -> None:
    with pytest.raises(InputError, match=text):
        parse_side(spec, "candidate", device)


@pytest.mark.parametrize(
    ("preset", "text"),
    [("deepseek-v3", "groups=8|groups=1"), ("softmax", "scoring.function=softmax")],
)
def test_a_geometry_that_the_kernels_do_not_cover_is_refused(preset: Any, text: Any) -> None:
    geometry, scoring = PRESETS["k3" if preset == "softmax" else preset]
    if preset == "softmax":
        scoring = replace(scoring, function="softmax")
    with pytest.raises(EnvelopeError, match=text):
        device_select(SELECTS["hf"], "exp.cuda", geometry, scoring)


def test_the_selects_that_are_written_out_are_the_derived_ones() -> None:
    geometry, scoring = PRESETS["k3"]
    for name, expected in DEVICE_SELECTS.items():
        rule, form = parse_side(name, "candidate", "cuda").on_device(9)
        derived = device_select(rule, form, geometry, scoring)
        # Their guard needs no epsilon.
        unused = derived.normalise.endswith("guard")
        assert derived._replace(epsilon=0.0 if unused else derived.epsilon) == expected
    assert runs_on_device() == {
        "fused": "tanh.cuda", "standalone": "exp.cuda", "grouped_topk": "tanh.cuda",
        "topk_sigmoid": "exp.cuda", "hf": None, "grouped": None,
    }  # fmt: skip


def test_the_listing_tells_what_runs_on_the_device(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["neartie", "paths"])
    with pytest.raises(SystemExit):
        main()
    shown = capsys.readouterr().out
    assert "neartie gate --device cuda" in shown
    assert "fused (tanh.cuda)" in shown
    assert all(f"score={form}:" in shown for form in DEVICE_FORMS)


@pytest.mark.skipif(lang.INTERPRETED, reason="already interpreted")
@pytest.mark.skipif(not lang.INSTALLED, reason="triton is not installed")
def test_under_the_interpreter() -> None:
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        [*command, "-k", "interpreted"],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "passed" in done.stdout


def results(plan: GatePlan, make: Any = None) -> list[ShardResult]:
    runner = DeviceRunner(plan, make)
    return [runner.run(shard) for shard in plan.shards()]


def assert_same_results(mine: list[ShardResult], other: list[ShardResult]) -> None:
    for one, two in zip(mine, other, strict=True):
        assert without(figures(one, Policy()), {"plain_rows"}) == without(
            figures(two, Policy()), {"plain_rows"}
        )
        assert one.tally == two.tally
        assert one.certificates == two.certificates
        assert one.bits_equal == two.bits_equal


class StreamRows(PlainRows):
    """The stand-in, as one that makes its rows itself; ``wrong`` is the row that it spoils."""

    wrong: int | None = None

    def run_stream(self, stream: Any, start: int, rows: int, wanted: Any) -> ScreenedRows:
        self.host = stream.rows(np.arange(start, start + rows))
        if self.wrong is not None and start <= self.wrong < start + rows:
            self.host[self.wrong - start, 0] *= np.float32(1 + 2**-23)
        return self.run(rows, wanted)

    def made_logits(self, rows: Any) -> Any:
        return self.host[rows]


def streaming(bank: Bank, selects: Any, bound: Any, margin: float, budget: int) -> PlainRows:
    bias = torch.from_numpy(np.array(front_weights(bank).bias))
    top_k, scale = bank.geometry.top_k, bank.scoring.scale
    return StreamRows(bias, selects, top_k, scale, margin=margin, budget=budget)


def test_rows_made_on_the_device_are_the_banks(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = ("standalone", "fused:score=tanh.approx")
    options: dict[str, Any] = SMALL | {"rows": 3_000, "sample_every": 100}
    read = run_gate(*sides, **options, device="cuda")
    monkeypatch.setattr(device_shard, "_kernels", streaming)
    monkeypatch.setattr(device_shard, "STREAM_ROWS_AT_ONCE", 700)
    made = run_gate(*sides, **options, device="cuda")
    assert made.swaps.num_rows > 0
    assert made.swaps == read.swaps
    assert without(made.record, {"seconds"}) == without(read.record, {"seconds"})


def test_a_row_made_otherwise_stops_the_gate(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, _ = _device_plan("standalone", "fused", rows=400)
    checked = int(sampled_rows(plan, plan.shards()[0])[0])
    monkeypatch.setattr(StreamRows, "wrong", checked)
    with pytest.raises(ScreenFault, match=f"row {checked} has other logits on the device"):
        results(plan, streaming)


def test_shards_and_samples_grow_with_a_billion_rows() -> None:
    plan, _ = make_plan(
        "standalone", "fused", "normal:geometry=k3,rows=1000000000", rows=None, widths=(9, 20),
        seed=0, policy=Policy(),
    )  # fmt: skip
    assert plan.shard_rows % 16384 == 0
    assert len(plan.shards()) <= 4096 + len(plan.widths)
    assert 1_000_000_000 / plan.sample_every <= 1 << 17
    small, _ = make_plan(
        "standalone", "fused", "normal:geometry=k3", rows=3_200_000, widths=(9, 20), seed=0,
        policy=Policy(),
    )  # fmt: skip
    assert (small.shard_rows, small.sample_every) == (16384, 512)


@interpreted
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_interpreted_rows_are_made_as_the_host_makes_them() -> None:
    for seed, start, experts, std in ((0, 0, 896, 1.0), (7, 2**31 - 1, 37, 2.0), (3, 10**12, 8, 1)):
        stream = NormalStream.of_seed(seed, experts, std)
        out = torch.empty((3, experts))
        fill_normal(out, stream.key, start, std)
        expected = stream.rows(np.arange(start, start + 3))
        assert (out.numpy().view(np.uint32) == expected.view(np.uint32)).all()


@pytest.mark.gpu
@on_device
@pytest.mark.parametrize("start", [0, 2**31 - 50_000, 10**12])
def test_rows_of_the_device_have_the_hosts_bits(start: int) -> None:
    for experts, std in ((896, 1.0), (37, 3.0)):
        stream = NormalStream.of_seed(1, experts, std)
        out = torch.empty((100_000, experts), device="cuda")
        fill_normal(out, stream.key, start, std)
        expected = stream.rows(np.arange(start, start + 100_000))
        assert (out.cpu().numpy().view(np.uint32) == expected.view(np.uint32)).all()


@interpreted
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_interpreted_kernels_find_what_plain_torch_finds() -> None:
    result = run_gate("standalone", "fused", rows=6, widths=(9,), device="cuda")
    record = result.record
    assert record["device_facts"]["device"] == "Triton's interpreter on the CPU"
    assert record["device_facts"]["forms"]["tanh.cuda"]["screen_bound"] is None
    assert any("numpy's" in text for text in record["limitations"])
    assert record["pooled"]["plain_rows"] == 6
    plan, _ = _device_plan("standalone", "grouped_topk:score=tanh.approx", rows=6)
    # A bound that numpy's functions keep: the screen decides some rows.
    proven = DevicePlan(plan.device_plan.facts, {"exp.cuda": 1e-3, "tanh.approx": 1e-3})
    plan = replace(plan, device_plan=proven)
    assert_same_results(results(plan), results(plan, stand_in(everything=True)))


@pytest.mark.gpu
@on_device
@pytest.mark.parametrize(
    ("sides", "source", "rows"),
    [
        (("standalone", "fused"), "normal:geometry=k3", 200_000),
        (("topk_sigmoid", "grouped_topk"), "normal:geometry=k2", 20_000),
        (("topk_sigmoid", "fused:score=tanh.approx"), "normal:geometry=k3", 10_000),
        (("standalone", "fused"), "near_tie:geometry=k3,gap=1,slot=16", 5_000),
        (("standalone", "fused"), "near_tie:geometry=k3,gap=0,slot=16", 5_000),
        (("topk_sigmoid", "grouped_topk"), "special:geometry=k3", 5_000),
        (("fused", "hf:score=exp.cuda_fma"), "special:geometry=k3", 5_000),
    ],
)
def test_the_kernels_find_what_plain_torch_finds(
    sides: tuple[str, str], source: Any, rows: Any
) -> None:
    plan, _ = make_plan(
        *sides, source, rows=rows, widths=(9, 20), seed=11, policy=Policy(),
        device="cuda", on_device=True,
    )  # fmt: skip
    found = results(plan)
    assert_same_results(found, results(plan, stand_in(everything=True, where="cuda")))


@pytest.mark.gpu
@on_device
def test_a_gate_on_the_device_twice() -> None:
    one, two = (
        run_gate("standalone", "fused", rows=100_000, seed=1, device="cuda") for _ in range(2)
    )
    assert one.to_json() == two.to_json()
    assert one.swaps == two.swaps
    assert set(one.record["pooled"]["swaps"]) <= {"exact_tie", "near_tie"}
    assert one.record["pooled"]["plain_rows"] < 5_000
