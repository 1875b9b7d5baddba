"""results.sarif follows the official schema and holds every reason and the gravest swaps."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from neartie.audit.gate.result import GateResult
from neartie.audit.record import AuditRecord
from neartie.audit.report import sarif
from neartie.audit.report.sarif import render_sarif


@pytest.fixture(scope="module")
def validator(schemas: Path) -> Any:
    schema = json.loads((schemas / "sarif-schema-2.1.0.json").read_text())
    jsonschema.Draft4Validator.check_schema(schema)
    return jsonschema.Draft4Validator(schema)


def test_it_follows_the_schema(
    validator: Any, record: AuditRecord, clean: AuditRecord, hostile: AuditRecord, gate: GateResult
) -> None:
    for result in (record, clean, hostile, gate):
        validator.validate(json.loads(render_sarif(result)))


def test_the_schema_refuses_what_is_no_sarif(validator: Any, record: AuditRecord) -> None:
    log = json.loads(render_sarif(record))
    log["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(log)


def test_levels_and_rules_are_those_of_the_verdict(record: AuditRecord) -> None:
    run = json.loads(render_sarif(record))["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    reasons = record.record["verdict"]["reasons"]
    told = [(r["ruleId"], r["message"]["text"]) for r in run["results"][: len(reasons)]]
    assert told == [(r["code"], r["text"]) for r in reasons]
    levels = {r["ruleId"]: r["level"] for r in run["results"]}
    assert levels["far_swap"] == "error"
    assert levels["near_tie"] == "note"
    assert levels["set_rate"] == "warning"


def test_a_gate_has_its_reasons_and_certificates(gate: GateResult) -> None:
    run = json.loads(render_sarif(gate))["runs"][0]
    reasons = gate.record["verdict"]["reasons"]
    told = [(r["ruleId"], r["message"]["text"]) for r in run["results"][: len(reasons)]]
    assert told == [(r["code"], r["text"]) for r in reasons]
    for result in run["results"][: len(reasons)]:
        place = result["locations"][0]["physicalLocation"]
        assert place == {"artifactLocation": {"uri": "gate.json"}}
    assert len(run["results"]) == len(reasons) + gate.swaps.num_rows > len(reasons)
    assert run["invocations"][0]["exitCode"] == 1
    assert run["properties"]["verdict"] == "FAIL"


def test_a_certificate_says_where_it_lies(record: AuditRecord) -> None:
    run = json.loads(render_sarif(record))["runs"][0]
    found = run["results"][len(record.record["verdict"]["reasons"]) :]
    assert len(found) == record.swaps.num_rows == run["properties"]["certificates"]
    rows = {(c["bank"], c["row"], c["width"], c["rank"]) for c in record.swaps.to_pylist()}
    assert rows == {
        tuple(r["properties"][k] for k in ("bank", "row", "width", "rank")) for r in found
    }
    for result in found:
        (location,) = result["locations"]
        p = result["properties"]
        name = f"{p['bank']}/row {p['row']}/width {p['width']}/rank {p['rank']}"
        assert location["logicalLocations"][0]["fullyQualifiedName"] == name
    prints = [r["partialFingerprints"]["neartieRow/v1"] for r in found]
    assert len(set(prints)) == len(prints)


def test_what_is_left_out_is_counted(record: AuditRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sarif, "MAX_CERTIFICATES", 2)
    run = json.loads(render_sarif(record))["runs"][0]
    assert len(run["results"]) == len(record.record["verdict"]["reasons"]) + 2
    assert run["properties"]["certificatesLeftOut"] == record.swaps.num_rows - 2
    assert {r["ruleId"] for r in run["results"][-2:]} == {"far_swap"}
    assert record.swaps["set_class"].to_pylist().count("far_swap") >= 2


def test_an_unknown_code_still_has_a_rule(validator: Any, record: AuditRecord) -> None:
    content = json.loads(record.to_json())
    content["verdict"]["reasons"].append({"state": "FAIL", "code": "new_code", "text": "new"})
    log = json.loads(render_sarif(dataclasses.replace(record, record=content)))
    validator.validate(log)
    rules = {
        r["id"]: r["shortDescription"]["text"] for r in log["runs"][0]["tool"]["driver"]["rules"]
    }
    assert rules["new_code"] == "new code"
