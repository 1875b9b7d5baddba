"""What a signature states: an in-toto Statement v1 with a test result, made from the record alone.

Source: https://github.com/in-toto/attestation, spec/v1/statement.md and
spec/predicates/test-result.md. Field names of our own start with ``neartie_`` (its rule for
extension fields). The types of the package in-toto-attestation are generated protobuf messages; a
protobuf run time for one dictionary is not worth it, so they judge these statements in the tests.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..verdict import State
from .manifest import MANIFEST_FILE, Kind
from .view import RecordView

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "https://in-toto.io/attestation/test-result/v0.1"
PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"

RESULTS: Final[Mapping[State, str]] = {
    State.PASS: "PASSED",
    State.PASS_WITH_LIMITATIONS: "WARNED",
    State.FAIL: "FAILED",
    # in-toto knows three results, and a warned test has passed: what was not shown has not.
    State.INCONCLUSIVE: "FAILED",
    State.NOT_RUN: "FAILED",
}

_SIGNER: Final = "neartie_signer"
_COMMENT: Final = "neartie_comment"


class Subject(BaseModel):
    """What a statement is about; fields that are not named here are ignored, as in-toto demands."""

    model_config = ConfigDict(strict=True, frozen=True)

    name: str = ""
    digest: Annotated[dict[str, str], Field(min_length=1)]
    annotations: dict[str, Any] = {}


class Statement(BaseModel):
    """An in-toto Statement v1 with a test-result predicate, as read from an envelope."""

    model_config = ConfigDict(strict=True, frozen=True)

    type_: Annotated[Literal["https://in-toto.io/Statement/v1"], Field(alias="_type")]
    subject: Annotated[list[Subject], Field(min_length=1, max_length=1)]
    predicate_type: Annotated[
        Literal["https://in-toto.io/attestation/test-result/v0.1"], Field(alias="predicateType")
    ]
    predicate: dict[str, Any]

    @property
    def signer(self) -> str:
        """The name that the signer gave; empty where there is none."""
        return str(self.subject[0].annotations.get(_SIGNER, ""))

    @property
    def comment(self) -> str:
        """What the signer wrote beside the result; empty where there is nothing."""
        return str(self.subject[0].annotations.get(_COMMENT, ""))


def make_statement(
    view: RecordView, kind: Kind, digest: str, signer: str, comment: str
) -> dict[str, Any]:
    """Return the statement about the evidence whose manifest has this sha256, JSON values.

    The subject is the manifest. Its annotations hold kind, verdict and numerics class of the
    record, and who signs. ``passedTests`` are the (bank, width) that ran and the widths whose set
    rate is certified; ``warnedTests`` and ``failedTests`` are the codes of the verdict's reasons,
    in the failed ones also those that leave the verdict inconclusive.
    """
    annotations = {
        "neartie_kind": kind,
        "neartie_verdict": str(view.verdict.state),
        "neartie_numerics_class": str(view.numerics_class),
        "neartie_structural_tag": view.structural_tag or "",
        "neartie_provisional_class": str(view.provisional_class),
        _SIGNER: signer,
        _COMMENT: comment,
    }
    return {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": MANIFEST_FILE, "digest": {"sha256": digest}, "annotations": annotations},
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": _predicate(view),
    }


def first_difference(statement: Statement, expected: Mapping[str, Any]) -> str | None:
    """Return which field of a signed statement is not what the record gives, and both values.

    The digest of the subject is not looked at here; fields that ``expected`` lacks are ignored.
    """
    pairs = [
        (statement.subject[0].annotations, expected["subject"][0]["annotations"]),
        (statement.predicate, expected["predicate"]),
    ]
    for signed, wanted in pairs:
        for field, value in wanted.items():
            if field not in signed or signed[field] != value:
                return f"{field} is {_short(signed.get(field))}, the record gives {_short(value)}"
    return None


def _predicate(view: RecordView) -> dict[str, Any]:
    ran = [f"{c.bank} at width {c.width}" for c in view.coverage if c.ran]
    certified = [f"set_rate at width {w.width}" for w in view.widths if w.certified]
    reasons = view.verdict.reasons
    failed = {r.code for r in reasons if RESULTS[r.state] == "FAILED"}
    warned = {r.code for r in reasons} - failed
    return {
        "result": RESULTS[view.verdict.state],
        "configuration": _configuration(view),
        "passedTests": ran + certified,
        "warnedTests": sorted(warned),
        "failedTests": sorted(failed),
    }


def _configuration(view: RecordView) -> list[dict[str, Any]]:
    """The command, the policy and the banks, as resource descriptors."""
    banks = [{"name": bank.name, "digest": {"sha256": bank.digest}} for bank in view.banks]
    policy = json.dumps(view.policy, sort_keys=True)
    return [
        _content("command", view.command, "text/plain"),
        _content("policy", policy, "application/json"),
        *banks,
    ]


def _content(name: str, text: str, media_type: str) -> dict[str, Any]:
    content = base64.standard_b64encode(text.encode()).decode()
    return {"name": name, "content": content, "mediaType": media_type}


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
