"""The hunt finds what random rows miss, makes it small, and finds nothing in a clean pair."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rare_faults
from hunting import LOWER_ID, SMALL
from wrapped_path import WrappedPath

import neartie
from neartie.audit.hunt.pytest_text import witness_name
from neartie.audit.hunt.scene import Scene, SceneBank
from neartie.audit.hunt.strategies import STRATEGIES
from neartie.banks.errors import InputError
from neartie.banks.geometry import Geometry, ScoringRule
from neartie.kernels.contract import Launch, Routed

FAULTS = (*rare_faults.K3_FAULTS, rare_faults.HigherGroupAtTies)
Fault = type[rare_faults.RareFault]


def hunted(fault: Fault, **options: Any) -> Any:
    grouped = fault is rare_faults.HigherGroupAtTies
    return neartie.hunt(
        "general:select=grouped" if grouped else "general",
        f"rare_faults:{fault.__name__}",
        geometry="deepseek-v3" if grouped else "mini",
        policy=LOWER_ID if "Higher" in fault.__name__ else None,
        **options,
    )


@pytest.fixture(scope="module")
def found() -> Mapping[str, Any]:
    """The first round of each fault; strategies that find none of them are left out for time."""
    skip = ["random", "real", "tie_groups", "specials", "positions", "mutations", "edges"]
    return {fault.__name__: hunted(fault, rows=60_000, skip=skip) for fault in FAULTS}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_rare_fault_is_found(found: Mapping[str, Any], fault: Fault) -> None:
    result = found[fault.__name__]
    assert result.exit_status == 1
    assert result.rows < 60_000
    assert result.found[0].difference.faulty == "candidate"
    assert result.found[0].reproduced


@pytest.mark.parametrize("fault", FAULTS)
def test_a_witness_is_small_and_explain_gives_its_class(
    found: Mapping[str, Any], fault: Fault
) -> None:
    result = found[fault.__name__]
    witness = result.found[0]
    launch = 2 if fault is rare_faults.TieInTheLastRowOfALaunch else 1
    assert (witness.scene.rows, witness.scene.width, witness.scene.ranks) == (launch, launch, 1)
    _, counts = np.unique(witness.scene.logits, return_counts=True)
    # The winners, some neighbours of the boundary, and one logit for everybody else.
    assert counts.max() >= witness.scene.logits.size - 64
    if fault is rare_faults.SaturatedInBf16:
        # Sixteen winners, the next, and zeros.
        assert np.count_nonzero(witness.scene.logits) == 17
        assert not witness.scene.bias.any()
    (case,) = neartie.explain_rows(json.dumps([witness.case]), result.policy).cases
    assert case.verdict in ("fail", "invalid")
    assert case.facts["set_class"] == witness.difference.set_class
    assert case.facts["unknown_keys"] == []


@pytest.mark.parametrize("fault", [rare_faults.SaturatedInBf16, rare_faults.HigherGroupAtTies])
def test_random_rows_miss_it(fault: Fault) -> None:
    result = hunted(fault, rows=15_000, only=["random"])
    assert result.exit_status == 0
    assert result.rows >= 15_000


@pytest.mark.parametrize(
    ("baseline", "candidate", "options"),
    [
        ("general", "route", {"geometry": "mini", "rows": 25_000}),
        ("general", "route:select=standalone", {"bank": "k3-mini/layer4", "rows": 25_000}),
        ("general:select=grouped", "route:select=grouped", {"geometry": "deepseek-v3"}),
        ("general", "route", {"geometry": SMALL, "ranks": 4, "width": 9}),
        ("general:select=hf", "route:select=hf", {"geometry": "8x0x5x4", "width": 1}),
        ("general:select=hf", "route:select=hf", {"geometry": "8x0x2x2", "width": 20}),
        ("general:select=ascending", "route:select=ascending", {"geometry": "8x0x9x1"}),
    ],
)
def test_a_clean_pair_has_nothing_outside_the_window(
    baseline: str, candidate: str, options: Any
) -> None:
    result = neartie.hunt(baseline, candidate, **{"rows": 15_000, **options})
    assert result.exit_status == 0, result.text()
    assert all(one.scenes or one.idle for one in result.tried)
    assert {one.name for one in result.tried} == set(STRATEGIES)


@pytest.mark.parametrize("function", ["softmax", "sqrtsoftplus", "identity"])
def test_other_score_functions_are_searched(function: Any) -> None:
    geometry, rule = Geometry("small", 1, 0, 32, 4), ScoringRule(function, scale=2.5)
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((40, 32)).astype(np.float32)
    scene = Scene(rows, np.zeros(32, np.float32), 4, 1)
    bank = SceneBank(scene, geometry, rule, sharded=False)
    options: Any = {"bank": bank, "rows": 12_000, "width": 4}
    clean = neartie.hunt("general:select=hf", "route:select=hf", **options)
    assert clean.exit_status == 0, clean.text()
    idle = {one.name for one in clean.tried if one.idle}
    assert idle == ({"groups", "binades"} if function == "softmax" else {"groups"})
    # A tie at the boundary, within a few steps, is what this fault needs.
    faulty = WrappedPath(last_two_close, "route:select=hf")
    result = neartie.hunt("general:select=hf", faulty, **options)
    assert result.exit_status == 1
    text = result.test_of(result.found[0])
    assert f'"function": "{function}"' in text


def last_two_close(launch: Launch, out: Routed) -> None:
    """Where the last two weights are 1 to 3 steps apart, the last expert becomes another."""
    steps = np.abs(np.diff(out.weights.view(np.int32)[:, :, -2:], axis=2))[:, :, 0]
    for rank, row in zip(*np.nonzero((steps >= 1) & (steps <= 3)), strict=True):
        free = np.setdiff1d(np.arange(launch.geometry.experts), out.ids[rank, row])
        out.ids[rank, row, -1] = free[0]


def test_a_witness_as_a_pytest_file_fails_on_the_fault_and_passes_on_the_clean_pair(
    found: Mapping[str, Any], tmp_path: Path
) -> None:
    for fault in ("SaturatedInBf16", "TieInTheLastRowOfALaunch", "HigherGroupAtTies"):
        result = found[fault]
        text = result.test_of(result.found[0])
        (tmp_path / f"test_{fault}_faulty.py").write_text(text)
        clean = "route:select=grouped" if "Group" in fault else "route:select=standalone"
        line = f'CANDIDATE = "rare_faults:{fault}"'
        assert line in text
        (tmp_path / f"test_{fault}_clean.py").write_text(
            text.replace(line, f'CANDIDATE = "{clean}"')
        )
    support = Path(rare_faults.__file__).parent
    place = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(support)])
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", "-rfp", "-p", "no:cacheprovider", "."],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": place},
    )  # fmt: skip
    assert "3 failed, 3 passed" in done.stdout, done.stdout + done.stderr
    for line in done.stdout.splitlines():
        assert not line.startswith("FAILED") or "_faulty.py" in line
        assert not line.startswith("PASSED") or "_clean.py" in line
    assert "wrong by the reference: candidate" in done.stdout


def test_files_of_several_hunts_stand_in_one_directory(
    found: Mapping[str, Any], tmp_path: Path
) -> None:
    """Neither their modules nor their tests have a name in common."""
    texts: dict[str, str] = {}
    for name, result in found.items():
        for file in result.write(tmp_path / name):
            if file.suffix == ".py":
                assert file.stem not in texts
                texts[file.stem] = file.read_text()
    assert len(texts) >= len(found)
    tests = [re.findall(r"^def (test_\w+)\(", text, re.MULTILINE) for text in texts.values()]
    assert all(len(names) == 1 for names in tests)
    assert len({names[0] for names in tests}) == len(tests)
    # The same rows against another path are another test.
    result = found["FourStepsInOneShard"]
    names = {witness_name(result.found[0], "general", other) for other in ("route", "route:x=1")}
    assert len(names) == 2
    assert all(re.fullmatch(r"route(_x_1)?_[0-9a-f]{8}", name) for name in names)


def test_a_slot_counts_from_0_and_causes_are_those_of_explain(found: Mapping[str, Any]) -> None:
    result = found["SaturatedInBf16"]
    witness = result.found[0]
    row = witness.case["a"]["ids"][0]
    assert witness.difference.slots == (row.index(witness.difference.dropped[0]),)
    assert f"(slot {witness.difference.slots[0]})" in result.text()
    (case,) = neartie.explain_rows([witness.case], result.policy).cases
    assert f"(slot {witness.difference.slots[0]})" in " ".join(case.reasons)
    table = [one["name"] for one in case.facts["explanations"]["b"]["hypotheses"]]
    assert list(witness.hypotheses[: len(table)]) == table
    assert set(case.facts["hypotheses_b"]) <= set(witness.hypotheses)


def test_files_are_written_and_read_again(found: Mapping[str, Any], tmp_path: Path) -> None:
    result = found["FourStepsInOneShard"]
    files = result.write(tmp_path / "out")
    assert [file.name for file in files][:2] == ["hunt.json", "witness-1.json"]
    assert files[2].name.startswith("test_witness_1_rare_faults_FourStepsInOneShard_")
    assert neartie.explain_rows(files[1]).cases[0].facts["set_class"] == "far_swap"
    record = json.loads(files[0].read_text())
    assert record["exit_status"] == 1
    assert record["found"][0]["kind"] == "set:far_swap"
    compile(files[2].read_text(), str(files[2]), "exec")
    with pytest.raises(InputError, match="a new or empty directory"):
        result.write(tmp_path / "out")
