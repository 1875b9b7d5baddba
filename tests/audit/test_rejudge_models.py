"""``report --policy`` takes the limits of the banks' model, as an audit or a gate under it does."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import neartie
from neartie.audit.evidence.load import Evidence, load_evidence
from neartie.audit.evidence.rejudge import rejudge
from neartie.audit.gate.result import GateResult
from neartie.audit.policy import Policy
from neartie.audit.record import AuditRecord
from neartie.banks.errors import InputError

AUDIT: dict[str, Any] = {
    "banks": ["k3-mini/tie-witness"],
    "baseline": "route:select=fp64",
    "candidate": "recorded",
    "rows": [20],
    "ranks": 8,
    "gate": False,
}
GENERATED: dict[str, Any] = {
    "banks": ["gaussian:geometry=mini,rows=9"],
    "baseline": "general",
    "candidate": "route",
    "rows": [9],
    "ranks": 1,
}
GATE: dict[str, Any] = {
    "source": [f"near_tie:geometry=mini,gap={gap}" for gap in (0, 1)],
    "rows": 400,
    "widths": (9, 20),
}
OVERRIDES: dict[str, dict[str, Any]] = {
    "budget": {"weight_budget_ulp": 0},
    "window": {"window_ulp": 0},
    "rate": {"set_rate": 0.4, "confidence": 0.8},
    "classes": {"allowed_classes": ["BITWISE"]},
    "contract": {"tie_contract": "lower_id"},
    "unit": {"independence_unit": "doc"},
}


def of_model(name: str, limits: dict[str, Any]) -> Policy:
    return Policy.model_validate({"model": {name: limits}})


def audited(policy: Policy | None = None, **words: Any) -> AuditRecord:
    given = {**AUDIT, **words}
    return neartie.run_audit(given.pop("banks"), policy=policy, **given)


def gated(policy: Policy | None = None) -> GateResult:
    return neartie.run_gate("topk_sigmoid", "grouped_topk", policy=policy, **GATE)


@pytest.fixture(scope="module")
def audit_evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    result = neartie.run_audit(AUDIT["banks"], **{k: AUDIT[k] for k in AUDIT if k != "banks"})
    return load_evidence(result.write(tmp_path_factory.mktemp("audit") / "out"))


@pytest.fixture(scope="module")
def gate_evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return load_evidence(gated().write(tmp_path_factory.mktemp("gate") / "out"))


def said(result: AuditRecord | GateResult) -> dict[str, Any]:
    """State, reasons by code and width, classes and the policy, as JSON gives them back."""
    record = json.loads(result.to_json())
    reasons = {(r["state"], r["code"], r["width"]) for r in record["verdict"]["reasons"]}
    names = ("numerics_class", "provisional_class", "structural_tag", "policy")
    state = record["verdict"]["state"]
    return {"state": state, "reasons": reasons, **{name: record[name] for name in names}}


def agree(again: AuditRecord | GateResult, fresh: AuditRecord | GateResult) -> bool:
    """The same answer, or an open one; whether it is the same."""
    assert again.record["policy"] == fresh.record["policy"]
    if any(reason.code == "not_kept" for reason in again.verdict.reasons):
        assert again.verdict.state in ("INCONCLUSIVE", "FAIL")
        assert again.verdict.state != "FAIL" or fresh.verdict.state == "FAIL"
        return False
    assert said(again) == said(fresh)
    return True


@pytest.mark.parametrize("limits", OVERRIDES)
def test_an_override_judges_a_stored_audit_as_it_judges_a_new_one(
    limits: str, audit_evidence: Evidence
) -> None:
    policy = of_model("k3-mini", OVERRIDES[limits])
    again, fresh = rejudge(audit_evidence, policy), audited(policy)
    answered = agree(again, fresh)
    assert answered or limits in ("budget", "window", "contract")
    # It is the verdict of the same limits outside the table, whoever they are of.
    plain = rejudge(audit_evidence, Policy(**OVERRIDES[limits]))
    assert again.verdict == plain.verdict
    # Its one swap is an exact tie, and its rows are no independent samples: no window and no rate
    # has a part in the verdict.
    assert limits in ("window", "rate") or again.verdict != rejudge(audit_evidence).verdict


@pytest.mark.parametrize("limits", OVERRIDES)
def test_an_override_judges_a_stored_gate_as_it_judges_a_new_one(
    limits: str, gate_evidence: Evidence
) -> None:
    policy = of_model("mini", OVERRIDES[limits])
    again = rejudge(gate_evidence, policy)
    agree(again, gated(policy))
    assert again.verdict == rejudge(gate_evidence, Policy(**OVERRIDES[limits])).verdict


def test_the_limits_of_another_model_change_nothing(audit_evidence: Evidence) -> None:
    policy = of_model("some-other", OVERRIDES["budget"])
    again = rejudge(audit_evidence, policy)
    assert again.verdict == rejudge(audit_evidence).verdict
    assert again.record["policy"]["model"] == {}


def test_the_name_in_the_provenance_comes_before_the_geometrys() -> None:
    policy = Policy.model_validate(
        {"model": {"none": {"set_rate": 0.4}, "mini": {"set_rate": 0.3}}}
    )
    result = audited(policy, **GENERATED)
    assert result.record["banks"][0]["models"] == ["none", "mini"]
    again = rejudge(stored(result), policy)
    assert again.record["policy"]["set_rate"] == result.record["policy"]["set_rate"] == 0.4


def stored(result: AuditRecord) -> Evidence:
    """Evidence as it would be read back, without a file."""
    tables = {name: getattr(result, name) for name in ("swaps", "values", "histograms")}
    return Evidence(Path("out"), "audit", json.loads(result.to_json()), tables, {})


def test_banks_of_two_models_are_refused_as_an_audit_refuses_them() -> None:
    banks = ["k3-mini/layer0", "gaussian:geometry=mini,rows=20,stage=logits"]
    words = {**GENERATED, "banks": banks}
    result = audited(**words)
    policy = of_model("mini", OVERRIDES["budget"])
    with pytest.raises(InputError, match="of one model: their weight_budget_ulp differs") as error:
        rejudge(stored(result), policy)
    with pytest.raises(InputError) as fresh:
        audited(policy, **words)
    assert str(error.value) == str(fresh.value)


def test_evidence_that_names_no_model_leaves_the_question_open(audit_evidence: Evidence) -> None:
    banks = [dict(bank) for bank in audit_evidence.record["banks"]]
    for bank in banks:
        del bank["models"]
    older = replace(audit_evidence, record={**audit_evidence.record, "banks": banks})
    by_geometry = of_model("k3-mini", OVERRIDES["budget"])
    assert rejudge(older, by_geometry).verdict == rejudge(audit_evidence, by_geometry).verdict
    again = rejudge(older, of_model("some-other", OVERRIDES["budget"]))
    assert again.verdict.state == "INCONCLUSIVE"
    (reason,) = [r for r in again.verdict.reasons if r.code == "not_kept"]
    assert "does not name the model of k3-mini/tie-witness" in reason.text
    assert "some-other" in reason.text
