"""What a run will take, told before it starts: counts are exact, times and memory are a model."""

import json
from typing import Any

import pytest

from neartie.audit.cli import main
from neartie.audit.cost.expected import makespan
from neartie.audit.gate.plan import MOST_SHARDS
from neartie.audit.gate.run import plan_gate, run_gate
from neartie.audit.policy import Policy
from neartie.audit.run import plan_audit
from neartie.banks.errors import InputError
from neartie.banks.open import open_bank
from neartie.banks.write import write_bank

SMALL: dict[str, Any] = {"rows": 6000, "widths": (9, 20), "shard_rows": 1000}


def test_counts_are_those_of_the_run() -> None:
    source = "normal:geometry=mini"
    told = plan_gate("standalone", "fused", source, **SMALL).asked
    record = run_gate("standalone", "fused", source, **SMALL).record
    assert told.rows == record["pooled"]["observed"]["units"] == 6000
    assert told.shards == record["plan"]["shards"] == 6
    block = open_bank("normal:geometry=mini,rows=1").read(0, 1)
    assert block.logits is not None
    keys = sum(values.nbytes for values in block.keys.values())
    assert (told.read_bytes, told.made_bytes) == (0, 6000 * (block.logits.nbytes + keys))


def test_only_the_outputs_of_a_recorded_bank_are_read(tmp_path: Any) -> None:
    bank = open_bank("normal:geometry=mini,rows=500")
    write_bank(tmp_path / "bank", bank.header, bank.weights, [bank.read(0, 500)])
    told = plan_gate("standalone", "fused", str(tmp_path / "bank"), rows=None, widths=(9,))
    assert told.asked.made_bytes == 0
    assert told.asked.read_bytes >= 500 * 896 * 4
    assert "page cache" in told.text()


def test_more_rows_take_more_time_and_no_more_memory() -> None:
    told = plan_gate("standalone", "fused", "normal:geometry=k3", workers=8)
    small, (large, largest) = told.asked, told.larger
    assert (large.rows, largest.rows) == (10**9, 10**12)
    assert small.seconds < large.seconds < largest.seconds
    # 1000 times the rows, but for starts, merges and the smaller share that is checked.
    assert 900 < largest.seconds / large.seconds < 1000
    assert largest.shards <= MOST_SHARDS + 4
    assert small.worker_bytes == largest.worker_bytes
    assert largest.driver_bytes == large.driver_bytes < 1 << 30


def test_twice_the_workers_take_half_the_time_of_the_rows() -> None:
    options: dict[str, Any] = {"rows": 10**9, "shard_rows": 1 << 16}
    one, two = (
        plan_gate("standalone", "fused", "normal:geometry=k3", workers=n, **options).asked
        for n in (4, 8)
    )
    assert one.shards == two.shards
    assert 1.9 < one.seconds / two.seconds < 2.0
    assert makespan([3, 3, 1, 1], 2) == 4
    assert makespan([1, 1, 3], 2) == 4
    assert makespan([], 2) == 0


def test_an_audit_tells_its_gate_or_why_there_is_none() -> None:
    told = plan_audit("k3-mini/layer0", rows=(9, 20))
    assert told.gate is not None
    assert told.gate.rows > 100_000
    assert told.asked.rows == open_bank("k3-mini/layer0").rows
    none = plan_audit("near_tie:geometry=mini,rows=64", rows=(9,))
    assert none.gate is None
    assert any(note.startswith("no gate: no bank bounds a rate") for note in none.notes)
    loose = plan_audit("gaussian:geometry=mini", rows=(9,), policy=Policy(set_rate=0.9))
    assert any("own rows bound" in note for note in loose.notes)


@pytest.mark.parametrize("command", [("gate",), ("audit", "k3-mini/layer0")])
def test_the_command_line_tells_and_runs_nothing(
    command: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def status(*words: str) -> Any:
        monkeypatch.setattr("sys.argv", ["neartie", *command, *words])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code

    for run in ("neartie.audit.gate.run.run_plan", "neartie.audit.run._run_banks"):
        monkeypatch.setattr(run, None)
    assert status("--plan-only", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["kind"] == command[0]
    assert [found["rows"] for found in record["larger"]] == [10**9, 10**12]
    assert status("--plan-only") == 0
    text = capsys.readouterr().out
    assert "nothing was run" in text
    assert "1e12 rows" in text
    assert status("--plan-only", "--workers", "0") == 2
    assert "workers=0, but should be at least 1" in capsys.readouterr().err


def test_a_gpu_need_not_be_here() -> None:
    told = plan_gate("standalone", "fused", "normal:geometry=k3", device="cuda", workers=8)
    assert told.asked.seconds < plan_gate("standalone", "fused", workers=8).larger[0].seconds
    with pytest.raises(InputError, match="device=tpu"):
        plan_gate("standalone", "fused", device="tpu")
