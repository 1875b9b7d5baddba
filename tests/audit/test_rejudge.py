"""Stored tables give the recorded verdict, and another policy's as an audit under it would."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import neartie
from neartie.audit.evidence.load import Evidence, load_evidence
from neartie.audit.evidence.reclassify import MOVABLE, classes_of
from neartie.audit.evidence.rejudge import rejudge
from neartie.audit.evidence.write import report_text
from neartie.audit.gate.result import GateResult
from neartie.audit.histograms import lines_table
from neartie.audit.metrics.swaps import SetClass
from neartie.audit.policy import Policy
from neartie.audit.record import AuditRecord
from neartie.audit.result import AuditResult
from neartie.audit.selftest.catalogue import select
from neartie.audit.selftest.fault import FaultyPath
from neartie.banks.errors import InputError


class Nudged:
    """The route path with one FP32 weight in every row moved by ``steps`` ULP."""

    batches_launches = True
    outputs = ("latent", "logits", "ids", "weights")

    def __init__(self, steps: int) -> None:
        self.name = f"nudged-{steps}"
        self.steps, self.base = steps, neartie.make_path("route")
        self.declared = self.base.declared

    def unavailable(self) -> None:
        return None

    def check(self, launch: Any) -> None:
        self.base.check(launch)

    def run(self, launch: Any, out: Any) -> None:
        self.base.run(launch, out)
        bits = out.weights[:, :, 3].copy().view(np.uint32) + np.uint32(self.steps)
        out.weights[:, :, 3] = bits.view(np.float32)


AUDITS: dict[str, dict[str, Any]] = {
    "recorded tie": {
        "banks": "k3-mini/tie-witness",
        "baseline": "route:select=fp64",
        "candidate": "recorded",
        "rows": [20],
    },
    "no window can hold": {
        "banks": "gaussian:geometry=mini,rows=9,seed=1",
        "candidate": "route:select=radix_bf16",
        "rows": [9],
        "ranks": 1,
    },
    "bf16 bias": {
        "banks": ["gaussian:geometry=mini,stage=logits,rows=900", "k3-mini/tie-witness"],
        "baseline": "route:bias=fp32",
        "candidate": "route:bias=bf16",
        "rows": [9],
        "ranks": 1,
    },
    "ranks disagree": {
        "banks": "gaussian:geometry=mini,rows=20",
        "baseline": "general:reduce=own_rank_first_fp32",
        "rows": [9],
        "ranks": 2,
    },
    "planted ties": {
        "banks": ["near_tie:geometry=mini,rows=40,gap=1", "near_tie:geometry=mini,rows=30,gap=0"],
        "baseline": "route:select=standalone",
        "candidate": "route:select=fused",
        "rows": [20],
        "ranks": 1,
    },
    "groups": {
        "banks": "gaussian:geometry=deepseek-v3,stage=logits,rows=60",
        "baseline": "general:select=grouped",
        "candidate": "route:select=hf",
        "rows": [16],
        "ranks": 1,
    },
    "certified": {
        "banks": "gaussian:geometry=mini,stage=logits,rows=100",
        "baseline": "route",
        "candidate": "route",
        "rows": [9],
        "ranks": 1,
        "policy": Policy(set_rate=0.05),
    },
    "with its gate": {
        "banks": "gaussian:geometry=mini,rows=100",
        "candidate": "route:select=fused",
        "rows": [9, 20],
        "ranks": 1,
        "policy": Policy(set_rate=1e-3),
        "gate": True,
    },
    "not run": {"banks": "k3-mini/tie-witness", "device": "cuda", "rows": [9, 20]},
    "nudged": {
        "banks": "gaussian:geometry=mini,stage=logits,rows=50",
        "baseline": "route",
        "candidate": Nudged(5),
        "rows": [9],
        "ranks": 1,
    },
    "wrong weights": {
        "banks": "gaussian:geometry=mini,stage=logits,rows=20",
        "baseline": "route",
        "candidate": Nudged(12),
        "rows": [9],
        "ranks": 1,
    },
    "alike and wrong": {
        "banks": "gaussian:geometry=mini,stage=logits,rows=20",
        "baseline": Nudged(12),
        "candidate": Nudged(13),
        "rows": [9],
        "ranks": 1,
    },
}
POLICIES: dict[str, dict[str, Any]] = {
    "no window": {"window_ulp": 0},
    "window 3": {"window_ulp": 3},
    "wide window": {"window_ulp": 5000},
    "noise": {"noise_abs": 1e-4},
    "lower id": {"tie_contract": "lower_id"},
    "groups of ties": {"one_for_one": False},
    "loose rate": {"set_rate": 0.2, "confidence": 0.8},
    "no weights": {"weight_budget_ulp": 0},
    "weights 4": {"weight_budget_ulp": 4},
    "weights 100": {"weight_budget_ulp": 100},
    "several": {"window_ulp": 3, "set_rate": 0.5, "tie_contract": "lower_id"},
}


GATE: dict[str, Any] = {
    "source": [f"near_tie:geometry=mini,gap={gap}" for gap in (0, 1)],
    "rows": 400,
    "widths": (9, 20),
    "sample": (1, 960),
}


def audit(name: str, policy: Policy) -> AuditResult:
    words = {"policy": policy, "gate": False, **AUDITS[name]}
    return neartie.run_audit(words.pop("banks"), **words)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Evidence]:
    place = tmp_path_factory.mktemp("stored")
    return {
        name: load_evidence(audit(name, Policy()).write(place / str(number)))
        for number, name in enumerate(AUDITS)
    }


def judged(result: AuditRecord | GateResult) -> Any:
    """What a policy has a part in, as JSON gives it back."""
    record = json.loads(result.to_json())
    names = ("verdict", "numerics_class", "provisional_class", "structural_tag", "widths", "banks")
    return {name: record[name] for name in names}


def failing(result: AuditRecord | GateResult) -> set[tuple[str, int | None]]:
    reasons = result.verdict.reasons
    return {(str(reason.code), reason.width) for reason in reasons if reason.state == "FAIL"}


@pytest.mark.parametrize("name", AUDITS)
def test_the_recorded_policy_gives_the_recorded_bits(
    name: str, stored: dict[str, Evidence]
) -> None:
    evidence = stored[name]
    again = rejudge(evidence)
    assert again.to_json() + "\n" == (evidence.directory / "audit.json").read_text()
    assert report_text(again) == (evidence.directory / "report.md").read_text()


def test_the_audits_end_in_every_way(stored: dict[str, Evidence]) -> None:
    states = {evidence.record["verdict"]["state"] for evidence in stored.values()}
    assert states >= {"FAIL", "INCONCLUSIVE", "NOT_RUN", "PASS_WITH_LIMITATIONS"}
    classes = {evidence.record["provisional_class"] for evidence in stored.values()}
    assert classes >= {"BEHAVIOURAL", "BITWISE", "LIGHT", "UNKNOWN"}


@pytest.mark.parametrize("limits", POLICIES)
@pytest.mark.parametrize("name", [name for name in AUDITS if "policy" not in AUDITS[name]])
def test_another_policy_gives_what_an_audit_under_it_gives(
    name: str, limits: str, stored: dict[str, Evidence]
) -> None:
    """Or says that it cannot: an unanswered question is never a pass."""
    policy = Policy(**POLICIES[limits])
    again = rejudge(stored[name], policy)
    fresh = audit(name, policy)
    assert isinstance(again, AuditRecord)
    codes = {str(reason.code) for reason in again.verdict.reasons}
    if "not_kept" in codes:
        assert again.verdict.state in ("INCONCLUSIVE", "FAIL")
        # What fails by the stored rows fails in the audit too, and for the same reasons.
        assert failing(again) <= failing(fresh)
        return
    mine, theirs = judged(again), judged(fresh)
    if policy.weight_budget_ulp != 8:
        for record in (mine, theirs):
            for width in record["widths"]:
                del width["weight_classes"]
            for reason in record["verdict"]["reasons"]:
                reason["text"] = reason["text"].partition(" (")[0]
    assert mine == theirs
    assert again.swaps.equals(fresh.swaps)


def test_most_policies_can_be_answered(stored: dict[str, Evidence]) -> None:
    answers = {"answered": 0, "unanswered": 0}
    # Without what is made to be open.
    audits = [name for name in stored if name not in ("wrong weights", "alike and wrong")]
    for name, limits in product(audits, POLICIES.values()):
        again = rejudge(stored[name], Policy(**limits))
        kept = not any(reason.code == "not_kept" for reason in again.verdict.reasons)
        answers["answered" if kept else "unanswered"] += 1
    print(f"\npolicies on stored audits: {answers}")
    assert answers["answered"] > 3 * answers["unanswered"]
    assert all(answers.values())


def test_a_wrong_weight_fails_under_every_smaller_budget(stored: dict[str, Evidence]) -> None:
    for name in ("wrong weights", "alike and wrong"):
        assert stored[name].record["verdict"]["state"] == "FAIL"
        again = rejudge(stored[name], Policy(weight_budget_ulp=4))
        assert again.verdict.state == "FAIL"
        assert ("flag:weights_not_from_ids", 9) in failing(again)
        (text,) = [r.text for r in again.verdict.reasons if "their own rule" in r.text]
        assert "have one still, others may: a new audit is needed for 4" in text
    # Both paths agree within the smaller budget, and are wrong within the larger one.
    assert ("oracle_echo", 9) in failing(again)
    apart = rejudge(stored[name], Policy(weight_budget_ulp=0))
    assert ("oracle_echo", 9) not in failing(apart)
    assert ("weight_budget", 9) in failing(apart)


def test_what_a_larger_budget_may_forgive_is_open(stored: dict[str, Evidence]) -> None:
    evidence = stored["wrong weights"]
    again = rejudge(evidence, Policy(weight_budget_ulp=100))
    assert (again.verdict.state, again.verdict.numerics_class) == ("INCONCLUSIVE", "UNKNOWN")
    texts = [reason.text for reason in again.verdict.reasons if reason.code == "not_kept"]
    assert any("20 rows had a wrong one, and may have none" in text for text in texts)
    # A wrong mapping is told of the failing rows, which are others now.
    assert not again.record["explanations"]
    names = {finding["name"] for finding in evidence.record["findings"]}
    assert not names & {finding["name"] for finding in again.record["findings"]}


def test_an_explanation_of_failing_rows_is_open_under_a_smaller_budget(
    stored: dict[str, Evidence],
) -> None:
    evidence = stored["no window can hold"]
    named = {f["name"] for f in evidence.record["findings"] if f["name"].startswith("explained_by")}
    assert named
    again = rejudge(evidence, Policy(weight_budget_ulp=4))
    assert again.verdict.state == "FAIL"
    assert not named & {code for code, _ in failing(again)}
    (text,) = [r.text for r in again.verdict.reasons if "was found under" in r.text]
    assert "was found under weight_budget_ulp 8: a new audit is needed to tell" in text


def test_an_explanation_of_lost_ties_does_not_outlive_their_contract(tmp_path: Path) -> None:
    """Rows that lose an exact tie fail under ``lower_id`` alone, and so does what explains them."""
    clean = neartie.make_path("route:select=standalone")
    (fault,) = [one for one in select.FAULTS if one.name == "higher_id_on_ties"]
    higher = FaultyPath(clean, fault.make())
    words: dict[str, Any] = {"baseline": clean, "candidate": higher, "rows": [20], "ranks": 1}
    words["gate"] = False
    bank = "near_tie:geometry=mini,rows=40,gap=0"
    contract = Policy(tie_contract="lower_id")
    strict = neartie.run_audit(bank, policy=contract, **words)
    assert any(name.startswith("explained_by") for name, _ in failing(strict))
    again = rejudge(load_evidence(strict.write(tmp_path / "out")), Policy())
    assert failing(again) <= failing(neartie.run_audit(bank, **words))


def test_flushing_leaves_every_question_open(stored: dict[str, Evidence]) -> None:
    for name in ("no window can hold", "certified"):
        again = rejudge(stored[name], Policy(flush_to_zero=True))
        (reason,) = again.verdict.reasons
        assert reason.text.startswith("rows were compared with flush_to_zero = false: a new audit")
        assert again.record["verdict"]["state"] == "INCONCLUSIVE"
        assert again.verdict.provisional_class == "UNKNOWN"


@pytest.mark.parametrize(
    ("gap", "policy", "expected"),
    [
        (0, {}, "exact_tie"),
        (2, {}, "near_tie"),
        (3, {}, "far_swap"),
        (3, {"window_ulp": 3}, "near_tie"),
        (1, {"window_ulp": 0}, "far_swap"),
        (3, {"noise_abs": 0.5}, "noise_swap"),
        (None, {"noise_abs": 1.0}, "far_swap"),
    ],
)
def test_the_class_of_a_swap_follows_from_its_gap(
    gap: int | None, policy: dict[str, Any], expected: str
) -> None:
    absolute = None if gap is None else gap / 8
    swap = {"gap_ulp": gap, "gap_abs": absolute, "gap_group_ulp": None, "dropped": [1]}
    assert classes_of(swap, Policy(**policy)) == (expected,)


def test_the_class_of_several_swaps() -> None:
    swap = {"gap_ulp": 0, "gap_abs": 0.0, "gap_group_ulp": None, "dropped": [1, 2]}
    assert classes_of(swap, Policy()) == (SetClass.TIE_GROUP, SetClass.MULTI_SWAP)
    assert classes_of({**swap, "gap_group_ulp": 0}, Policy()) == (SetClass.GROUP_TIE,)
    assert classes_of({**swap, "gap_ulp": 1}, Policy()) == (SetClass.MULTI_SWAP,)


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    result = neartie.run_gate("topk_sigmoid", "grouped_topk", **GATE)
    return load_evidence(result.write(tmp_path_factory.mktemp("gate") / "out"))


def test_a_gate_is_judged_again_to_the_same_bits(gate: Evidence) -> None:
    again = rejudge(gate)
    assert again.to_json() + "\n" == (gate.directory / "gate.json").read_text()
    assert report_text(again) == (gate.directory / "report.md").read_text()
    assert gate.record["pooled"]["swaps"]


@pytest.mark.parametrize("limits", POLICIES)
def test_a_gate_under_another_policy(limits: str, gate: Evidence) -> None:
    policy = Policy(**POLICIES[limits])
    fresh = neartie.run_gate("topk_sigmoid", "grouped_topk", policy=policy, **GATE)
    again = rejudge(gate, policy)
    if any(reason.code == "not_kept" for reason in again.verdict.reasons):
        assert again.verdict.state in ("INCONCLUSIVE", "FAIL")
        assert failing(again) <= failing(fresh)
        return
    mine, theirs = judged(again), judged(fresh)
    if policy.weight_budget_ulp == 8:
        assert mine["verdict"] == theirs["verdict"]
        assert [w["swaps"] for w in mine["widths"]] == [w["swaps"] for w in theirs["widths"]]
        assert again.record["pooled"]["violations"] == fresh.record["pooled"]["violations"]
    assert mine["numerics_class"] == theirs["numerics_class"]


def test_swaps_without_a_certificate_cannot_be_classed_again(stored: dict[str, Evidence]) -> None:
    evidence = stored["bf16 bias"]
    swaps = evidence.tables["swaps"]
    near = [c["set_class"] in MOVABLE and "gaussian" in c["bank"] for c in swaps.to_pylist()]
    cut = swaps.filter(pa.array([not one for one in near]))
    lost = replace(evidence, tables={**evidence.tables, "swaps": cut})
    with pytest.raises(InputError, match=f"{sum(near):,} swaps of .* have no certificate"):
        rejudge(lost, Policy(window_ulp=3))


def test_certificates_that_a_gate_left_out_leave_the_window_open(gate: Evidence) -> None:
    """Beyond so many a gate keeps none, and says how many: no gap is known of them."""
    swaps, lines = gate.tables["swaps"], gate.tables["histograms"].to_pylist()
    bank, width = (swaps[name][0].as_py() for name in ("bank", "width"))
    rest = [(c["bank"], c["width"]) != (bank, width) for c in swaps.to_pylist()]
    for line in lines:
        if (line["bank"], line["width"], line["metric"]) == (bank, width, "gate"):
            line["count"] = rest.count(False) if line["key"] == "left_out" else line["count"]
    tables = {
        **gate.tables,
        "swaps": swaps.filter(pa.array(rest)),
        "histograms": lines_table(lines),
    }
    cut = replace(gate, tables=tables)
    again = rejudge(cut, Policy(window_ulp=0))
    (reason,) = again.verdict.reasons
    assert reason.state == again.verdict.state == "INCONCLUSIVE"
    assert f"{rest.count(False):,} differing rows have no certificate" in reason.text
    # A budget asks for no gap.
    assert rejudge(cut, Policy(weight_budget_ulp=4)).verdict.reasons != again.verdict.reasons


def test_a_record_of_another_form_is_one_message(
    stored: dict[str, Evidence], tmp_path: Path
) -> None:
    evidence = stored["recorded tie"]
    for name, value in (("policy", {"window_ulp": -1}), ("coverage", 3), ("findings", [{}])):
        with pytest.raises(InputError, match="but should be"):
            rejudge(replace(evidence, record={**evidence.record, name: value}))
    pq.write_table(evidence.tables["swaps"], tmp_path / "swaps.parquet")
    with pytest.raises(InputError, match=r"audit\.json or gate\.json"):
        load_evidence(tmp_path)
