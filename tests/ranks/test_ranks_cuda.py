"""Real ranks on two GPUs, through the command line: transports, NCCL, and the checked bench."""

import json
import subprocess
import sys
from typing import Any

import pytest

from neartie.kernels.cuda import facts
from neartie.kernels.ranks.group import why_not

REASON = facts.why_not_real() or why_not("cuda", 2)
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(REASON is not None, reason=str(REASON))]

BANK = "gaussian:geometry=mini,rows=21,seed=3"


def neartie(*words: str) -> tuple[int, Any]:
    command = [sys.executable, "-P", "-m", "neartie", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout, done.stderr[-3000:]
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize(
    "other", ["transport=pull", "transport=nccl", "transport=pull,row_blocks=2"]
)
def test_transports_agree_bit_for_bit(other: Any) -> None:
    sides = ("--baseline", "route:transport=push,row_blocks=2", "--candidate", f"route:{other}")
    _, record = neartie(
        "audit", BANK, "--launch", "2", "--device", "cuda", "--no-gate", "--rows", "1,9,20", *sides
    )
    assert record["provisional_class"] == "BITWISE"
    # cuBLAS may give a row other logits at another width, in both paths alike.
    assert {finding["name"] for finding in record["findings"]} <= {"width_dependent"}
    assert record["launch"]["backend"] == "nccl"


def test_nccl_shows_one_rounding_of_two_partials() -> None:
    _, record = neartie(
        "audit", BANK, "--launch", "2", "--device", "cuda", "--no-gate", "--rows", "9,20"
    )
    fit = record["schedule"]
    assert fit["declared"] == "nccl against gather"
    assert fit["nearest"] == "one_shot_fp32 against gather"
    assert fit["fits"]
    names = {finding["name"] for finding in record["findings"]}
    assert "rank_disagreement" not in names


def test_every_row_of_a_bench_is_checked_and_measured() -> None:
    status, record = neartie("bench", "--launch", "2", "--geometry", "mini", "--rows", "9")
    assert status == 0
    assert {row["state"] for row in record["rows"]} == {"MEASURED"}
    assert all(row["candidate_us"]["median_us"] > 0 for row in record["rows"])
