"""The gate: planted faults are found, ties classed exactly, the same bits however it was run."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neartie
from neartie.audit.cli import main
from neartie.audit.gate.host_shard import ShardRunner
from neartie.audit.gate.plan import GatePlan, make_plan
from neartie.audit.gate.result import GateResult
from neartie.audit.gate.run import run_gate
from neartie.audit.gate.shard_file import read_shard, write_shard
from neartie.audit.policy import Policy
from neartie.banks.errors import InputError
from neartie.banks.open import open_bank
from neartie.banks.store import StoredBank
from neartie.banks.write import write_bank
from neartie.kernels.fast.compare import DIFFERENT
from neartie.kernels.fast.gate import PairedRows, PairedSelect
from neartie.kernels.fast.plain import compare_pairs
from neartie.kernels.select import SELECTS, select

SMALL: dict[str, Any] = {"rows": 12_000, "widths": (9, 20), "shard_rows": 3000, "seed": 3}


def bits(result: GateResult, folder: Path) -> dict[str, bytes]:
    written = result.write(folder)
    # The manifest has the date, and nothing else that two runs may differ in.
    names = sorted(path.name for path in written.iterdir() if path.name != "manifest.json")
    return {name: (written / name).read_bytes() for name in names}


def test_exp_against_tanh_on_normal_rows() -> None:
    result = run_gate("standalone", "fused", rows=120_000, seed=1)
    pooled = result.record["pooled"]
    assert 1e-6 < pooled["observed"]["upper"] < 1e-4
    assert set(pooled["swaps"]) <= {"exact_tie", "near_tie"}
    assert pooled["violations"] == 0
    assert pooled["worst_weight"]["value"] <= 8
    assert sum(pooled["weight_ulp_histogram"].values()) + 16 * pooled["observed"]["differing"] == (
        120_000 * 16
    )
    prediction = pooled["prediction"]
    assert prediction["agreement"] == "agrees"
    assert 1e-6 < prediction["rate"] < 5e-5
    assert pooled["reference"]["sampled"] == 236
    assert sum(width["unique_rows"] for width in result.record["widths"]) == 120_000
    assert [width["unique_rows"] for width in result.record["widths"]] == [30_000] * 4
    assert result.record["plan"]["windows"][0][0] is not None
    assert pooled["selected_twice"] < 120


def test_counts_are_those_of_two_whole_selections() -> None:
    result = run_gate("topk_sigmoid", "grouped_topk", **SMALL)
    bank = open_bank(result.record["banks"][0]["name"])
    logits, bias = bank.read(0, 12_000).logits, bank.weights["correction_bias"]
    assert logits is not None
    (a, _), (b, _) = (
        select(SELECTS[name], logits, bias, bank.geometry, bank.scoring)
        for name in ("topk_sigmoid", "grouped_topk")
    )
    differs = (np.sort(a, axis=1) != np.sort(b, axis=1)).any(axis=1)
    assert result.record["pooled"]["observed"]["differing"] == differs.sum()
    reordered = (a != b).any(axis=1) & ~differs
    assert sum(w["counts"]["reordered"] for w in result.record["widths"]) == reordered.sum()


def test_a_planted_far_swap_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row of 60,000 whose candidate takes an expert far below the boundary."""
    planted = 41_234
    run = PairedSelect.run
    seen = [0]

    def faulty(self: PairedSelect, logits: Any, threads: int | None = None) -> PairedRows:
        rows = run(self, logits, threads)
        place = planted - seen[0]
        if 0 <= place < len(logits):
            rows.ids_b[place, 15] = int(np.argsort(logits[place])[400])
            rows.code[place] = DIFFERENT
            rows.weight_ulp[place] = -1
            counted = np.zeros_like(rows.weight_bins)
            one = slice(place, place + 1)
            ids, w_a, w_b = rows.ids_a[one], rows.weights_a[one], rows.weights_b[one]
            compare_pairs(ids, w_a, ids, w_b, counted)
            rows.weight_bins[:] -= counted
        seen[0] += len(logits)
        return rows

    monkeypatch.setattr(PairedSelect, "run", faulty)
    result = run_gate("standalone", "fused", rows=60_000, widths=(9,))
    assert result.verdict.state == "FAIL"
    assert result.record["pooled"]["swaps"]["far_swap"] == 1
    assert result.record["pooled"]["violations"] == 1
    (named,) = [c for c in result.swaps.to_pylist() if c["set_class"] == "far_swap"]
    assert named["row"] == planted
    assert named["reference_ranks_dropped"] == [16]
    assert any("far_swap: 1 of 60,000 rows" in r.text for r in result.verdict.reasons)


def test_planted_near_ties_are_classed_exactly() -> None:
    source = "near_tie:geometry=k3,gap=1,slot=16"
    result = run_gate("standalone", "fused", source, rows=900, widths=(9,))
    assert set(result.record["pooled"]["swaps"]) == {"near_tie"}
    assert result.record["pooled"]["swaps"]["near_tie"] > 50
    assert {c["gap_ulp"] for c in result.swaps.to_pylist()} == {1}
    assert result.record["pooled"]["violations"] == 0


def test_planted_exact_ties_are_classed_exactly(tmp_path: Path) -> None:
    """FP32 keys tie and go to the lower id; FP64 keys prefer the higher id by half a step."""
    source = open_bank("normal:geometry=k3,rows=600,bias=0,seed=5")
    block = source.read(0, 600)
    assert block.logits is not None
    for line in block.logits:
        low, high = np.sort(np.argsort(line)[-17:-15])
        line[high] = line[low] = line[[low, high]].max()
        line[low] = np.nextafter(line[high], np.float32(-9))
    write_bank(tmp_path / "bank", source.header, source.weights, [block])
    result = run_gate("hf", "fp64", str(tmp_path / "bank"), rows=None, widths=(9,))
    assert set(result.record["pooled"]["swaps"]) == {"exact_tie"}
    assert result.record["pooled"]["swaps"]["exact_tie"] > 50
    assert {c["gap_ulp"] for c in result.swaps.to_pylist()} == {0}
    strict = Policy(tie_contract="lower_id")
    failed = run_gate("hf", "fp64", str(tmp_path / "bank"), rows=None, widths=(9,), policy=strict)
    assert failed.verdict.state == "FAIL"


def test_same_bits_with_one_and_two_processes_and_after_a_stop(tmp_path: Path) -> None:
    one = run_gate("standalone", "fused", **SMALL)
    two = run_gate("standalone", "fused", **SMALL, workers=2, work=tmp_path / "work")
    assert bits(one, tmp_path / "one") == bits(two, tmp_path / "two")
    (plan,) = (tmp_path / "work").iterdir()
    for name in ("shard-000001.json", "shard-000003.json"):
        (plan / name).unlink()
    (plan / "shard-000000.json").write_text('{"plan": "cut')
    again = run_gate("standalone", "fused", **SMALL, work=tmp_path / "work")
    assert again.reused_shards == 1
    assert bits(again, tmp_path / "three") == bits(one, tmp_path / "four")


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_run_is_taken_up(tmp_path: Path, stop: signal.Signals) -> None:
    work = tmp_path / "work"
    code = (
        "from neartie.audit.gate.run import run_gate\n"
        "if __name__ == '__main__':\n"
        f"    run_gate('standalone', 'fused', rows=90_000, widths=(9, 20), shard_rows=3000, seed=3,"
        f" workers=2, work={str(work)!r})\n"
    )
    script = tmp_path / "run.py"
    script.write_text(code)
    words = [sys.executable, "-P", str(script)]
    process = subprocess.Popen(words, env=os.environ, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and len(list(work.glob("*/shard-*.json"))) < 3:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(stop)
    process.wait()
    found = len(list(work.glob("*/shard-*.json")))
    assert found >= 3
    options: dict[str, Any] = {"rows": 90_000, "widths": (9, 20), "shard_rows": 3000, "seed": 3}
    resumed = run_gate("standalone", "fused", **options, work=work)
    assert resumed.reused_shards >= 3
    fresh = run_gate("standalone", "fused", **options)
    assert bits(resumed, tmp_path / "a") == bits(fresh, tmp_path / "b")


def test_an_interrupt_of_the_whole_group_is_the_parents_alone(tmp_path: Path) -> None:
    """A terminal sends it to the workers too, here while they load their libraries."""
    words = [sys.executable, "-P", "-m", "neartie", "gate", "--rows", "20M", "--workers", "2"]
    process = subprocess.Popen(
        words, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + 120
    # The resource tracker and two workers.
    while time.monotonic() < deadline and len(children.read_text().split()) < 3:
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in told
    assert "neartie: interrupted" in told


def test_shards_read_back_to_the_same_result(tmp_path: Path) -> None:
    plan, _ = make_plan("standalone", "fused", "normal:geometry=mini", **_plan_options())
    shard = plan.shards()[0]
    result = ShardRunner(plan).run(shard)
    write_shard(tmp_path, plan, shard, result)
    assert read_shard(tmp_path, plan, shard) == result
    other, _ = make_plan("standalone", "hf", "normal:geometry=mini", **_plan_options())
    assert read_shard(tmp_path, other, shard) is None
    (path,) = tmp_path.iterdir()
    text, rows = path.read_text(), result.tally.unique_rows
    assert text.count(f'"unique_rows": {rows},') == 1
    # A document that is right in its form, and says something else.
    path.write_text(text.replace(f'"unique_rows": {rows},', f'"unique_rows": {rows + 1},'))
    assert read_shard(tmp_path, plan, shard) is None
    assert GatePlan.from_json(json.dumps(vars(plan))) == plan


def _plan_options() -> dict[str, Any]:
    return {"rows": 4000, "widths": (9, 20), "seed": 0, "policy": Policy()}


def test_rounding_the_logits_first_is_a_surplus_or_fails() -> None:
    result = run_gate("standalone", "radix_bf16", rows=6000, widths=(9,))
    assert result.verdict.state == "FAIL"
    assert result.record["pooled"]["violations"] > 0


def test_k3_mini_rows_are_resampled_per_layer() -> None:
    result = run_gate("topk_sigmoid", "fused", "k3-mini", rows=3000, widths=(9, 20))
    assert [bank["rows"] for bank in result.record["banks"]] == [500] * 6
    assert all("resample" in bank["name"] for bank in result.record["banks"])


def test_a_bank_directory_is_read_to_its_end(tmp_path: Path) -> None:
    source = open_bank("normal:geometry=k2,rows=700,seed=5")
    blocks = [source.read(0, 700)]
    write_bank(tmp_path / "bank", source.header, source.weights, blocks)
    result = run_gate("standalone", "fused", str(tmp_path / "bank"), widths=(9, 20))
    assert result.record["pooled"]["observed"]["units"] == 700


def test_nonfinite_rows_are_judged_and_counted(tmp_path: Path) -> None:
    source = open_bank("special:geometry=k3,rows=200")
    result = run_gate("standalone", "fused", source.name, rows=200, widths=(9,))
    flags = result.record["pooled"]["input_flags"]
    assert flags["nonfinite_logits"] > 0
    assert result.record["pooled"]["plain_rows"] > 0


def test_a_certificate_replays() -> None:
    result = run_gate("standalone", "fused", "near_tie:geometry=k3,gap=1", rows=400, widths=(9,))
    certificate = result.swaps.to_pylist()[0]
    assert certificate["snippet"].startswith("neartie.replay_row(")
    replayed = eval(certificate["snippet"], {"neartie": neartie})
    assert replayed.row == certificate["row"]
    assert set(replayed.ids["baseline"][0]) - set(replayed.ids["candidate"][0]) == set(
        certificate["dropped"]
    )


def recorded_bank(folder: Path) -> Path:
    """2000 rows with outputs of two paths: one far swap, one id twice, one weight off by much."""
    source = open_bank("normal:geometry=k3,rows=2000,seed=5")
    block = source.read(0, 2000)
    assert block.logits is not None
    rules = SELECTS["standalone"], SELECTS["fused"]
    bias = source.weights["correction_bias"]
    outputs = [select(r, block.logits, bias, source.geometry, source.scoring) for r in rules]
    recorded: dict[str, Any] = dict(zip(("old", "new"), outputs, strict=True))
    ids, weights = recorded["new"]
    ids[700, 15] = int(np.argsort(block.logits[700])[400])
    ids[800, 3] = ids[800, 4]
    weights[900, 2] *= np.float32(1.01)
    header = replace(source.header, recorded_widths={"old": 16, "new": 16})
    with_outputs = replace(block, recorded=recorded)
    write_bank(folder, header, source.weights, [with_outputs])
    return folder


def test_recorded_outputs_are_compared_without_the_logits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = recorded_bank(tmp_path / "bank")
    touched: list[int] = []
    read_rows = StoredBank.read_rows

    def counted(self: StoredBank, rows: Any) -> Any:
        touched.extend(rows.tolist())
        return read_rows(self, rows)

    def refused(*_: Any) -> Any:
        raise AssertionError("whole rows were read")

    monkeypatch.setattr(StoredBank, "read_rows", counted)
    monkeypatch.setattr(StoredBank, "_read", refused)
    sides = ("recorded:name=old", "recorded:name=new")
    result = run_gate(*sides, str(place), shard_rows=512, sample_every=500)
    (width,) = result.record["widths"]
    assert width["width"] == 16
    assert width["counts"]["far_swap"] == 1
    assert width["counts"]["invalid"] == 1
    assert width["breaches"]["candidate"] == {"duplicate_id": 1}
    assert width["max_weight_ulp"] > 8
    assert sum(width["counts"].values()) == 2000
    assert {700, 800, 900} <= set(touched)
    assert len(touched) < 20
    named = [c["row"] for c in result.swaps.to_pylist() if c["set_class"] == "far_swap"]
    assert named == [700]
    assert result.verdict.state == "FAIL"


def test_recorded_sides_are_checked(tmp_path: Path) -> None:
    place = str(recorded_bank(tmp_path / "bank"))
    with pytest.raises(InputError, match="recorded=none, but should be one of new, old"):
        run_gate("recorded:name=none", "recorded:name=new", place)
    with pytest.raises(InputError, match="select=fused, but should be recorded"):
        run_gate("recorded:name=old", "fused", place)


def test_a_small_sample_is_held_against_the_gate() -> None:
    agrees = run_gate("standalone", "fused", **SMALL, sample=(0, 960))
    assert agrees.record["sample"]["contradicts"] is False
    against = run_gate("standalone", "fused", **SMALL, sample=(20, 960))
    assert against.record["sample"]["contradicts"] is True
    assert "contradicts the gate" in against.to_markdown()


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def status(*words: str) -> int:
        monkey = pytest.MonkeyPatch()
        monkey.setattr(sys, "argv", ["neartie", "gate", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        monkey.undo()
        return int(ended.value.code or 0)

    assert status("--rows", "2k", "--json", "--out", str(tmp_path / "out")) == 3
    record = json.loads(capsys.readouterr().out)
    assert record["kind"] == "gate"
    assert json.loads((tmp_path / "out" / "gate.json").read_text()) == record
    assert status("--rows", "2k", "--device", "cuda") == 3
    assert "NOT_RUN" in capsys.readouterr().out
    assert status("--rows", "2k", "--sample", "1") == 2
    assert "sample=1, but should be EVENTS/ROWS" in capsys.readouterr().err
    assert status("--baseline", "nothing") == 2


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rows": 0}, "rows=0"),
        ({"widths": (21,)}, "widths=21|width=21"),
        ({"widths": (9, 9)}, "each width once"),
        ({"workers": 0}, "workers=0"),
        ({"device": "tpu"}, "device=tpu"),
        ({"sample": (3, 2)}, "sample=3/2"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        run_gate("standalone", "fused", **options)
