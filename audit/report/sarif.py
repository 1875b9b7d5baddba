"""``results.sarif``: reasons and swap certificates as results of SARIF 2.1.0.

A result's place is a row of a bank and no line of a file: it is a logical location, with the
evidence file that holds the row as the artifact.

Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from ...banks.errors import printable
from ..gate.record import GateRecord
from ..metrics.swaps import SetClass
from ..record import AuditRecord
from ..verdict import State
from .figures import certificate_text, class_line, worst_certificates

MAX_CERTIFICATES: Final = 4000
"""Certificates in the log, gravest first: GitHub shows 5,000 results of a run."""

SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)

_LEVELS: Final = {
    State.FAIL: "error", State.NOT_RUN: "warning", State.INCONCLUSIVE: "warning",
    State.PASS_WITH_LIMITATIONS: "note", State.PASS: "none",
}  # fmt: skip

_RULES: Final = {
    SetClass.EXACT_TIE: "One expert for another; their keys are equal in the reference",
    SetClass.TIE_GROUP: "Several experts for others; all their keys are equal in the reference",
    SetClass.GROUP_TIE: "Another expert group; the scores of the groups are equal",
    SetClass.NEAR_TIE: "One expert for another, their keys apart by no more than the window",
    SetClass.NOISE_SWAP: "One expert for another, within the declared perturbation of the inputs",
    SetClass.FAR_SWAP: "One expert for another, beyond window and declared perturbation",
    SetClass.MULTI_SWAP: "Several experts for others that are no ties",
    "not_run": "Something that was asked for was not run",
    "no_rows": "No row was compared",
    "set_rate": "The rate of rows with another expert set, and its bound",
    "weight_budget": "Expert weights differ by more than the budget",
    "limitation": "What a signature must disclose",
    "not_compared": "A tensor that one path does not show",
    "no_schedule": "Latent values differ and no declared schedule explains it",
    "schedule_mismatch": "Latent errors do not fit the declared schedule",
}


def render_sarif(record: AuditRecord | GateRecord) -> str:
    """Return the log: one run, a rule per code, a result per reason and certificate."""
    content = record.record
    certificates = worst_certificates(record.swaps, MAX_CERTIFICATES)
    states = _states(content)
    file = "gate.json" if isinstance(record, GateRecord) else "audit.json"
    results = [_reason(reason, file) for reason in content["verdict"]["reasons"]]
    results += [
        _certificate(certificate, states.get(certificate["set_class"], State.PASS))
        for certificate in certificates
    ]
    codes = list(dict.fromkeys(result["ruleId"] for result in results))
    for result in results:
        result["ruleIndex"] = codes.index(result["ruleId"])
    run = {
        "tool": {
            "driver": {
                "name": "neartie",
                "version": content["environment"]["neartie"],
                "rules": [_rule(code) for code in codes],
            }
        },
        "invocations": [
            {
                "commandLine": printable(content["command"]),
                "exitCode": record.verdict.exit_status,
                "executionSuccessful": True,
            }
        ],
        "results": results,
        "properties": {
            "verdict": content["verdict"]["state"],
            "numericsClass": class_line(content),
            "certificates": record.swaps.num_rows,
            "certificatesLeftOut": record.swaps.num_rows - len(certificates),
        },
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=1, allow_nan=False) + "\n"


def _states(record: Mapping[str, Any]) -> dict[str, State]:
    """The gravest state that the verdict gives to each code."""
    order = list(State)
    states: dict[str, State] = {}
    for reason in record["verdict"]["reasons"]:
        state = State(reason["state"])
        states[reason["code"]] = min(states.get(reason["code"], state), state, key=order.index)
    return states


def _rule(code: str) -> dict[str, Any]:
    words = code.replace("_", " ").replace(":", ": ")
    return {"id": code, "shortDescription": {"text": _RULES.get(code, words)}}


def _reason(reason: Mapping[str, Any], file: str) -> dict[str, Any]:
    state = State(reason["state"])
    text = printable(reason["text"])
    return {
        "ruleId": printable(reason["code"]),
        "level": _LEVELS[state],
        "message": {"text": text},
        "locations": [_location(file, "verdict", "verdict")],
        "partialFingerprints": {"neartieReason/v1": _hash([reason["code"], text])},
        "properties": {"state": str(state)},
    }


def _certificate(certificate: Mapping[str, Any], state: State) -> dict[str, Any]:
    c = certificate
    bank = printable(c["bank"])
    row = f"{bank}/row {c['row']}/width {c['width']}/rank {c['rank']}"
    place = [c["bank"], c["row"], c["width"], c["rank"], c["dropped"], c["added"]]
    return {
        "ruleId": c["set_class"],
        "level": _LEVELS[state],
        "message": {"text": printable(certificate_text(c))},
        "locations": [_location("swaps.parquet", f"row {c['row']}", row)],
        "partialFingerprints": {"neartieRow/v1": _hash(place)},
        "properties": {
            "bank": bank, "row": c["row"], "width": c["width"], "rank": c["rank"],
            "replicas": c["replicas"], "dropped": c["dropped"], "added": c["added"],
            "gapUlp": c["gap_ulp"], "flags": c["flags"], "replay": printable(c["snippet"]),
        },
    }  # fmt: skip


def _location(file: str, name: str, full_name: str) -> dict[str, Any]:
    return {
        "physicalLocation": {"artifactLocation": {"uri": file}},
        "logicalLocations": [{"name": name, "fullyQualifiedName": full_name, "kind": "element"}],
    }


def _hash(place: list[Any]) -> str:
    return hashlib.sha256(json.dumps(place).encode()).hexdigest()
