"""The hunt finds what random rows miss, makes it small, and finds nothing in a clean pair."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rare_faults
from hypothesis import given, settings
from hypothesis import strategies as st
from wrapped_path import WrappedPath

import neartie
from neartie.audit import cli
from neartie.audit.hunt.arena import Arena
from neartie.audit.hunt.scene import Scene, SceneBank
from neartie.audit.hunt.strategies import STRATEGIES
from neartie.audit.policy import Policy
from neartie.banks.errors import EnvelopeError, InputError
from neartie.banks.geometry import Geometry, ScoringRule
from neartie.kernels.contract import Launch, Routed

LOWER_ID = Policy(tie_contract="lower_id")
SMALL = "8x0x64x8"
FAULTS = (*rare_faults.K3_FAULTS, rare_faults.HigherGroupAtTies)
Fault = type[rare_faults.RareFault]
Spoil = Callable[[Launch, Routed], None]


def hunted(fault: Fault, **options: Any) -> Any:
    grouped = fault is rare_faults.HigherGroupAtTies
    return neartie.hunt(
        "general:select=grouped" if grouped else "general",
        f"rare_faults:{fault.__name__}",
        geometry="deepseek-v3" if grouped else "mini",
        policy=LOWER_ID if "Higher" in fault.__name__ else None,
        **options,
    )


def spoiled(spoil: Spoil, **options: Any) -> Any:
    options = {"rows": 8000, "geometry": SMALL, "width": 4, **options}
    candidate = WrappedPath(spoil, "route:select=standalone")
    return neartie.hunt("general", candidate, **options)


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


def test_files_are_written_and_read_again(found: Mapping[str, Any], tmp_path: Path) -> None:
    result = found["FourStepsInOneShard"]
    files = result.write(tmp_path / "out")
    names = ["hunt.json", "witness-1.json", "test_witness_1.py"]
    assert [file.name for file in files][:3] == names
    assert neartie.explain_rows(files[1]).cases[0].facts["set_class"] == "far_swap"
    record = json.loads(files[0].read_text())
    assert record["exit_status"] == 1
    assert record["found"][0]["kind"] == "set:far_swap"
    compile(files[2].read_text(), str(files[2]), "exec")
    with pytest.raises(InputError, match="a new or empty directory"):
        result.write(tmp_path / "out")


def test_a_number_of_rows_repeats_exactly() -> None:
    def record(seed: int) -> Any:
        made = spoiled(second_for_last, seed=seed, only=["real", "blocks"], rows=2000).as_dict()
        del made["seconds"]
        for witness in made["found"]:
            del witness["found_after_seconds"]
        return made

    assert record(0) == record(0)
    assert record(0)["found"] != record(1)["found"]


def second_for_last(launch: Launch, out: Routed) -> None:
    """Where experts 0 and 1 are both chosen, the last slot is given to an expert that is not."""
    both = np.isin(out.ids, (0, 1)).sum(axis=2) == 2
    for rank, row in zip(*np.nonzero(both), strict=True):
        free = np.setdiff1d(np.arange(launch.geometry.experts), out.ids[rank, row])
        out.ids[rank, row, -1] = free[-1]


ROW = np.asarray([[3.0, 2.0, 1.0, 1.0, 0.0, -1.0]], np.float32)
"""Top 3 of 6; experts 2 and 3 tie at the boundary."""


def swapped(launch: Launch, out: Routed) -> None:
    out.ids[:, :, 2] = 3


def swapped_and_scaled(launch: Launch, out: Routed) -> None:
    swapped(launch, out)
    out.weights[:] *= np.float32(1.001)


def far(launch: Launch, out: Routed) -> None:
    out.ids[:, :, 0] = 4


def doubled(launch: Launch, out: Routed) -> None:
    out.weights[:] *= np.float32(2)


def one_step(launch: Launch, out: Routed) -> None:
    out.weights[:] = np.nextafter(out.weights, np.float32(2))


def reordered(launch: Launch, out: Routed) -> None:
    out.ids[:], out.weights[:] = out.ids[:, :, ::-1].copy(), out.weights[:, :, ::-1].copy()


def unwritten(launch: Launch, out: Routed) -> None:
    out.ids[:, 0, 0] = -0x5A5A5A5B


def no_number(launch: Launch, out: Routed) -> None:
    out.weights[:, 0, 0] = np.nan


@pytest.mark.parametrize(
    ("spoil", "kind", "policy"),
    [
        (swapped, None, Policy()),
        (swapped, "set:exact_tie", LOWER_ID),
        (swapped_and_scaled, "flag:wrong_sum+weights_not_from_ids", Policy()),
        (far, "set:far_swap", Policy()),
        (far, "weights", Policy(noise_abs=1.0)),
        (doubled, "weights:scaled", Policy()),
        (one_step, None, Policy()),
        (one_step, "weights:", Policy(weight_budget_ulp=0)),
        (reordered, None, Policy()),
        (unwritten, "breach:id_out_of_range+poison_survives", Policy()),
        (no_number, "breach:nonfinite_weight", Policy()),
    ],
)
def test_a_row_is_judged_as_an_audit_judges_it(
    spoil: Spoil, kind: str | None, policy: Policy
) -> None:
    faulty = WrappedPath(spoil, "route:select=standalone")
    found = neartie.check_rows(
        ROW, baseline="general", candidate=faulty, top_k=3, policy=policy
    ).differences
    if kind is None:
        assert found == ()
        return
    assert kind in found[0].kind
    assert found[0].faulty == "candidate"
    # The same breach, or the same fault, on both sides is no difference between them.
    both = neartie.check_rows(ROW, baseline=faulty, candidate=faulty, top_k=3, policy=policy)
    assert both.differences == ()


def test_the_faulty_side_is_named() -> None:
    faulty = WrappedPath(second_for_last, "route:select=standalone")
    result = neartie.hunt(faulty, "general", geometry=SMALL, rows=3000, width=4)
    assert result.found[0].difference.faulty == "baseline"
    both = neartie.hunt(faulty, faulty, geometry=SMALL, rows=3000, width=4)
    # Paths that share a fault do not differ: a hunt is no audit.
    assert both.exit_status == 0


def test_a_smaller_row_with_another_fault_is_not_taken() -> None:
    def two_faults(launch: Launch, out: Routed) -> None:
        second_for_last(launch, out)
        plain = (rare_faults.logits_of(launch) == 0).mean(axis=1) > 0.5
        out.ids[:, plain, 0] = out.ids[:, plain, 1]

    result = spoiled(two_faults, only=["real"])
    assert {witness.difference.kind for witness in result.found} == {"set:far_swap"}
    assert result.found[0].reproduced
    assert (result.found[0].scene.logits == 0).mean() <= 0.5


def test_ranks_that_disagree_are_found_where_the_set_is_a_tie() -> None:
    def third(launch: Launch, out: Routed) -> None:
        if launch.ranks == 4:
            out.weights[2, 0] = np.nextafter(out.weights[2, 0], np.float32(2))

    result = spoiled(third, ranks=4)
    assert result.stage == "shards"
    witness = result.found[0]
    assert witness.difference.kind == "rank_disagreement"
    assert (witness.difference.faulty, witness.scene.ranks) == ("candidate", 4)
    assert "rank_disagreement" in witness.explained["findings"]


def test_what_does_not_show_again_is_said() -> None:
    calls = 0

    def once(launch: Launch, out: Routed) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            out.ids[:, 0, 0] = out.ids[:, 0, 1]

    result = spoiled(once)
    assert result.found[0].difference.kind == "breach:duplicate_id"
    assert result.found[0].reproduced is False
    assert "did not show again" in result.text()
    # The case holds what was written then, not what a second run gives.
    assert result.found[0].explained["breaches_b"] == ["duplicate_id"]


def test_an_interrupt_keeps_what_was_found() -> None:
    calls = 0

    def stopped(launch: Launch, out: Routed) -> None:
        nonlocal calls
        calls += 1
        second_for_last(launch, out)
        if calls == 20:
            raise KeyboardInterrupt

    result = spoiled(stopped, keep_going=True)
    assert result.interrupted
    assert result.exit_status == 1
    assert result.found[0].reproduced
    assert "interrupted" in result.text()


def test_a_path_that_raises_is_not_run_and_no_finding() -> None:
    def finite_only(launch: Launch, out: Routed) -> None:
        if not np.isfinite(rare_faults.logits_of(launch)).all():
            raise RuntimeError("a number, please")

    some = spoiled(finite_only, only=["specials", "real"])
    assert some.exit_status == 0
    assert not some.could_not_run

    def never(launch: Launch, out: Routed) -> None:
        raise RuntimeError("a number, please")

    none = spoiled(never, rows=None, seconds=0.2)
    assert none.found == ()
    assert none.exit_status == 3
    assert "a number, please" in none.text()


def test_a_path_that_cannot_run_here_is_not_run() -> None:
    result = neartie.hunt("general:reduce=nccl", "route", geometry=SMALL, rows=100)
    assert result.exit_status == 3
    assert result.not_run
    assert "NOT RUN" in result.text()


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_makes_the_same_rows_by_the_same_seed(name: str) -> None:
    seen: list[list[bytes]] = [[], []]

    for run in seen:

        def keep(launch: Launch, out: Routed, run: list[bytes] = run) -> None:
            run.append(rare_faults.logits_of(launch).tobytes() + launch.weights.bias.tobytes())

        spoiled(keep, only=[name], rows=1500, geometry="deepseek-v3", width=3)
    assert seen[0] == seen[1]


def test_every_expert_is_a_winner_at_the_last_slot_in_one_pass() -> None:
    last: set[int] = set()

    def keep(launch: Launch, out: Routed) -> None:
        last.update(out.ids[0, :, -1].tolist())

    experts = 896
    spoiled(keep, only=["winners"], rows=experts, geometry="mini")
    assert last == set(range(experts))


def test_every_row_of_a_launch_holds_a_tie() -> None:
    hard: set[int] = set()

    def keep(launch: Launch, out: Routed) -> None:
        found = rare_faults.boundary(rare_faults.logits_of(launch), launch.weights.bias, 8)
        rows = np.flatnonzero((found.gap >= 0) & (found.gap <= 16))
        hard.update((rows % launch.width).tolist())

    spoiled(keep, only=["positions"], rows=300, width=12)
    assert hard == set(range(12))


@settings(max_examples=25)
@given(st.data())
def test_rows_that_are_not_looked_at_closely_are_alike(data: st.DataObject) -> None:
    """The quick look drops no row that the judgement would call different."""
    seed = data.draw(st.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    kinds = st.sampled_from(["swap", "weight", "nan", "id", "order", "nothing"])
    kind = data.draw(kinds)

    def spoil(launch: Launch, out: Routed) -> None:
        row, slot = int(rng.integers(0, 6)), int(rng.integers(0, 3))
        if kind == "swap":
            out.ids[:, row, slot] = rng.integers(0, 12)
        elif kind == "weight":
            steps = np.int32(rng.integers(-12, 13))
            out.weights.view(np.int32)[:, row, slot] += steps
        elif kind == "nan":
            out.weights[:, row, slot] = np.nan
        elif kind == "id":
            out.ids[:, row, slot] = rng.choice([-1, 12, 2**30])
        elif kind == "order":
            out.ids[:, row] = out.ids[:, row, ::-1]
            out.weights[:, row] = out.weights[:, row, ::-1]

    class All(Arena):
        def _unusual(self, a: Routed, b: Routed, rank: int) -> Any:
            return np.ones(a.ids.shape[1], np.bool_)

    scene = Scene(rng.integers(-2, 3, (6, 12)).astype(np.float32), np.zeros(12, np.float32), 6, 1)
    parts = (
        neartie.make_path("general"), WrappedPath(spoil, "route:select=standalone"),
        Geometry("g", 1, 0, 12, 3), ScoringRule(), Policy(),
    )  # fmt: skip
    state = rng.bit_generator.state
    quick = Arena(*parts).run(scene).differences
    rng.bit_generator.state = state
    assert quick == All(*parts).run(scene).differences


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 0}, "rows=0, but should be at least 1"),
        ({"seconds": 0.0}, "seconds=0.0"),
        ({"width": 21}, "width=21"),
        ({"ranks": 7}, "ranks=7"),
        ({"only": ["nothing"]}, "only=nothing, but should be one of random, "),
        ({"skip": list(STRATEGIES)}, "at least one"),
        ({"bank": "k3-mini/layer0"}, "left out where a bank is given"),
        ({"geometry": "8x0x1x1"}, "experts=1, but should be at least 2"),
    ],
)
def test_bad_input_is_one_error(options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        neartie.hunt("general", "route", **{"geometry": SMALL, **options})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("no_such_module:Path", "a module that imports"),
        ("rare_faults:NoSuchClass", "a module that imports"),
        ("rare_faults:K3_FAULTS", "a class or a factory"),
        ("rare_faults:Boundary", "a factory"),
        ("rare_faults:logits_of", "a factory"),
        ("general:reduce=nothing", "reduce=nothing"),
        ("nothing", "path=nothing"),
    ],
)
def test_a_path_that_is_none_is_one_error(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        neartie.hunt("general", spec, geometry=SMALL, rows=100)


def test_rows_that_a_path_refuses_are_no_pass() -> None:
    logits = np.zeros((1, 64), np.float32)
    with pytest.raises(EnvelopeError, match="groups"):
        neartie.check_rows(
            logits, baseline="general", candidate="route", top_k=8, groups=8, top_groups=4
        )
    with pytest.raises(InputError, match="bias"):
        neartie.check_rows(
            logits, np.zeros(3, np.float32), baseline="general", candidate="route", top_k=8
        )


def test_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["neartie", "hunt", *words])
        return cli.exit_status()

    budget, out = ("--geometry", SMALL, "--rows", "2k"), str(tmp_path / "found")
    assert run("general", "route", *budget, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert sum(one["rows"] for one in record["tried"]) == record["rows"] >= 2000
    assert record["command"] == "neartie hunt general route --geometry 8x0x64x8 --rows 2k --json"
    faulty = "rare_faults:CandidatesStartAtMinusOne"
    some = ("--only", "biases,real", "--tie-contract", "lower_id")
    assert run("general", faulty, "--rows", "4k", "--geometry", "mini", *some, "--out", out) == 1
    shown = capsys.readouterr().out
    assert "wrong by the reference: candidate" in shown
    assert "witness-1.json" in shown
    assert run("general", "route", *budget, "--out", out) == 2
    assert run("general", "route", *budget, "--tie-contract", "any") == 2
    assert run("general", "general:reduce=nccl", *budget) == 3
    assert "NOT RUN" in capsys.readouterr().out
