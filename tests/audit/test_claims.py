"""Claims: each metric on small evidence, each answer, and a number changed flips the answer."""

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neartie
from neartie.audit.claims.check import Answer, Answered, check_claims
from neartie.audit.claims.load import load_claims
from neartie.audit.claims.measure import Query
from neartie.audit.claims.metrics import METRICS
from neartie.audit.claims.model import Claim, ClaimsFile
from neartie.audit.claims.relation import tolerance_of
from neartie.audit.claims.text import claims_text, metrics_text
from neartie.audit.evidence.load import Evidence
from neartie.kernels import gather
from neartie.kernels.paths import FrontPath

BANKS = [f"gaussian:geometry=mini,rows=20,seed={seed}" for seed in range(2)]


def of_audit(result: Any, name: str = "A") -> Evidence:
    tables = {"swaps": result.swaps, "values": result.values, "histograms": result.histograms}
    # The record as it is read back from audit.json.
    return Evidence(Path(name), "audit", json.loads(result.to_json()), tables, {})


@pytest.fixture(scope="module")
def audit() -> Evidence:
    """Two generated banks of 20 rows at two widths, 8 ranks."""
    return of_audit(neartie.run_audit(BANKS, rows=[9, 20], gate=False))


@pytest.fixture(scope="module")
def swapped() -> Evidence:
    """Near ties of one FP32 ULP at slot 16, which the candidate's scores do not tell apart."""
    result = neartie.run_audit(
        "near_tie:geometry=mini,rows=20,gap=1,slot=16",
        baseline="general:select=topk_sigmoid",
        candidate="route:select=fused",
        rows=[9],
        ranks=2,
    )
    return of_audit(result, "S")


@pytest.fixture(scope="module")
def gate() -> Evidence:
    result = neartie.run_gate(
        "topk_sigmoid", "auto", "normal:geometry=mini", rows=4000, widths=[9, 20]
    )
    record = json.loads(result.to_json())
    return Evidence(Path("B"), "gate", record, {"swaps": result.swaps}, {})


def claim(**values: Any) -> Claim:
    whole = {"id": "c", "text": "a text", "source": "a source", "kind": "audit", **values}
    return Claim.model_validate(whole)


def answer(evidence: list[Evidence], **values: Any) -> Answered:
    (one,) = check_claims(ClaimsFile(name="test", claim=(claim(**values),)), evidence).answers
    return one


# Per metric: what to ask of which evidence, a number that holds and one that does not.
LATENT = {"tensor": "latent", "pair": "candidate_baseline"}
CASES: dict[str, tuple[str, dict[str, Any], str, Any, Any]] = {
    "relative_rms": ("audit", LATENT, "<", Decimal("0.003"), Decimal("0.002")),
    "relative_rms_in_roundoffs": ("audit", LATENT, "<", Decimal("0.7"), Decimal("0.6")),
    "closer_to_reference": ("audit", {"tensor": "latent"}, "is", "closer", "farther"),
    "schedule_fits": ("audit", {}, "is", "fits", "does not fit"),
    "swaps": ("audit", {"set_class": "near_tie"}, "==", 0, 1),
    "differing_rows": ("audit", {}, "==", 0, 1),
    "other_ids": ("audit", {}, "==", 0, 1),
    "unexplained_differences": ("audit", {}, "<=", 0, -1),
    "max_weight_ulp": ("audit", {}, "<=", 1, 0),
    "set_rate_upper": ("audit", {}, "<=", Decimal("0.073"), Decimal("0.072")),
    "distinct_rows": ("gate", {}, "==", 4000, 3999),
    "violations": ("gate", {}, "==", 0, 1),
    "largest_gap_ulp": ("swapped", {}, "<=", 1, 0),
    "swaps_of_several": ("swapped", {}, "==", 0, 1),
    "swaps_outside_the_last_slot": ("swapped", {}, "==", 0, 1),
    "width_check": ("live", {"path": "route", "scope": {"widths": [21]}}, "is", "refused", "x"),
    "row_blocks_changed_bits": ("live", {"scope": {"geometry": "mini"}}, "==", 0, 1),
}


def test_every_metric_is_tried() -> None:
    assert set(CASES) == set(METRICS)


@pytest.mark.parametrize("name", CASES)
def test_a_number_changed_flips_the_answer(name: str, request: pytest.FixtureRequest) -> None:
    kind, parameters, relation, right, wrong = CASES[name]
    evidence = [] if kind == "live" else [request.getfixturevalue(kind)]
    asked = {"metric": name, "relation": relation, **parameters}
    asked["kind"] = "audit" if kind == "swapped" else kind
    good, bad = (answer(evidence, number=number, **asked) for number in (right, wrong))
    assert (good.answer, bad.answer) == (Answer.SUPPORTED, Answer.REFUTED), (good, bad)
    assert all(figure.holds for figure in good.figures)
    assert any(figure.holds is False for figure in bad.figures)


def measured(evidence: Evidence, metric: str, **asked: Any) -> list[Any]:
    found: Any = METRICS[metric]
    return [one.value for one in found.measure(evidence, Query(**asked))]


def test_figures_are_those_of_the_evidence(audit: Evidence, gate: Evidence) -> None:
    rms = [w["triangle"]["latent"]["candidate_baseline"] for w in audit.record["widths"]]
    assert measured(audit, "relative_rms", **LATENT) == rms
    assert measured(audit, "relative_rms_in_roundoffs", **LATENT) == [256 * value for value in rms]
    assert measured(audit, "distinct_rows") == [40, 40]
    assert measured(audit, "relative_rms", **LATENT, widths=(20,)) == rms[1:]
    assert measured(audit, "relative_rms", tensor="latent", pair="nothing") == [None, None]
    assert measured(gate, "set_rate_upper")[-1] == gate.record["pooled"]["observed"]["upper"]
    assert len(measured(gate, "set_rate_upper", widths=(9,))) == 1


def test_counts_tell_both_denominators(swapped: Evidence) -> None:
    found: Any = METRICS["swaps"]
    (one,) = found.measure(swapped, Query(set_class="near_tie"))
    assert one.note == "of 40 (row, rank) pairs, which are 20 rows and 0 independent ones"
    assert 0 < one.value <= 40
    assert measured(swapped, "other_ids")[0] >= one.value


def planted(evidence: Evidence, change: Callable[[dict[str, Any]], None]) -> Evidence:
    """Evidence whose certificates are changed."""
    records = evidence.tables["swaps"].to_pylist()
    for record in records:
        change(record)
    table = type(evidence.tables["swaps"]).from_pylist(records, evidence.tables["swaps"].schema)
    return replace(evidence, tables={**evidence.tables, "swaps": table})


def test_a_certificate_outside_the_rule_is_seen(swapped: Evidence) -> None:
    rows = swapped.tables["swaps"].num_rows
    assert rows > 0
    wide = planted(swapped, lambda r: r.update(gap_ulp=7))
    assert measured(wide, "largest_gap_ulp") == [7]
    assert measured(planted(swapped, lambda r: r.update(gap_ulp=None)), "largest_gap_ulp") == [None]
    several = planted(swapped, lambda r: r.update(dropped=[1, 2], added=[3, 4]))
    assert measured(several, "swaps_of_several") == [rows]
    elsewhere = planted(swapped, lambda r: r.update(slots_added=[3]))
    assert measured(elsewhere, "swaps_outside_the_last_slot") == [rows]


def test_left_out_certificates_leave_a_figure_open(gate: Evidence) -> None:
    record = json.loads(json.dumps(gate.record))
    record["pooled"]["certificates_left_out"] = 3
    one = answer([replace(gate, record=record)], kind="gate", metric="largest_gap_ulp",
                 relation="<=", number=2)  # fmt: skip
    assert (one.answer, one.code) == (Answer.UNSUPPORTED, "not_enough")
    assert "3 differing rows have no certificate" in one.reason


SWAPS = ("largest_gap_ulp", "swaps_of_several", "swaps_outside_the_last_slot")
ROWS = ("swaps", "other_ids", "unexplained_differences", "differing_rows", "violations")


@pytest.mark.parametrize("name", SWAPS)
def test_what_swaps_is_not_supported_where_nothing_was_seen_to(
    name: str, audit: Evidence, gate: Evidence, swapped: Evidence
) -> None:
    """Whatever the number claims: no swap was seen to be wide, of several or in another slot."""
    for evidence in (audit, gate):
        assert not evidence.tables["swaps"].num_rows
        for relation, number in (("==", 0), (">", 0)):
            one = answer([evidence], kind="any", metric=name, relation=relation, number=number)
            assert (one.answer, one.code) == (Answer.UNSUPPORTED, "not_enough")
            assert one.reason.endswith("no set differs: nothing was seen to swap")
            assert [figure.value for figure in one.figures] == [None]
    # Evidence without a swap does not stand against evidence with some.
    both = answer([audit, swapped], metric=name, relation="<=", number=1)
    assert both.answer is Answer.SUPPORTED


@pytest.mark.parametrize("name", ROWS)
def test_a_count_of_rows_is_measured_where_nothing_swapped(name: str, gate: Evidence) -> None:
    parameters = {"set_class": "near_tie"} if name == "swaps" else {}
    one = answer([gate], kind="gate", metric=name, relation="==", number=0, **parameters)
    assert one.answer is Answer.SUPPORTED


def test_the_shipped_claims_about_swaps_ask_for_a_swap(gate: Evidence) -> None:
    shipped = {one.id: one for one in load_claims("route-9-20").claim if one.metric in SWAPS}
    assert set(shipped) == {"gate-window", "gate-one-for-one", "swaps-in-the-last-slot"}
    assert len({str(one.needed).partition(" in which ")[2] for one in shipped.values()}) == 1


UNIT = {"metric": "relative_rms", "relation": "<", "number": Decimal("0.003"), **LATENT}


@pytest.mark.parametrize(
    ("scope", "reason"),
    [
        ({"geometry": "k3"}, "geometry k3"),
        ({"candidate": "recorded"}, "candidate recorded"),
        ({"baseline": "route"}, "baseline route"),
        ({"options": {"transport": "pull"}}, "candidate with transport=pull"),
        ({"device": "cuda"}, "device cuda"),
        ({"ranks": 16}, "16 ranks"),
    ],
)
def test_evidence_out_of_scope_answers_nothing(
    audit: Evidence, scope: dict[str, Any], reason: str
) -> None:
    one = answer([audit], **UNIT, scope=scope)
    assert (one.answer, one.code) == (Answer.UNSUPPORTED, "not_run")
    assert one.reason == f"no audit in scope ({reason})"
    assert not one.figures
    assert reason in one.needed


def test_evidence_of_another_kind_answers_nothing(gate: Evidence) -> None:
    assert answer([gate], **UNIT).reason == "no audit in scope (any evidence)"
    assert answer([], **UNIT, scope={"ranks": 8}).reason == "no audit in scope (8 ranks)"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"scope": {"widths": [9, 12, 16, 20]}}, "A: width 12, 16 was not run"),
        ({"scope": {"widths": [12]}}, "A: width 12 was not run"),
        ({"needs": {"banks": 6}}, "A: 2 of 6 banks"),
        ({"needs": {"rows": 120}}, "A: 40 of 120 rows"),
    ],
)
def test_too_little_evidence_supports_nothing_and_still_refutes(
    audit: Evidence, changes: dict[str, Any], reason: str
) -> None:
    one = answer([audit], **UNIT, **changes)
    assert (one.answer, one.code, one.reason) == (Answer.UNSUPPORTED, "not_enough", reason)
    wrong = answer([audit], **{**UNIT, "number": Decimal("0.001")}, **changes)
    ran = changes.get("scope", {}).get("widths", [9])[0] == 9
    assert (wrong.answer is Answer.REFUTED) is ran


def test_a_width_that_was_not_run_for_a_bank_is_told(audit: Evidence) -> None:
    record = json.loads(json.dumps(audit.record))
    record["coverage"][0].update(ran=False, reason="it raised")
    one = answer([replace(audit, record=record)], **UNIT)
    assert (one.answer, one.code) == (Answer.UNSUPPORTED, "not_enough")
    assert "at width 9 was not run: it raised" in one.reason


def test_all_evidence_in_scope_must_hold(audit: Evidence) -> None:
    record = json.loads(json.dumps(audit.record))
    record["widths"][1]["triangle"]["latent"]["candidate_baseline"] = 0.5
    other = replace(audit, directory=Path("other"), record=record)
    one = answer([audit, other], **UNIT)
    assert one.answer is Answer.REFUTED
    assert [f.evidence for f in one.figures if f.holds is False] == ["other"]


@pytest.mark.parametrize(
    ("number", "tolerance", "expected"),
    [
        (Decimal("2.63e-3"), None, Decimal("5e-6")),
        (Decimal("2.60e-3"), None, Decimal("5e-6")),
        (Decimal("2.6e-3"), None, Decimal("5e-5")),
        (Decimal("1.00"), None, Decimal("0.005")),
        (5, None, Decimal(0)),
        (Decimal("2.63e-3"), {"relative": Decimal("0.01"), "meaning": "m"}, Decimal("2.63e-5")),
        (Decimal("2.63e-3"), {"absolute": Decimal("1e-4"), "meaning": "m"}, Decimal("1e-4")),
    ],
)
def test_a_tolerance_is_half_a_unit_of_the_last_digit_or_as_told(
    number: Any, tolerance: Any, expected: Decimal
) -> None:
    one = claim(metric="relative_rms", relation="within", number=number, tolerance=tolerance)
    assert tolerance_of(one)[0] == expected


@pytest.mark.parametrize("sign", [1, -1])
def test_within_holds_up_to_its_tolerance_and_not_a_step_beyond(audit: Evidence, sign: int) -> None:
    record = json.loads(json.dumps(audit.record))
    asked = {**UNIT, "relation": "within", "number": Decimal("2.50e-1")}
    for value, expected in (
        (0.25 + sign * 0.00499, Answer.SUPPORTED),
        (0.25 + sign * 0.00501, Answer.REFUTED),
    ):
        for width in record["widths"]:
            width["triangle"]["latent"]["candidate_baseline"] = value
        tolerance = {"absolute": Decimal("0.005"), "meaning": "a test"}
        one = answer([replace(audit, record=record)], **asked, tolerance=tolerance)
        assert one.answer is expected


@pytest.mark.parametrize(
    ("events", "units", "expected"),
    [(1, 120, "SUPPORTED"), (0, 120, "UNSUPPORTED"), (40, 120, "REFUTED"), (0, 10**6, "REFUTED")],
)
def test_a_count_on_other_rows_is_reproduced_refuted_or_open(
    audit: Evidence, events: int, units: int, expected: str
) -> None:
    record = json.loads(json.dumps(audit.record))
    for width in record["widths"]:
        width.update(differing_units=events, units=units)
    one = answer([replace(audit, record=record)], metric="differing_rows", relation="count",
                 number=1, of_rows=120)  # fmt: skip
    assert one.answer == expected
    assert one.code == ("other_rows" if expected == "UNSUPPORTED" else "")


def test_a_path_that_accepts_21_rows_refutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FrontPath, "check", lambda self, launch: None)
    one = answer([], kind="live", metric="width_check", path="route", relation="is",
                 number="refused", scope={"widths": [21]})  # fmt: skip
    assert one.answer is Answer.REFUTED


def test_a_second_block_that_changes_one_bit_refutes(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = gather.gather

    def faulty(shards: Any, out: Any, row_blocks: int = 1) -> None:
        plain(shards, out, row_blocks)
        if row_blocks == 2:
            out.view(np.uint8)[-1, -1] ^= 1

    monkeypatch.setattr(gather, "gather", faulty)
    one = answer([], kind="live", metric="row_blocks_changed_bits", relation="==", number=0,
                 scope={"ranks": 2, "geometry": "mini", "widths": [8]})  # fmt: skip
    assert one.answer is Answer.REFUTED
    assert [figure.value for figure in one.figures] == [2]


def test_an_audit_answers_its_claims_in_its_record() -> None:
    claims = load_claims("route-9-20")
    result = neartie.run_audit(BANKS[0], rows=[9], ranks=2, gate=False, claims=claims)
    record = json.loads(result.to_json())["claims"]
    found = {one["id"]: one for one in record["claims"]}
    assert record["evidence"] == ["this audit"]
    assert found["closer"]["answer"] == "SUPPORTED"
    assert found["one-unit-roundoff"]["answer"] == "REFUTED"
    assert found["latent-apart"]["reason"] == "no audit in scope (geometry k3)"
    assert sum(record["counts"].values()) == len(claims.claim)
    assert result.verdict.exit_status == 3
    assert result.exit_status == 1
    text = claims_text(record)
    assert "REFUTED                one-unit-roundoff" in text
    assert "<- against" in text


@pytest.mark.parametrize(
    ("numbers", "status"), [([1], 0), ([1, 0], 1), ([1, None], 3), ([0, None], 1)]
)
def test_the_exit_status_is_that_of_the_worst_claim(
    audit: Evidence, numbers: list[int | None], status: int
) -> None:
    claims = [
        claim(id=f"c{n}", kind="none", reason="r", needed="n")
        if number is None
        else claim(id=f"c{n}", metric="max_weight_ulp", relation="<=", number=number)
        for n, number in enumerate(numbers)
    ]
    assert check_claims(ClaimsFile(name="x", claim=tuple(claims)), [audit]).exit_status == status


def test_the_list_of_metrics_names_each_with_its_parameters() -> None:
    lines = metrics_text().splitlines()
    assert [line.split()[0] for line in lines] == list(METRICS)
    assert any("relative_rms " in line and "(takes tensor, pair)" in line for line in lines)


def test_a_claim_about_rows_does_not_count_those_of_the_gate() -> None:
    result = neartie.run_audit(BANKS[0], rows=[9], ranks=2)
    assert result.record["gate"]["rows"] > 100_000
    evidence = of_audit(result)
    own = neartie.open_bank(BANKS[0]).rows
    assert measured(evidence, "distinct_rows") == [own]
    one = answer([evidence], metric="differing_rows", relation="<=", number=0)
    assert f"of {own} independent rows" in one.figures[0].note
    bound = result.record["widths"][0]["set_rate_upper"]
    assert measured(evidence, "set_rate_upper") == [bound]
    assert bound < 5e-5
