"""``neartie audit --launch 2`` on a CPU: two gloo processes, and what a failing one does."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rank_faults import HANGING, command_with, neartie_with

from neartie.audit.evidence.verify import verify_evidence
from neartie.audit.launch.audit import check_launch
from neartie.banks.errors import InputError
from neartie.kernels.ranks.group import why_not
from neartie.kernels.ranks.spec import parse_rank_spec

Launch = Callable[..., subprocess.CompletedProcess[str]]
BANK = "gaussian:geometry=mini,rows=21,seed=3"
AUDIT = ("audit", BANK, "--no-gate", "--rows", "9,20")


def test_real_ranks_give_the_bits_of_ranks_in_one_process(launch: Launch, tmp_path: Path) -> None:
    """gloo adds two partials as every schedule does, and the route path only copies."""
    launched = neartie_with("none", *AUDIT, "--launch", "2", "--out", str(tmp_path / "ranks"))
    alone = launch("none", *AUDIT, "--ranks", "2", "--out", str(tmp_path / "alone"))
    assert (launched.returncode, alone.returncode) == (3, 3), launched.stderr + alone.stderr
    for name in ("values", "swaps", "histograms"):
        mine, other = (pq.read_table(tmp_path / d / f"{name}.parquet") for d in ("ranks", "alone"))
        assert mine.num_rows == other.num_rows
        assert mine.equals(other)
    record = json.loads((tmp_path / "ranks" / "audit.json").read_text())
    assert record["launch"]["ranks"] == 2
    assert record["launch"]["backend"] == "gloo"
    assert not record["findings"]
    assert record["schedule"]["declared"] == "gloo against gather"
    assert record["schedule"]["nearest"] == "one_shot_fp32 against gather"
    assert record["schedule"]["fits"]
    report = (tmp_path / "ranks" / "report.md").read_text()
    repeated = verify_evidence(tmp_path / "ranks", rerun=True)
    assert repeated.state == "NOT_RUN", repeated.problems
    assert "the paths ran on 2 real ranks" in repeated.not_run[0]
    assert r"it shows one\_shot\_fp32 against gather" in report


def test_a_rank_that_holds_other_bits_fails_the_audit(launch: Launch) -> None:
    done = launch("differs", *AUDIT, "--launch", "2", "--json")
    assert done.returncode == 1, done.stderr
    record = json.loads(done.stdout)
    found = [f for f in record["findings"] if f["name"] == "rank_disagreement"]
    assert {f["path"].split(":")[0] for f in found} == {"baseline general", "candidate route"}
    assert all("weights of rank 1 differs from rank 0" in f["text"] for f in found)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("raises", "ValueError: planted in rank 1 (rank_faults.py"),
        ("killed", "rank 1 of 2=Signal 9 (SIGKILL)"),
        ("hangs", "lost another one"),
    ],
)
def test_a_failed_rank_ends_the_audit_with_one_error(
    launch: Launch, fault: Any, told: Any, tmp_path: Path
) -> None:
    start = time.monotonic()
    words = ("--launch", "2", "--rank-timeout", "5", "--out", str(tmp_path / "evidence"))
    done = launch(fault, *AUDIT, *words)
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if line.startswith("neartie:")]
    assert len(lines) == 1, done.stderr
    assert told in lines[0]
    assert lines[0].endswith("but should be a rank that answers [--launch]")
    assert not (tmp_path / "evidence").exists()
    # Start-up, the timeout of 5 s, and the end of the others; nobody waits for the hour's sleep.
    assert time.monotonic() - start < 110


def test_an_interrupt_ends_every_rank_and_is_told_once(tmp_path: Path) -> None:
    mark = tmp_path / "hanging"
    words = ("--launch", "2", "--rank-timeout", "600", "--out", str(tmp_path / "evidence"))
    process = subprocess.Popen(
        command_with("hangs", *AUDIT, *words),
        env={**os.environ, HANGING: str(mark)},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not mark.exists():
            assert process.poll() is None
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    lines = [line for line in told.splitlines() if line.startswith("neartie:")]
    assert lines == ["neartie: interrupted; nothing was written"]
    assert not (tmp_path / "evidence").exists()


@pytest.mark.parametrize(
    ("size", "ranks", "device", "timeout_s", "told"),
    [
        (1, None, "cpu", 60.0, "launch=1, but should be 2..16 [--launch]"),
        (2, 4, "cpu", 60.0, "ranks=4, but should be 2, as launched, or left out [--ranks]"),
        (2, 2, "tpu", 60.0, "device=tpu, but should be one of cpu, cuda [--device]"),
        (2, 2, "cpu", 0.0, "rank_timeout=0.0, but should be above 0 and at most 3600"),
        (2, 2, "cpu", float("nan"), "rank_timeout=nan, but should be above 0 and at most 3600"),
    ],
)
def test_a_launch_that_cannot_be_is_refused(
    size: Any, ranks: Any, device: Any, timeout_s: Any, told: Any
) -> None:
    with pytest.raises(InputError) as error:
        check_launch(size, ranks, device, timeout_s)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("spec", "device", "told"),
    [
        ("recorded", "cpu", "path=recorded, but should be one of general, route on real ranks"),
        ("route:transport=push", "cpu", "transport=push, but should be one of gloo [path route]"),
        ("route:transport=gloo", "cuda", "transport=gloo, but should be one of push, pull, nccl"),
        ("general:reduce=tree_bf16", "cuda", "reduce=tree_bf16, but should be one of nccl"),
        ("route:transport=nccl,row_blocks=2", "cuda", "left out unless transport is push or pull"),
        ("route:select=fused,fused_rows=4", "cuda", "left out unless select=auto"),
        ("general:select=hf", "cuda", "select=hf, but should be one of fused, standalone"),
    ],
)
def test_a_path_that_no_real_rank_has_is_refused(spec: Any, device: Any, told: Any) -> None:
    with pytest.raises(InputError) as error:
        parse_rank_spec(spec, device)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("general", "general:reduce=nccl"),
        ("route", "route:transport=push"),
        ("route:row_blocks=1,transport=pull", "route:transport=pull"),
        ("route:row_blocks=2", "route:row_blocks=2,transport=push"),
    ],
)
def test_the_exchange_is_always_in_a_paths_name(spec: Any, name: Any) -> None:
    assert parse_rank_spec(spec, "cuda").name == name
    assert parse_rank_spec(name, "cuda").name == name


def test_bad_input_of_a_launched_audit_is_told_once(launch: Launch) -> None:
    done = launch("none", "audit", "gaussian:geometry=mini,rows=0", "--launch", "2")
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if line.startswith("neartie:")]
    assert len(lines) == 1, done.stderr
    assert "rows=0" in lines[0]


def test_without_devices_a_launch_is_not_run(launch: Launch) -> None:
    if why_not("cuda", 16) is None:
        pytest.skip("this machine has 16 CUDA devices")
    done = launch("none", *AUDIT, "--launch", "16", "--device", "cuda", "--json")
    assert done.returncode == 3, done.stderr
    record = json.loads(done.stdout)
    assert record["verdict"]["state"] == "NOT_RUN"
    assert not record["launch"]["ran"]
    assert {item["ran"] for item in record["coverage"]} == {False}
    assert all("each of 16 ranks needs one" in item["reason"] for item in record["coverage"])
