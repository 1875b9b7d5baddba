"""Clean pairs on random banks raise no alarm; ``benchmarks/false_alarms.py`` runs a thousand."""

import json
from pathlib import Path

import pytest

import neartie
from neartie.audit.selftest.clean import CleanPair, random_pair, run_random

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


TANH = ("fused", "grouped_topk", "noaux_tc")


def test_the_stored_alarms_are_those_that_the_page_tells_of() -> None:
    """Small scores: 0.5 * tanh + 0.5 cancels, and ends beyond the budget of the rule's weights."""
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert stored["banks"] == 1000
    assert len(stored["false_alarms"]) == 4
    for alarm in stored["false_alarms"]:
        assert alarm["failing"] == ["flag:weights_not_from_ids", "oracle_echo"]
        for role in ("baseline", "candidate"):
            select = alarm["pair"][role].partition("select=")[2].partition(",")[0]
            assert select in TANH
