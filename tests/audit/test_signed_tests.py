"""The tests that a signature names passed, warned or failed where the verdict says so."""

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import neartie
from neartie.audit.evidence.load import Evidence, load_evidence
from neartie.audit.evidence.signed_tests import SignedTests, signed_tests
from neartie.audit.evidence.view import record_view
from neartie.audit.verdict import State
from neartie.banks.errors import InputError

BANKS = ["gaussian:geometry=mini,rows=20,seed=1", "near_tie:geometry=mini,rows=20,gap=1,seed=1"]
WIDTHS = (9, 20)
NOT_RUN = Path(__file__).parents[2] / "docs" / "evidence" / "h200-not-run"


def of(evidence: Evidence) -> SignedTests:
    return signed_tests(evidence, record_view(evidence))


def runs(evidence: Evidence) -> list[str]:
    return [f"{c['bank']} at width {c['width']}" for c in evidence.record["coverage"]]


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """Every width of every bank fails."""
    made = neartie.run_audit(
        BANKS, candidate="route:select=radix_bf16", rows=WIDTHS, ranks=2, gate=False
    )
    assert made.verdict.state is State.FAIL
    return load_evidence(made.write(tmp_path_factory.mktemp("failing") / "out"))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    made = neartie.run_audit(BANKS[0], rows=[9], ranks=2, gate=False)
    return load_evidence(made.write(tmp_path_factory.mktemp("sound") / "out"))


def outcomes(evidence: Evidence) -> dict[str, set[str]]:
    """Outcomes of junit.xml, by bank and width: of what was written, by another reader."""
    found: dict[str, set[str]] = {}
    for case in ET.parse(evidence.directory / "junit.xml").iter("testcase"):
        _, _, rest = case.get("classname", "").partition("neartie.width ")
        width, _, bank = rest.partition(".")
        if bank and bank != "all banks":
            tags = {element.tag for element in case} - {"system-out"}
            found.setdefault(f"{bank} at width {width}", set()).update(tags or {"passed"})
    return found


def test_a_bank_fails_where_junit_fails_it(failing: Evidence, sound: Evidence) -> None:
    for evidence in (failing, sound):
        tests = of(evidence)
        seen = outcomes(evidence)
        assert sorted(seen) == sorted(runs(evidence))
        for name, found in seen.items():
            assert (name in tests.failed) == bool(found & {"failure", "error"}), name
            assert (name in tests.passed + tests.warned) == (found == {"passed"}), name
    assert set(runs(failing)) <= set(of(failing).failed)
    assert set(runs(sound)) <= set(of(sound).passed)


def test_a_gate_that_fails_names_no_bank_as_passed(tmp_path: Path) -> None:
    gate = neartie.run_gate(
        "topk_sigmoid", "hf:bias=bf16", "normal:geometry=mini", rows=900, widths=WIDTHS
    )
    assert gate.verdict.state is State.FAIL
    evidence = load_evidence(gate.write(tmp_path / "gate"))
    tests = of(evidence)
    assert set(runs(evidence)) <= set(tests.failed)
    assert not tests.passed
    assert {f"far_swap at width {width}" for width in WIDTHS} <= set(tests.failed)


def test_a_test_has_one_result(failing: Evidence, sound: Evidence) -> None:
    for tests in (of(failing), of(sound)):
        names = tests.passed + tests.warned + tests.failed
        assert len(names) == len(set(names))


@pytest.mark.parametrize("name", ["trtllm", "kimi-k3"])
def test_what_was_not_run_has_no_result(name: str) -> None:
    tests = of(load_evidence(NOT_RUN / name))
    assert tests == SignedTests((), ("limitation",), ())


def test_one_width_that_was_not_run_has_no_result(failing: Evidence) -> None:
    coverage = [dict(item) for item in failing.record["coverage"]]
    coverage[0] |= {"ran": False, "reason": "no room"}
    gone, *others = runs(failing)
    tests = of(replace(failing, record={**failing.record, "coverage": coverage}))
    assert gone not in tests.passed + tests.warned + tests.failed
    assert set(others) <= set(tests.failed)


@pytest.mark.parametrize(
    ("state", "result"),
    [("PASS_WITH_LIMITATIONS", "warned"), ("INCONCLUSIVE", "failed"), ("FAIL", "failed")],
)
def test_a_reason_about_a_bank_is_its_result(sound: Evidence, state: str, result: str) -> None:
    reason: dict[str, Any] = {"state": state, "code": "odd", "text": "x", "width": None}
    verdict = sound.record["verdict"]
    bank = sound.record["banks"][0]["name"]
    more = {**verdict, "reasons": [*verdict["reasons"], {**reason, "bank": bank}]}
    tests = of(replace(sound, record={**sound.record, "verdict": more}))
    assert runs(sound)[0] in getattr(tests, result)
    assert "odd" in getattr(tests, result)


def test_counts_of_another_form_are_refused(sound: Evidence) -> None:
    counts = sound.tables["histograms"].drop_columns(["count"])
    for tables, got in (({}, "missing"), ({"histograms": counts}, "other columns")):
        with pytest.raises(InputError, match=f"^histograms.parquet={got}"):
            of(replace(sound, tables=tables))
