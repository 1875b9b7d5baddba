"""Two runs side by side: every rule by which the second is worse is met, and equal runs are not."""

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from neartie.audit.evidence.diff import EvidenceDiff, evidence_diff
from neartie.audit.evidence.load import Evidence
from neartie.audit.report.diff import print_diff
from neartie.banks.errors import InputError

MakeEvidence = Callable[..., Evidence]
MakeCertificate = Callable[..., dict[str, Any]]
Edit = Callable[[dict[str, Any]], object]


def rules(diff: EvidenceDiff) -> set[str]:
    return {worse.rule for worse in diff.worse}


def differing(*numbers: int) -> Edit:
    """Record that this many units differ at widths 9 and 12."""

    def edit(record: dict[str, Any]) -> None:
        for width, number in zip(record["widths"], numbers, strict=True):
            width["differing_units"] = number

    return edit


def test_equal_runs_are_alike(
    make_evidence: MakeEvidence, make_certificate: MakeCertificate
) -> None:
    def edit(record: dict[str, Any]) -> None:
        differing(2, 0)(record)
        record["widths"][0]["counts"]["far_swap"] = 1
        record["coverage"][1]["ran"] = False

    swaps = [make_certificate(3), make_certificate(5)]
    first = make_evidence("a", edit, swaps)
    second = make_evidence("b", edit, swaps[::-1], date="2026-02-01")
    diff = evidence_diff(first, second)
    assert (diff.worse, diff.unlike, diff.exit_status, diff.same_rows) == ([], [], 0, True)
    assert [(t.first, t.second, t.rows) for t in diff.certificates.transitions] == [
        ("near_tie", "near_tie", 2)
    ]
    assert [w.paired_p for w in diff.widths] == [1.0, 1.0]


def set_class(**classes: str) -> Edit:
    return lambda record: record.update(classes)


WORSE: list[tuple[str, Edit, Edit]] = [
    ("state", lambda r: 0, lambda r: r["verdict"].update(state="FAIL")),
    ("state", lambda r: r["verdict"].update(state="PASS"), lambda r: 0),
    ("class", set_class(numerics_class="LIGHT"), set_class(numerics_class="VISIBLE")),
    ("class", set_class(numerics_class="VISIBLE"), set_class(numerics_class="UNKNOWN")),
    ("class", lambda r: 0, set_class(numerics_class="BEHAVIOURAL")),
    ("class", lambda r: 0, set_class(provisional_class="VISIBLE")),
    ("class", set_class(structural_tag="FP32-structural"), lambda r: 0),
    ("policy", lambda r: 0, lambda r: r["policy"].update(weight_budget_ulp=9)),
    ("coverage", lambda r: 0, lambda r: r["coverage"][0].update(ran=False)),
    ("coverage", lambda r: 0, lambda r: r["coverage"].pop()),
    (
        "reason",
        lambda r: 0,
        lambda r: r["verdict"]["reasons"].append({"state": "FAIL", "code": "x", "text": ""}),
    ),
    (
        "reason",
        lambda r: 0,
        lambda r: r["verdict"]["reasons"].append({"state": "FAIL", "code": "set_rate", "text": ""}),
    ),
    ("beyond_ties", lambda r: 0, lambda r: r["widths"][1]["counts"].update(far_swap=1)),
    ("weights", lambda r: 0, lambda r: r["widths"][1].update(max_weight_ulp=2)),
]


@pytest.mark.parametrize(("rule", "before", "after"), WORSE)
def test_each_rule_makes_the_second_worse_and_not_the_other_way(
    make_evidence: MakeEvidence, rule: str, before: Edit, after: Edit
) -> None:
    first, second = make_evidence("a", before), make_evidence("b", after)
    diff = evidence_diff(first, second)
    assert rules(diff) == {rule}
    assert diff.exit_status == 1
    assert rules(evidence_diff(second, first)) == set()


def test_a_reason_that_only_discloses_is_new_and_not_worse(make_evidence: MakeEvidence) -> None:
    reason = {"state": "PASS_WITH_LIMITATIONS", "code": "near_tie", "text": ""}
    second = make_evidence("b", lambda r: r["verdict"]["reasons"].append(reason))
    diff = evidence_diff(make_evidence("a"), second)
    assert diff.new_reasons == ["PASS_WITH_LIMITATIONS near_tie"]
    assert not diff.worse


@pytest.mark.parametrize(("new", "grew"), [(5, False), (6, True)])
def test_a_rate_grows_by_the_rows_that_disagree(
    make_evidence: MakeEvidence, make_certificate: MakeCertificate, new: int, grew: bool
) -> None:
    # Holm at 95% over two widths: 0.5 ** 5 is above 0.025, 0.5 ** 6 below.
    old = [make_certificate(20), make_certificate(21)]
    rows = old + [make_certificate(row) for row in range(new)]
    first = make_evidence("a", differing(2, 0), old)
    second = make_evidence("b", differing(2 + new, 0), rows)
    diff = evidence_diff(first, second)
    assert diff.widths[0].paired_p == 0.5**new
    assert rules(diff) == ({"set_rate"} if grew else set())
    assert (diff.certificates.new, diff.certificates.vanished) == (new, 0)


def test_without_all_certificates_the_rates_are_two_samples(
    make_evidence: MakeEvidence, make_certificate: MakeCertificate
) -> None:
    second = make_evidence("b", differing(7, 0), [make_certificate(n) for n in range(6)])
    diff = evidence_diff(make_evidence("a"), second)
    assert diff.widths[0].paired_p is None
    # 24 and 24 rows: C(24, 7) / C(48, 7), by the hypergeometric law.
    assert diff.widths[0].rate.fisher_p == pytest.approx(346104 / 73629072)
    assert rules(diff) == {"set_rate"}


def other_bank(record: dict[str, Any]) -> None:
    record["banks"][0]["digest"] = "0" * 64


def test_other_rows_of_a_bank_are_compared_by_rates_alone(
    make_evidence: MakeEvidence, make_certificate: MakeCertificate
) -> None:
    def edit(record: dict[str, Any]) -> None:
        other_bank(record)
        record["widths"][0]["max_weight_ulp"] = 7
        record["widths"][0]["counts"]["far_swap"] = 1

    first = make_evidence("a", differing(1, 0), [make_certificate(3)])
    second = make_evidence("b", edit, [make_certificate(3)])
    diff = evidence_diff(first, second)
    assert not diff.same_rows
    assert not diff.worse
    # The same row number of another bank is another row.
    assert [(t.first, t.second, t.rows) for t in diff.certificates.transitions] == [
        ("near_tie", "not run", 1),
        ("not run", "near_tie", 1),
    ]
    assert [u for u in diff.unlike if u.startswith("bank")] == [
        f"bank gaussian:rows=24 ({first.record['banks'][0]['digest'][:12]}) is in the first only",
        "bank gaussian:rows=24 (000000000000) is in the second only",
    ]


def test_certificates_are_matched_by_key_and_the_worst_are_shown(
    make_evidence: MakeEvidence, make_certificate: MakeCertificate
) -> None:
    first = [
        make_certificate(1), make_certificate(2, width=12), make_certificate(3, rank=1),
        make_certificate(4, set_class="exact_tie", gap_ulp=0),
    ]  # fmt: skip
    second = [
        make_certificate(2), make_certificate(3, rank=0), make_certificate(1, set_class="far_swap"),
        *(make_certificate(10 + n, gap_ulp=n) for n in range(4)),
        make_certificate(9, set_class="multi_swap", gap_ulp=None),
    ]  # fmt: skip
    found = evidence_diff(
        make_evidence("a", swaps=first), make_evidence("b", swaps=second)
    ).certificates
    assert {(t.first, t.second): t.rows for t in found.transitions} == {
        ("near_tie", "far_swap"): 1,
        ("near_tie", "no certificate"): 2,
        ("exact_tie", "no certificate"): 1,
        ("no certificate", "near_tie"): 6,
        ("no certificate", "multi_swap"): 1,
    }
    assert (found.new, found.vanished, found.changed) == (7, 3, 1)
    assert [c["row"] for c in found.worst_new] == [9, 13, 12]
    assert [c["row"] for c in found.worst_vanished] == [2, 3, 4]


def test_what_is_not_alike_is_said_first(make_evidence: MakeEvidence) -> None:
    def edit(record: dict[str, Any]) -> None:
        record.update(ranks=4, device="cuda", record_version=2)
        record["candidate"]["name"] = "route:select=hf"
        record["policy"].update(name="mine", set_rate=1e-5)
        record["banks"][0]["rows"] = 25

    assert evidence_diff(
        make_evidence("a"), make_evidence("b", edit, versions={"numpy": "1"})
    ).unlike == [
        "record version: 1, then 2",
        "candidate: route, then route:select=hf",
        "ranks: 2, then 4",
        "device: cpu, then cuda",
        f"version of numpy: {np.__version__}, then 1",
        "policy name: default, then mine",
        "policy set_rate: 5e-05, then 1e-05",
        "bank gaussian:rows=24: 24 rows, then 25",
    ]


def test_gates_compare_and_kinds_do_not_mix(make_evidence: MakeEvidence) -> None:
    def without_triangle(record: dict[str, Any]) -> None:
        for width in record["widths"]:
            del width["triangle"]
        del record["schedule"]

        record["pooled"] = {"certificates_left_out": len(record["banks"])}

    gate = make_evidence("a", without_triangle, kind="gate")
    other = make_evidence("b", without_triangle, kind="gate", date="2026-02-01")
    diff = evidence_diff(gate, other)
    assert diff.kind == "gate"
    assert diff.unlike == [
        f"the {which} left 1 certificates out: rows without one may differ"
        for which in ("first", "second")
    ]
    with pytest.raises(InputError, match=r"^kind=gate and audit, but should be two of one kind"):
        evidence_diff(gate, make_evidence("c"))


@pytest.mark.parametrize(
    ("field", "edit"),
    [
        ("widths", lambda r: r.pop("widths")),
        ("widths.0.units", lambda r: r["widths"][0].update(units="24")),
        ("verdict.state", lambda r: r["verdict"].update(state="GOOD")),
        ("set_rate", lambda r: r["policy"].update(set_rate=None)),
        ("confidence", lambda r: r["policy"].update(confidence=1.0)),
        ("widths.1.set_rate_upper", lambda r: r["widths"][1].update(set_rate_upper="none")),
    ],
)
def test_a_record_of_another_shape_is_named(
    make_evidence: MakeEvidence, field: str, edit: Edit
) -> None:
    with pytest.raises(InputError, match=rf"^{field}=.*audit\.json\]$"):
        evidence_diff(make_evidence("a", edit), make_evidence("b"))


def test_a_record_with_a_number_that_is_none_is_not_read(make_evidence: MakeEvidence) -> None:
    def edit(record: dict[str, Any]) -> None:
        record["widths"][1]["set_rate_upper"] = float("nan")

    with pytest.raises(InputError, match=r"^file=.*audit\.json, .*NaN is no finite number"):
        evidence_diff(make_evidence("a", edit), make_evidence("b"))


def test_certificates_of_no_bank_or_class_are_refused(
    make_evidence: MakeEvidence, make_certificate: MakeCertificate
) -> None:
    stray = make_evidence("a", swaps=[make_certificate(1, bank="other")])
    with pytest.raises(InputError, match=r"^bank=other, but should be a bank of the record"):
        evidence_diff(stray, stray)
    odd = make_evidence("b", swaps=[make_certificate(1, set_class="odd")])
    with pytest.raises(InputError, match=r"^set_class=odd"):
        evidence_diff(odd, odd)
    none = Evidence(stray.directory, stray.kind, stray.record, {}, stray.manifest)
    with pytest.raises(InputError, match=r"^swaps=missing"):
        evidence_diff(none, none)


def test_the_comparison_is_json_and_text(
    make_evidence: MakeEvidence, make_certificate: MakeCertificate
) -> None:
    def edit(record: dict[str, Any]) -> None:
        record["banks"][0]["name"] = "[bold]"
        differing(1, 0)(record)

    first = make_evidence("a", edit, [make_certificate(3, bank="[bold]")])
    second = make_evidence("b", lambda r: r["widths"][1].update(max_weight_ulp=2))
    diff = evidence_diff(first, second)
    document = json.loads(json.dumps(diff.as_dict(), allow_nan=False))
    assert document["worse"] == [
        {"rule": "weights", "text": "width 12: weights differ by up to 2 FP32 ULP, was 1"}
    ]
    console = Console(width=200, record=True, file=io.StringIO())
    print_diff(diff, console)
    text = console.export_text()
    assert "audits of the same rows" in text
    assert "1 / 24" in text
    assert "worst vanished:" in text
    assert "[bold]" in text
    assert "worse by weights: width 12" in text
    assert text.rstrip().endswith("second  worse")
