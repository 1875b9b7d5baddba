"""How a hunt runs: seeds, budgets, interrupts, paths that fail, coverage, bad input."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rare_faults
from hunting import SMALL, second_for_last, spoiled
from wrapped_path import WrappedPath

import neartie
from neartie.audit import cli
from neartie.audit.hunt.strategies import STRATEGIES
from neartie.banks.errors import InputError
from neartie.kernels.contract import Launch, Routed


def test_a_number_of_rows_repeats_exactly() -> None:
    def record(seed: int) -> Any:
        made = spoiled(second_for_last, seed=seed, only=["real", "blocks"], rows=2000).as_dict()
        del made["seconds"]
        for witness in made["found"]:
            del witness["found_after_seconds"]
        return made

    assert record(0) == record(0)
    assert record(0)["found"] != record(1)["found"]


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
        ("no_such_module:Path", "module:factory that can be imported"),
        ("rare_faults:NoSuchClass", "module:factory that can be imported"),
        ("rare_faults:K3_FAULTS", "a factory"),
        ("rare_faults:Boundary", "a factory"),
        ("rare_faults:logits_of", "a factory"),
        ("general:reduce=nothing", "reduce=nothing"),
        ("nothing", "path=nothing"),
    ],
)
def test_a_path_that_is_none_is_one_error(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        neartie.hunt("general", spec, geometry=SMALL, rows=100)


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


@pytest.mark.parametrize("reason", [0, False, "", " ", b"no", ["no GPU"]])
def test_a_path_that_does_not_say_whether_it_runs_is_refused(reason: Any) -> None:
    class Unclear(WrappedPath):
        def unavailable(self) -> Any:
            return reason

    words = r"unavailable\(\)=.*, but should be None where the path can run here, or a text"
    with pytest.raises(InputError, match=words):
        neartie.hunt("general", Unclear(name="unclear"), geometry=SMALL, rows=100)
    with pytest.raises(InputError, match=words):
        neartie.run_audit(
            "gaussian:geometry=mini,rows=9", candidate=Unclear(name="unclear"), rows=[9], ranks=1,
            gate=False,
        )  # fmt: skip


class Raises(WrappedPath):
    def run(self, launch: Any, out: Any) -> None:
        raise RuntimeError("x\nverdict  PASS\x1b[31m")


@pytest.mark.parametrize("budget", [{"rows": 400}, {"rows": 400, "only": ["random"]}])
def test_a_path_that_always_raises_ends_the_hunt(budget: Any) -> None:
    """Refused scenes spend no rows: without an end of their own, a budget of rows never ends."""
    raises = Raises(base="route:select=standalone", name="raises")
    result = neartie.hunt("route:select=standalone", raises, geometry=SMALL, **budget)
    assert result.exit_status == 3
    assert "NOT RUN: the paths computed no scene" in result.text()
    assert "nothing found" not in result.text()
    # Somebody's words, on one line and without an escape.
    assert "\nverdict" not in result.text()
    assert "\x1b" not in result.text()
