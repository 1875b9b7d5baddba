"""Every limit of a policy changes a verdict: classes, required coverage, unit, model, flushing."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import neartie
from neartie.audit.compare import CANDIDATE, RankRows, compare_rows
from neartie.audit.metrics.flags import RowFlag
from neartie.audit.metrics.swaps import SET_CLASSES
from neartie.audit.observed import Conditions, Coverage, Observed, WidthSummary
from neartie.audit.policy import Policy
from neartie.audit.required_coverage import missing_coverage
from neartie.audit.verdict import NumericsClass, State, judge
from neartie.banks.errors import InputError
from neartie.banks.geometry import Geometry, ScoringRule
from neartie.kernels.reference import reference_select

WIDTH = WidthSummary(
    width=20,
    rows=100_000,
    unique_rows=100_000,
    units=100_000,
    differing_units=0,
    counts={str(name): 0 for name in SET_CLASSES} | {"identical": 100_000},
    set_rate=0.0,
    set_rate_upper=3e-5,
    certified=True,
    confidence=0.95,
    max_weight_ulp=1,
    weight_classes={"equal": 100_000},
    flags={"baseline": {}, "candidate": {}},
    breaches={"baseline": {}, "candidate": {}},
    bits_equal={"logits": True, "ids": True, "weights": False},
    rho=None,
)
SEEN = Observed([WIDTH], [], [Coverage("bank", 20, True)], None, conditions=Conditions(8, "cpu"))


def policy(**values: Any) -> Policy:
    return Policy.model_validate(values)


def test_a_class_that_is_not_allowed_fails_and_keeps_its_name() -> None:
    assert judge(SEEN, policy(allowed_classes=["LIGHT"])).state is State.PASS
    result = judge(SEEN, policy(allowed_classes=["BITWISE", "REORDER"]))
    assert (result.state, result.numerics_class) == (State.FAIL, NumericsClass.LIGHT)
    (reason,) = result.reasons
    assert reason.code == "class_not_allowed"
    assert reason.text == "the rows seen are LIGHT, and the policy allows BITWISE, REORDER"


def test_a_class_of_too_few_rows_is_refused_before_more_rows_are_run() -> None:
    few = replace(SEEN, widths=[replace(WIDTH, certified=False, units=10)])
    result = judge(few, policy(allowed_classes=["BITWISE"]))
    assert (result.state, result.numerics_class) == (State.FAIL, NumericsClass.UNKNOWN)


def test_nothing_seen_is_no_class_that_a_policy_could_refuse() -> None:
    none = replace(SEEN, widths=[], coverage=[Coverage("bank", 20, False, "no device")])
    assert judge(none, policy(allowed_classes=["BITWISE"])).state is State.NOT_RUN


@pytest.mark.parametrize(
    ("required", "missing"),
    [
        ({"banks": ["bank"], "widths": [20], "ranks": 8, "device": "cpu"}, []),
        ({"widths": [9, 16, 20]}, ["bank at width 9, 16"]),
        ({"banks": ["other"]}, ["other at width 20"]),
        ({"banks": ["bank", "other"], "widths": [12]}, ["bank at width 12", "other at width 12"]),
        ({"ranks": 16}, ["16 ranks (the audit has 8)"]),
        ({"device": "cuda"}, ["device cuda (the audit was given cpu)"]),
    ],
)
def test_required_coverage_names_what_is_missing(
    required: dict[str, Any], missing: list[str]
) -> None:
    result = judge(SEEN, policy(coverage=required))
    texts = [reason.text for reason in result.reasons]
    assert texts == [f"required coverage is missing: {text}" for text in missing]
    assert result.state is (State.INCONCLUSIVE if missing else State.PASS)
    assert result.numerics_class is (NumericsClass.UNKNOWN if missing else NumericsClass.LIGHT)


def test_a_required_group_is_each_of_its_banks() -> None:
    ran = [Coverage(f"k3-mini/layer{layer}", 20, layer != 3) for layer in range(6)]
    required = policy(coverage={"banks": ["k3-mini"]}).coverage
    assert list(missing_coverage(required, ran, Conditions(8, "cpu"))) == [
        "k3-mini/layer3 at width 20"
    ]


def test_a_gate_says_that_it_does_not_judge_the_coverage_of_audits() -> None:
    result = judge(replace(SEEN, conditions=None), policy(coverage={"ranks": 16}))
    assert result.state is State.PASS_WITH_LIMITATIONS
    assert [reason.code for reason in result.reasons] == ["coverage_not_judged"]


def audit(bank: str, **limits: Any) -> Any:
    return neartie.run_audit(bank, rows=[9], ranks=1, policy=policy(**limits), gate=False).record


def test_rows_of_another_unit_bound_no_rate() -> None:
    bank = "gaussian:geometry=mini,rows=9"
    assert audit(bank, independence_unit="row")["widths"][0]["units"] == 9
    record = audit(bank, independence_unit="doc")
    assert (record["widths"][0]["units"], record["widths"][0]["rows"]) == (0, 9)
    assert any(
        reason["text"]
        == "1 of 1 banks bound no rate: the policy asks for the independence unit doc, "
        "theirs is row"
        for reason in record["verdict"]["reasons"]
    )


def test_a_gate_counts_units_by_the_policy_too() -> None:
    def units(unit: str) -> int:
        limits = policy(independence_unit=unit)
        result = neartie.run_gate(
            "topk_sigmoid", "auto", "normal:geometry=mini", rows=64, widths=[9], policy=limits
        )
        return int(result.record["widths"][0]["units"])

    assert (units("row"), units("doc")) == (64, 0)


def test_the_limits_of_the_banks_model_judge_and_are_recorded() -> None:
    limits = {"model": {"mini": {"weight_budget_ulp": 0}, "k3": {"window_ulp": 7}}}
    record = audit("gaussian:geometry=mini,rows=9", **limits)
    assert record["policy"]["weight_budget_ulp"] == 0
    assert list(record["policy"]["model"]) == ["mini"]
    assert Policy.model_validate(record["policy"]).weight_budget_ulp == 0
    gate = neartie.run_gate(
        "topk_sigmoid", "auto", "normal:geometry=mini", rows=64, widths=[9], policy=policy(**limits)
    )
    assert gate.record["policy"]["weight_budget_ulp"] == 0
    assert any(r["code"] == "weight_budget" for r in gate.record["verdict"]["reasons"])


def test_an_audit_over_models_with_other_limits_is_refused() -> None:
    banks = ["gaussian:geometry=mini,rows=9", "gaussian:geometry=k2,rows=1"]
    with pytest.raises(InputError, match="their window_ulp differs; audit each model by itself"):
        neartie.run_audit(banks, ranks=1, policy=policy(model={"k2": {"window_ulp": 1}}))


TINY = Geometry("tiny", hidden=8, latent=4, experts=6, top_k=2)


def compared(logits: Any, bias: Any, ids_b: Any, weights: Any, flush: bool) -> Any:
    """One row: the baseline has the reference's ids and weights, the candidate those given."""
    values = np.array([logits], np.float32)
    added = np.array(bias, np.float32)
    selection = reference_select(values, added, TINY, ScoringRule())
    judged: Any = SimpleNamespace(
        selection=selection, logits=values, bias=added, input_flags=np.zeros(1, np.uint16)
    )
    exact = selection.weights.astype(np.float32)
    slack = np.zeros(1)
    return compare_rows(
        RankRows(selection.ids, exact, slack),
        RankRows(np.array([ids_b], np.int32), np.array([weights], np.float32), slack),
        judged,
        TINY,
        ScoringRule(),
        Policy(flush_to_zero=flush),
    )


@pytest.mark.parametrize("flush", [False, True])
def test_a_flushed_weight_counts_as_zero_where_flushing_is_declared(flush: bool) -> None:
    # The bias selects expert 0, whose score is subnormal, beside expert 1 of score 1/2.
    logits, bias = [-90, 0, -5, -5, -5, -5], [5, 1, 0, 0, 0, 0]
    result = compared(logits, bias, [0, 1], [0.0, 1.0], flush)
    assert bool(result.weight_ulp[0] == 0) is flush
    wrong = RowFlag(int(result.flags[CANDIDATE][0])) & RowFlag.WEIGHTS_NOT_FROM_IDS
    assert bool(wrong) is not flush


@pytest.mark.parametrize("flush", [False, True])
def test_a_wrong_weight_is_wrong_with_flushing_too(flush: bool) -> None:
    logits, bias = [-90, 0, -5, -5, -5, -5], [5, 1, 0, 0, 0, 0]
    result = compared(logits, bias, [0, 1], [0.0, 0.5], flush)
    assert result.flags[CANDIDATE][0]


@pytest.mark.parametrize(("flush", "kind"), [(False, "far_swap"), (True, "exact_tie")])
def test_scores_that_flush_to_zero_tie(flush: bool, kind: str) -> None:
    logits, bias = [0, -89, -90, -95, -95, -95], [0] * 6
    result = compared(logits, bias, [0, 2], [1.0, 0.0], flush)
    assert SET_CLASSES[result.sets.set_class[0]] == kind


def test_declared_flushing_is_disclosed() -> None:
    result = judge(SEEN, policy(flush_to_zero=True))
    assert result.state is State.PASS_WITH_LIMITATIONS
    assert [reason.code for reason in result.reasons] == ["flush_to_zero"]
