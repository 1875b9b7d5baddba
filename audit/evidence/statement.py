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
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, TypeGuard

from pydantic import BaseModel, ConfigDict, Field

from .manifest import MANIFEST_FILE, Kind
from .signed_tests import RESULTS, SignedTests
from .view import RecordView

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "https://in-toto.io/attestation/test-result/v0.1"
PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"

FORM: Final = 2
"""Of the statements that are made; raised where a list of tests gets another meaning."""

_FORM: Final = "neartie_form"
_SIGNER: Final = "neartie_signer"
_COMMENT: Final = "neartie_comment"
_EARLIER: Final = "neartie_earlier_signatures"


@dataclass(frozen=True, slots=True)
class SignersPart:
    """What a statement holds that no record gives.

    Attributes:
        signer, comment: as the signer gave them.
        earlier: sha256 hex of every signature that was there before, by the file's name.
        form: 1 has no list of earlier signatures, and names as passed whatever was run.
    """

    signer: str
    comment: str = ""
    earlier: Mapping[str, str] = field(default_factory=dict)
    form: int = FORM


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
    def own(self) -> SignersPart:
        """What the signer gave; a field that is missing, or of another type, is empty."""
        given = self.subject[0].annotations
        earlier = given.get(_EARLIER)
        kept = earlier if _is_names(earlier) else {}
        signer, comment = (str(given.get(name, "")) for name in (_SIGNER, _COMMENT))
        return SignersPart(signer, comment, kept, FORM if _FORM in given else 1)


def _is_names(value: Any) -> TypeGuard[dict[str, str]]:
    return isinstance(value, dict) and all(isinstance(digest, str) for digest in value.values())


def make_statement(
    view: RecordView, kind: Kind, digest: str, own: SignersPart, tests: SignedTests
) -> dict[str, Any]:
    """Return the statement about the evidence whose manifest has this sha256, JSON values.

    The subject is the manifest. Its annotations hold kind, verdict and numerics class of the
    record, who signs, and which signatures were there before.

    Args:
        view: the record.
        kind: of the evidence.
        digest: sha256 hex of ``manifest.json``.
        own: what the signer adds.
        tests: those that passed, were warned of and failed, as ``own.form`` has them.
    """
    annotations = {
        "neartie_kind": kind,
        "neartie_verdict": str(view.verdict.state),
        "neartie_numerics_class": str(view.numerics_class),
        "neartie_structural_tag": view.structural_tag or "",
        "neartie_provisional_class": str(view.provisional_class),
        _SIGNER: own.signer,
        _COMMENT: own.comment,
        **({_FORM: own.form, _EARLIER: dict(own.earlier)} if own.form > 1 else {}),
    }
    return {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": MANIFEST_FILE, "digest": {"sha256": digest}, "annotations": annotations},
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "result": RESULTS[view.verdict.state],
            "configuration": _configuration(view),
            "passedTests": list(tests.passed),
            "warnedTests": list(tests.warned),
            "failedTests": list(tests.failed),
        },
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
        for name, value in wanted.items():
            if name not in signed or signed[name] != value:
                return f"{name} is {_short(signed.get(name))}, the record gives {_short(value)}"
    return None


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
