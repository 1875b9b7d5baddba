"""Two real processes over gloo record one model: one bank, or the rank that disagrees."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_moe import HIDDEN, toy_input

import neartie
from neartie.banks.recording.capture import to_numpy

SUPPORT = Path(__file__).parent.parent / "support"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """The directory, and what each rank says of every work."""
    place = tmp_path_factory.mktemp("ranks")
    script = str(SUPPORT / "record_ranks.py")
    # The processes inherit where the package is; the script's folder is theirs by themselves.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, script, str(rank), str(place)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        ended = [process.communicate(timeout=180) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, error) in zip(processes, ended, strict=True):
        assert process.returncode == 0, error
    return place, [json.loads(printed) for printed, _ in ended]


def test_ranks_that_agree_become_one_bank(told: tuple[Path, list[Any]]) -> None:
    place, ranks = told
    bank = neartie.open_bank(place / "agree" / "layer3")
    assert [rank["agree"]["digests"]["agree/layer3"] for rank in ranks] == [bank.digest] * 2
    assert [rank["agree"]["left"] for rank in ranks] == [False, False]
    assert bank.rows == 20
    assert bank.provenance["recorded_ranks"] == {"ranks": 2, "parallel": "tensor"}
    assert (bank.read(0, 20).keys["rank"] == -1).all()


def test_a_rank_that_disagrees_is_reported_everywhere(told: tuple[Path, list[Any]]) -> None:
    place, ranks = told
    assert ranks[0]["disagree"] == ranks[1]["disagree"]
    assert ranks[0]["disagree"]["found"] == [
        "ranks 0 and 1 differ, layer 3, step 1, row 6: weights"
    ]
    words = "ranks 0 and 1 differ, layer 3, step 1, row 6: weights=other bits"
    assert words in ranks[0]["disagree"]["error"]
    assert not (place / "disagree").exists()
    # The shards stay: what disagreed can be looked at, and every rank says where.
    for rank in ranks:
        assert rank["disagree"]["notes"] == [
            f"{place / 'disagree.ranks'} keeps the shards rank0, rank1 of 2: with all of them, "
            f"neartie bank merge-ranks {place / 'disagree.ranks'} {place / 'disagree'} makes the "
            f"banks; else remove {place / 'disagree.ranks'} before the next recording there"
        ]
    assert "an earlier recording left it; neartie bank merge-ranks" in ranks[1]["disagree"]["again"]
    assert (place / "disagree.ranks" / "rank1" / "shard.json").is_file()


def test_rows_of_each_rank_stand_in_one_bank(told: tuple[Path, list[Any]]) -> None:
    place, ranks = told
    assert [rank["own_rows"]["rows"] for rank in ranks] == [[4, 4], [6, 6]]
    block = neartie.open_bank(place / "own_rows" / "layer1").read(0, 10)
    assert block.keys["rank"].tolist() == [0] * 4 + [1] * 6
    expected = [toy_input(10 + rank, sequence=2 + rank).reshape(-1, HIDDEN) for rank in range(2)]
    assert block.hidden is not None
    assert (block.hidden == np.concatenate([to_numpy(rows) for rows in expected])).all()


def test_no_rank_waits_for_one_that_failed(told: tuple[Path, list[Any]]) -> None:
    place, ranks = told
    changed = "correction_bias=changed, but should be the same bits"
    assert changed in ranks[1]["one_fails"]["error"]
    assert ranks[0]["one_fails"]["error"].startswith(f"rank 1={changed}")
    assert not (place / "one_fails").exists()
    # Rank 0's shard was complete: without the other's it is of no use.
    assert not (place / "one_fails.ranks").exists()


def test_a_rank_that_leaves_is_told_of_in_one_line(told: tuple[Path, list[Any]]) -> None:
    place, ranks = told
    assert ranks[1]["one_leaves"]["error"] == "out of patience"
    left = place / "one_leaves.ranks"
    words = ranks[0]["one_leaves"]["error"]
    assert ranks[0]["one_leaves"]["type"] == "RecordingError"
    assert words.startswith("rank 0 lost another rank, which ended or does not answer: ")
    assert f"; {left} keeps the shards rank0 of 2: with all of them, neartie bank" in words
    assert f"else remove {left} before the next recording there" in words
    assert "\n" not in words
    assert [path.name for path in left.iterdir()] == ["rank0"]
