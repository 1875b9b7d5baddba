"""Clean pairs on random banks raise no alarm; ``benchmarks/false_alarms.py`` runs a thousand."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from wrapped_path import WrappedPath

import neartie
from neartie.audit.run import run_audit
from neartie.audit.selftest.clean import CleanPair, random_pair, run_random
from neartie.audit.verdict import State

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "false_alarms.json"


@pytest.mark.parametrize("number", range(2000, 2040))
def test_a_clean_pair_raises_no_alarm(number: int) -> None:
    result = run_random(number)
    assert result.failing == (), result.pair.command()
    assert result.rows > 0


def test_subnormal_scores_have_few_bits_and_weights_may_follow_from_those() -> None:
    """Both paths do the rule's own arithmetic in FP32, which the FP64 weights are far from."""
    result = neartie.run_audit(
        "saturated:geometry=64x256x256x16,rows=46,seed=34,side=mixed,bias=0.478",
        baseline="general:select=grouped",
        candidate="route:select=grouped",
        rows=[11],
        ranks=2,
        gate=False,
    )
    failing = [r.code for r in result.verdict.reasons if r.state == "FAIL"]
    assert failing == []


def test_a_number_is_always_the_same_pair_and_numbers_vary() -> None:
    pairs = [random_pair(number) for number in range(60)]
    assert pairs == [random_pair(number) for number in range(60)]
    generators = {pair.bank.partition(":")[0] for pair in pairs}
    assert {"gaussian", "near_tie", "saturated", "large_bias", "bf16_logits"} <= generators
    assert {pair.ranks for pair in pairs} == {1, 2, 4, 8}
    assert len({pair.widths for pair in pairs}) > 30


def test_the_command_repeats_the_audit() -> None:
    pair = CleanPair("all_equal", "general", "route", (9, 12), 4)
    assert pair.command() == (
        "neartie audit all_equal --baseline general --candidate route --rows 9,12 --ranks 4 "
        "--no-gate"
    )


def test_the_stored_run_has_no_alarm() -> None:
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert stored["banks"] == 1000
    assert stored["false_alarms"] == []


SMALL_SCORES = "gaussian:geometry=64x128x32x16,rows=27,seed=278,std=1.768,bias=0.464,stage=logits"


def failing(candidate: Any) -> set[str]:
    result = run_audit(
        SMALL_SCORES, baseline=candidate, candidate=candidate, rows=[10], ranks=1, gate=False
    )
    return {reason.code for reason in result.verdict.reasons if reason.state is State.FAIL}


def test_weights_follow_from_scores_by_the_form_that_a_path_declares() -> None:
    """Small scores: 0.5 * tanh + 0.5 cancels, and ends beyond the budget of the rule's weights."""
    assert failing("route:select=noaux_tc") == set()
    undeclared = WrappedPath(base="route:select=noaux_tc", name="says-exp")
    words = neartie.make_path("route:select=standalone").declared.score
    undeclared.declared = replace(undeclared.declared, score=words)
    assert "flag:weights_not_from_ids" in failing(undeclared)
