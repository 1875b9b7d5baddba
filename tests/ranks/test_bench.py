"""``neartie bench`` on two gloo processes: the method, and no time for an arm that is wrong."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neartie.audit.bench.plan import make_bench
from neartie.audit.bench.run import WHAT
from neartie.banks.errors import InputError
from neartie.kernels.ranks.group import why_not

Launch = Callable[..., subprocess.CompletedProcess[str]]
CPU = ("bench", "--device", "cpu", "--launch", "2", "--geometry", "mini", "--steps", "2")


def test_every_case_is_checked_and_timed(launch: Launch, tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    done = launch("none", *CPU, "--rows", "9", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert WHAT in done.stdout
    assert "says nothing about a GPU" in done.stdout
    record = json.loads(out.read_text())
    exchange, select = record["rows"]
    assert (exchange["baseline"], exchange["candidate"]) == (
        "general:reduce=gloo",
        "route:transport=gloo",
    )
    assert (select["baseline"], select["candidate"]) == ("select:topk_sigmoid", "select:standalone")
    for row in record["rows"]:
        assert row["state"] == "MEASURED"
        # A B B A until each arm has at least 5 blocks: 6 of 200.
        assert row["baseline_us"]["samples"] == row["candidate_us"]["samples"] == 1200
        assert row["checked_steps"] == 24
        for side in ("baseline_us", "candidate_us"):
            assert 0 < row[side]["low_us"] <= row[side]["median_us"] <= row[side]["high_us"]
        saved = row["baseline_us"]["median_us"] - row["candidate_us"]["median_us"]
        assert row["saved_us"] == pytest.approx(saved)
    assert len(record["machine"]["devices"]) == 2


@pytest.mark.parametrize(
    ("fault", "arm", "told"),
    [
        ("stale_gather", "baseline", "logits are not the shards"),
        ("wrong_sum", "baseline", "latent is not the sum"),
    ],
)
def test_a_wrong_arm_has_no_time(launch: Launch, fault: Any, arm: Any, told: Any) -> None:
    done = launch(fault, *CPU, "--rows", "1", "--json")
    assert done.returncode == 1, done.stderr
    exchange = json.loads(done.stdout)["rows"][0]
    assert exchange["state"] == "REFUSED"
    assert f"rank 1: {arm}, step 0: {told}" in exchange["reason"]
    assert "baseline_us" not in exchange
    assert "saved_us" not in exchange


def test_without_devices_no_time_is_told(launch: Launch) -> None:
    if why_not("cuda", 16) is None:
        pytest.skip("this machine has 16 CUDA devices")
    done = launch("none", "bench", "--launch", "16", "--rows", "9,20")
    assert done.returncode == 3, done.stderr
    lines = [line for line in done.stdout.splitlines() if " NOT_RUN " in line]
    assert len(lines) == 12
    assert "each of 16 ranks needs one" in done.stdout


def test_one_rank_times_its_select_alone() -> None:
    cases = make_bench(ranks=1, device="cpu", geometry="mini", widths=[9]).cases
    exchange, select = cases
    assert exchange.reason is not None
    assert exchange.reason.startswith("one rank has nobody to exchange with")
    assert select.reason is None


def test_the_cases_are_every_transport_and_row_block() -> None:
    cases = make_bench(ranks=2, widths=[8, 20]).cases
    routes = [case.candidate for case in cases if case.width == 8]
    assert routes == [
        "route:transport=push",
        "route:row_blocks=2,transport=push",
        "route:transport=pull",
        "route:row_blocks=2,transport=pull",
        "route:transport=nccl",
        "select:fused",
    ]
    assert cases[-1].candidate == "select:standalone"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"replays": 199}, "replays=199, but should be at least 200 [bench]"),
        ({"blocks": 4}, "blocks=4, but should be at least 5 [bench]"),
        ({"steps": 1}, "steps=1, but should be at least 2 [bench]"),
        ({"widths": [21]}, "width=21, but should be 1..20 [bench]"),
        ({"widths": [9, 9]}, "each width once"),
        ({"geometry": "k2"}, "geometry=k2, but should be one with a latent projection [bench]"),
        ({"transports": ["carrier_pigeon"]}, "transport=carrier_pigeon, but should be one of push"),
        ({"ranks": 3}, "ranks=3, but should be a divisor of hidden 7168 [k3]"),
        ({"row_blocks": [3]}, "row_blocks=3, but should be one of 1, 2"),
    ],
)
def test_a_bench_that_cannot_be_is_refused(change: Any, told: Any) -> None:
    with pytest.raises(InputError) as error:
        make_bench(**change)
    assert told in str(error.value)
