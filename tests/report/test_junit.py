"""junit.xml follows the schema, says what the verdict says, and never calls a doubt a pass."""

import dataclasses
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xmlschema
from wrapped_path import WrappedPath

from neartie import run_audit
from neartie.audit.gate.result import GateResult
from neartie.audit.record import AuditRecord
from neartie.audit.report.checks import BANK_METRICS
from neartie.audit.report.junit import render_junit
from neartie.audit.report.triangle_checks import TRIANGLE_METRICS


@pytest.fixture(scope="module")
def schema(schemas: Path) -> Any:
    return xmlschema.XMLSchema(str(schemas / "junit-10.xsd"))


def cases(text: str) -> dict[tuple[str, str], ET.Element]:
    root = ET.fromstring(text)
    return {(c.get("classname", ""), c.get("name", "")): c for c in root.iter("testcase")}


def outcome(case: ET.Element) -> str | None:
    return next((e.tag for e in case if e.tag in ("failure", "error", "skipped")), None)


def test_it_follows_the_schema(
    schema: Any, record: AuditRecord, clean: AuditRecord, gate: GateResult
) -> None:
    for result in (record, clean, gate):
        schema.validate(render_junit(result))


def test_the_schema_refuses_what_is_no_junit(schema: Any, record: AuditRecord) -> None:
    broken = render_junit(record).replace("<testcase classname", "<testcase klassname")
    with pytest.raises(xmlschema.XMLSchemaValidationError):
        schema.validate(broken)


def test_one_test_per_width_bank_and_metric(record: AuditRecord) -> None:
    found = cases(render_junit(record))
    widths, banks = (9, 20), [b["name"] for b in record.record["banks"]]
    metrics = (*BANK_METRICS, *TRIANGLE_METRICS)
    expected = {(f"neartie.width {w}.{b}", m) for w in widths for b in banks for m in metrics}
    expected |= {(f"neartie.width {w}.all banks", "set_rate") for w in widths}
    expected |= {("neartie.all widths.all banks", m) for m in ("schedule", "verdict")}
    assert set(found) == expected


def test_outcomes_are_those_of_the_verdict(record: AuditRecord) -> None:
    found = cases(render_junit(record))
    planted = f"neartie.width 9.{record.record['banks'][-1]['name']}"
    swaps = found[planted, "set_classes"]
    assert outcome(swaps) == "failure"
    failure = swaps.find("failure")
    assert failure is not None
    assert failure.get("message", "").startswith(("far_swap", "multi_swap"))
    assert "row x rank of this bank: " in (failure.text or "")
    assert outcome(found[planted, "contracts"]) == "failure"
    assert outcome(found["neartie.width 9.all banks", "set_rate"]) == "error"
    assert outcome(found["neartie.all widths.all banks", "verdict"]) == "failure"
    assert outcome(found["neartie.all widths.all banks", "schedule"]) is None


def test_a_bank_without_a_share_in_a_failure_passes(record: AuditRecord) -> None:
    """The tie witness has no swap beyond the window: only the generated bank fails by sets."""
    witness = "neartie.width 9.k3-mini/tie-witness"
    shares = {
        c["set_class"] for c in record.swaps.to_pylist() if c["bank"] == "k3-mini/tie-witness"
    }
    assert not shares & {"far_swap", "multi_swap"}
    assert outcome(cases(render_junit(record))[witness, "set_classes"]) is None


def test_every_failing_reason_is_the_text_of_a_failure(record: AuditRecord) -> None:
    found = cases(render_junit(record))
    texts = [
        e.text or ""
        for (_, name), case in found.items()
        for e in case
        if e.tag == "failure" and name != "verdict"
    ]
    for reason in record.record["verdict"]["reasons"]:
        if reason["state"] == "FAIL" and not reason["code"].startswith("explained_by"):
            assert any(reason["text"] in text for text in texts), reason


def test_counts_are_the_elements(record: AuditRecord) -> None:
    for suite in ET.fromstring(render_junit(record)).iter("testsuite"):
        assert int(suite.get("tests", "")) == len(list(suite.iter("testcase")))
        for attribute, tag in (
            ("failures", "failure"),
            ("errors", "error"),
            ("skipped", "skipped"),
        ):
            assert int(suite.get(attribute, "")) == len(list(suite.iter(tag)))


def test_what_was_not_run_is_skipped_with_its_reason_and_the_verdict_is_an_error() -> None:
    result = run_audit("k3-mini/layer0", rows=[9], ranks=2, device="cuda")
    found = cases(render_junit(result))
    for metric in (*BANK_METRICS, *TRIANGLE_METRICS):
        skipped = found["neartie.width 9.k3-mini/layer0", metric].find("skipped")
        assert skipped is not None
        assert "general: device cuda: no CUDA device" in skipped.get("message", "")
    assert outcome(found["neartie.width 9.all banks", "set_rate"]) == "skipped"
    assert outcome(found["neartie.all widths.all banks", "schedule"]) == "skipped"
    assert outcome(found["neartie.all widths.all banks", "verdict"]) == "error"


def test_a_certified_rate_passes_and_says_its_bound(record: AuditRecord) -> None:
    content = json.loads(record.to_json())
    content["widths"][0] |= {
        "certified": True, "units": 100_000, "differing_units": 1, "set_rate_upper": 4.7e-5,
    }  # fmt: skip
    verdict = content["verdict"]
    verdict["reasons"] = [r for r in verdict["reasons"] if r["code"] != "set_rate"]
    case = cases(render_junit(dataclasses.replace(record, record=content)))[
        "neartie.width 9.all banks", "set_rate"
    ]
    assert outcome(case) is None
    assert "at most 4.70e-05 at 95%" in (case.findtext("system-out") or "")


def test_no_wording_lets_a_doubt_pass(record: AuditRecord) -> None:
    """Rate and schedule have their own figures: a reason that is lost changes no outcome."""
    content = json.loads(record.to_json())
    content["verdict"]["reasons"] = []
    content["schedule"]["fits"] = False
    found = cases(render_junit(dataclasses.replace(record, record=content)))
    assert outcome(found["neartie.width 9.all banks", "set_rate"]) == "error"
    assert outcome(found["neartie.all widths.all banks", "schedule"]) == "failure"


def test_a_width_is_not_taken_for_another_that_it_begins(record: AuditRecord) -> None:
    """`at width 9` must not match `at width 90`."""
    content = json.loads(record.to_json())
    for reason in content["verdict"]["reasons"]:
        reason["width"] = 90 if reason["width"] == 9 else reason["width"]
    found = cases(render_junit(dataclasses.replace(record, record=content)))
    planted = f"neartie.width 9.{record.record['banks'][-1]['name']}"
    assert outcome(found[planted, "set_classes"]) is None


def test_a_gate_has_the_tests_that_its_record_answers(gate: GateResult) -> None:
    text = render_junit(gate)
    found = cases(text)
    widths, (bank,) = (9, 20), [b["name"] for b in gate.record["banks"]]
    expected = {(f"neartie.width {w}.{bank}", m) for w in widths for m in BANK_METRICS}
    expected |= {(f"neartie.width {w}.all banks", "set_rate") for w in widths}
    assert set(found) == {*expected, ("neartie.all widths.all banks", "verdict")}
    assert 'name="neartie gate"' in text
    failing = {r["width"] for r in gate.record["verdict"]["reasons"] if r["code"] == "far_swap"}
    assert failing
    for width in widths:
        swaps = found[f"neartie.width {width}.{bank}", "set_classes"]
        assert outcome(swaps) == ("failure" if width in failing else None)
    assert gate.record["verdict"]["state"] == "FAIL"
    assert outcome(found["neartie.all widths.all banks", "verdict"]) == "failure"


def latent_late_rows(launch: Any, out: Any) -> None:
    if launch.width == 20 and launch.hidden is not None:
        out.latent[:, 15:] = 7.0


def latent_nan(launch: Any, out: Any) -> None:
    if launch.width == 20 and launch.hidden is not None:
        out.latent[:, 3, 3] = np.nan


def logits_shifted(launch: Any, out: Any) -> None:
    if launch.width == 9 and launch.hidden is not None:
        out.logits[:] += np.float32(3)


def logits_nan(launch: Any, out: Any) -> None:
    if launch.width == 9 and launch.hidden is not None:
        out.logits[:, 7, 7] = np.nan


def figures(result: AuditRecord, bank: str, width: int, metric: str) -> str:
    """The sides of a triangle in words, from values.parquet."""
    rms = {
        line["pair"]: "no number" if line["relative_rms"] is None else f"{line['relative_rms']:.3e}"
        for line in result.values.to_pylist()
        if (line["bank"], line["width"], line["rank"]) == (bank, width, None)
        and line["tensor"] == metric.removeprefix("triangle_")
    }
    return (
        f"relative RMS over all ranks: candidate - FP64 {rms['candidate_reference']}, "
        f"baseline - FP64 {rms['baseline_reference']}, apart {rms['candidate_baseline']}"
    )


@pytest.mark.parametrize(
    ("fault", "failed", "codes"),
    [
        (latent_late_rows, (20, "triangle_latent"), {"schedule_mismatch"}),
        (latent_nan, (20, "triangle_latent"), {"schedule_mismatch", "nonfinite_output"}),
        (logits_shifted, (9, "triangle_logits"), {"wrong_logits"}),
        (logits_nan, (9, "triangle_logits"), {"wrong_logits", "nonfinite_output"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_triangle_fails_where_the_record_has_the_finding_and_nowhere_else(
    fault: Any, failed: tuple[int, str], codes: set[str]
) -> None:
    """Of two banks, two widths and two tensors, with a bank that has neither tensor."""
    banks = ["gaussian:geometry=mini,rows=20,seed=4", "near_tie:geometry=mini,rows=20,gap=1"]
    path = WrappedPath(fault, name="spoilt-route")
    result = run_audit(banks, candidate=path, rows=(9, 20), ranks=2)
    named = {(f["name"], f["width"]) for f in result.record["findings"]}
    assert {(code, failed[0]) for code in codes} <= named
    found = cases(render_junit(result))
    gaussian, near_tie = (bank["name"] for bank in result.record["banks"])
    for width in (9, 20):
        for metric in TRIANGLE_METRICS:
            case = found[f"neartie.width {width}.{gaussian}", metric]
            wrong = (width, metric) == failed
            assert outcome(case) == ("failure" if wrong else None)
            text = "".join(case.itertext())
            assert all(code in text for code in codes) == wrong
            assert figures(result, gaussian, width, metric) in text
            skipped = found[f"neartie.width {width}.{near_tie}", metric].find("skipped")
            assert skipped is not None
            assert "the rows of this bank start at logits" in skipped.get("message", "")


def test_a_triangle_that_nothing_was_held_against_does_not_pass(record: AuditRecord) -> None:
    content = json.loads(record.to_json())
    content["schedule"] |= {"fits": None}
    place = "neartie.width 9.k3-mini/tie-witness", "triangle_latent"
    case = cases(render_junit(dataclasses.replace(record, record=content)))[place]
    assert outcome(case) == "skipped"
    for code, text in (
        ("no_schedule", "latent values differ and no schedule can explain it"),
        ("not_compared", "latent was not compared: candidate x shows none"),
    ):
        reason = {"state": "INCONCLUSIVE", "code": code, "text": text, "width": None, "bank": None}
        content["verdict"]["reasons"] = [reason]
        found = cases(render_junit(dataclasses.replace(record, record=content)))
        assert outcome(found[place]) == "error"
        assert text in "".join(found[place].itertext())
        assert outcome(found[place[0], "triangle_logits"]) is None


def test_any_name_gives_valid_xml(schema: Any, hostile: AuditRecord) -> None:
    text = render_junit(hostile)
    schema.validate(text)
    assert "\\x00\\x1b" in text
    assert "<img" not in text
    text.encode()
