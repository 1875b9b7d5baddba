"""A signature binds one verdict to one evidence: no edit and no other use of it goes unseen."""

import base64
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from in_toto_attestation.predicates.test_result.v0 import test_result_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement as OtherStatement
from overwrite import overwrite
from securesystemslib.dsse import Envelope as OtherEnvelope

from neartie.audit.evidence import dsse
from neartie.audit.evidence.dsse import sign_payload
from neartie.audit.evidence.identity import manifest_digest
from neartie.audit.evidence.keys import PublicKey, SigningKey, load_public_key, load_signing_key
from neartie.audit.evidence.load import Evidence, load_evidence, read_evidence
from neartie.audit.evidence.manifest import Manifest, document_text
from neartie.audit.evidence.sign import SignatureState, Trust, check_signatures, sign_evidence
from neartie.audit.verdict import NumericsClass, State
from neartie.banks.errors import InputError

MakeEvidence = Callable[..., Evidence]
NAME = "Ada <ada@example.org>"
EARLIER = "neartie_earlier_signatures"


@pytest.fixture(scope="session")
def key_files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Private key files in OpenSSH's format by name, each with its .pub beside it."""
    folder = tmp_path_factory.mktemp("keys")

    def of(name: str) -> Path:
        path = folder / name
        if not path.exists():
            key: Any = (
                ec.generate_private_key(ec.SECP256R1())
                if name.startswith("ec")
                else ed25519.Ed25519PrivateKey.generate()
            )
            path.write_bytes(
                key.private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.OpenSSH,
                    serialization.NoEncryption(),
                )
            )
            public = key.public_key().public_bytes(
                serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
            )
            path.with_name(name + ".pub").write_bytes(public + f" {NAME} {name}\n".encode())
        return path

    return of


@pytest.fixture
def ada(key_files: Callable[[str], Path]) -> SigningKey:
    return load_signing_key(key_files("ada"), lambda: None)


@pytest.fixture
def ada_public(key_files: Callable[[str], Path]) -> PublicKey:
    return load_public_key(key_files("ada").with_name("ada.pub"))


@pytest.fixture
def bob(key_files: Callable[[str], Path]) -> SigningKey:
    return load_signing_key(key_files("ec-bob"), lambda: None)


@pytest.fixture
def bob_public(key_files: Callable[[str], Path]) -> PublicKey:
    return load_public_key(key_files("ec-bob").with_name("ec-bob.pub"))


def codes(states: list[SignatureState]) -> list[str]:
    return [state.code for state in states]


def payload_of(file: Path) -> dict[str, Any]:
    statement: dict[str, Any] = json.loads(
        base64.b64decode(json.loads(file.read_text())["payload"])
    )
    return statement


def write_envelope(file: Path, document: Any) -> None:
    """Write a changed envelope in the layout of one that was signed: only its content is wrong."""
    overwrite(file, (json.dumps(document, indent=1) + "\n").encode())


def replace_payload(
    file: Path, key: SigningKey, change: Callable[[dict[str, Any]], object]
) -> None:
    """Sign a changed statement with the signer's own key: only its content is wrong."""
    statement = payload_of(file)
    change(statement)
    write_envelope(file, sign_payload(json.dumps(statement).encode(), key))


@pytest.mark.parametrize(
    ("payload_type", "body", "expected"),
    [
        # protocol.md, "Test Vectors".
        (
            "http://example.com/HelloWorld",
            b"hello world",
            b"DSSEv1 29 http://example.com/HelloWorld 11 hello world",
        ),
        # By the definition: lengths are those of bytes, and an empty part keeps its spaces.
        ("", b"", b"DSSEv1 0  0 "),
        ("h\u00e9", b"\xff\x00", b"DSSEv1 3 h\xc3\xa9 2 \xff\x00"),
    ],
)
def test_the_encoding_is_that_of_the_specification(
    payload_type: str, body: bytes, expected: bytes
) -> None:
    assert OtherEnvelope(body, payload_type, {}).pae() == expected


def test_the_signature_of_the_specification_verifies(tmp_path: Path) -> None:
    # Key, payload and signature of protocol.md; there r and s stand side by side, here in DER.
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    x = 46950820868899156662930047687818585632848591499744589407958293238635476079160
    y = 5640078356564379163099075877009565129882514886557779369047442380624545832820
    public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    (tmp_path / "k").write_bytes(
        public.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    raw = base64.b64decode(
        "A3JqsQGtVsJ2O2xqrI5IcnXip5GToJ3F+FnZ+O88SjtR6rDAajabZKciJTfUiHqJPcIAriEGAHTVeCUjW2JIZA=="
    )
    signature = encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
    key = load_public_key(tmp_path / "k")
    kind = "http://example.com/HelloWorld"
    assert dsse.verifies(b"hello world", kind, signature, key)
    assert not dsse.verifies(b"hello worle", kind, signature, key)
    assert not dsse.verifies(b"hello world", kind + "s", signature, key)


@pytest.mark.parametrize("kind", ["audit", "gate"])
@pytest.mark.parametrize("state", list(State))
def test_a_statement_holds_what_the_record_says_by_in_totos_own_types(
    make_evidence: MakeEvidence, ada: SigningKey, state: State, kind: str
) -> None:
    def edit(record: dict[str, Any]) -> None:
        record["verdict"]["state"] = str(state)
        record["numerics_class"] = "BEHAVIOURAL" if state is State.FAIL else "LIGHT"

    evidence = make_evidence(edit=edit, kind=kind)
    file = sign_evidence(evidence, ada, comment="for #12")
    statement = payload_of(file)
    empty = statement_pb2.Statement()  # pyright: ignore[reportAttributeAccessIssue] # run time
    parsed = json_format.ParseDict(statement, empty)
    OtherStatement.copy_from_pb(parsed).validate()
    message = test_result_pb2.TestResult()  # pyright: ignore[reportAttributeAccessIssue]
    result = json_format.ParseDict(statement["predicate"], message)
    expected = {"PASS": "PASSED", "PASS_WITH_LIMITATIONS": "WARNED"}.get(state, "FAILED")
    assert result.result == expected
    assert [c.name for c in result.configuration] == ["command", "policy", "gaussian:rows=24"]
    assert json.loads(result.configuration[1].content) == evidence.record["policy"]
    assert result.configuration[2].digest["sha256"] == evidence.record["banks"][0]["digest"]
    assert list(result.passed_tests) == [
        "gaussian:rows=24 at width 9",
        "gaussian:rows=24 at width 12",
        "schedule",
    ]
    assert list(result.warned_tests) == ["limitation"]
    assert list(result.failed_tests) == ["set_rate at width 9", "set_rate at width 12"]
    (subject,) = statement["subject"]
    assert subject["digest"] == {"sha256": manifest_digest(evidence)}
    assert subject["annotations"] == {
        "neartie_kind": kind,
        "neartie_verdict": str(state),
        "neartie_numerics_class": "BEHAVIOURAL" if state is State.FAIL else "LIGHT",
        "neartie_structural_tag": "BF16-structural",
        "neartie_provisional_class": "LIGHT",
        "neartie_signer": f"{NAME} ada",
        "neartie_comment": "for #12",
        "neartie_form": 2,
        "neartie_earlier_signatures": {},
    }


def test_other_libraries_read_the_envelope(
    make_evidence: MakeEvidence, ada: SigningKey, ada_public: PublicKey
) -> None:
    file = sign_evidence(make_evidence(), ada)
    envelope = OtherEnvelope.from_dict(json.loads(file.read_text()))
    assert list(envelope.verify([ada_public.scheme], 1)) == [ada_public.keyid]
    assert envelope.payload_type == "application/vnd.in-toto+json"


def test_two_signers_and_what_a_key_says_of_them(
    make_evidence: MakeEvidence,
    ada: SigningKey,
    bob: SigningKey,
    ada_public: PublicKey,
    bob_public: PublicKey,
) -> None:
    evidence = make_evidence()
    assert check_signatures(evidence) == []
    sign_evidence(evidence, ada)
    sign_evidence(evidence, bob, signer="Bob")
    both = check_signatures(evidence, [ada_public, bob_public])
    assert [s.trust for s in both] == [Trust.TRUSTED] * 2
    assert any(s.text.endswith("as 'Bob'") for s in both)
    by_id = {s.keyid: s for s in check_signatures(evidence, [ada_public])}
    assert by_id[ada.keyid].trust is Trust.TRUSTED
    unknown = by_id[bob.keyid]
    assert unknown.trust is Trust.UNKNOWN_KEY
    assert unknown.text == f"signed by keyid {bob.keyid[:16]}, key not given: not trusted"
    assert set(codes(check_signatures(evidence))) == {"unknown_key"}


def test_signatures_are_seen_without_the_extra(
    make_evidence: MakeEvidence, ada: SigningKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = make_evidence()
    sign_evidence(evidence, ada)
    for name in ("cryptography", "securesystemslib", "securesystemslib.dsse"):
        monkeypatch.setitem(sys.modules, name, None)
    assert codes(check_signatures(evidence)) == ["unknown_key"]


def test_one_envelope_of_two_signatures_is_read_too(
    make_evidence: MakeEvidence,
    ada: SigningKey,
    bob: SigningKey,
    ada_public: PublicKey,
    bob_public: PublicKey,
) -> None:
    evidence = make_evidence()
    file = sign_evidence(evidence, ada)
    document = json.loads(file.read_text())
    payload = base64.b64decode(document["payload"])
    document["signatures"] += sign_payload(payload, bob)["signatures"]
    write_envelope(file, document)
    assert codes(check_signatures(evidence, [ada_public, bob_public])) == ["trusted", "trusted"]
    document["signatures"] += document["signatures"][:1]
    write_envelope(file, document)
    states = check_signatures(evidence, [ada_public, bob_public])
    assert codes(states) == ["trusted", "trusted", "duplicate_keyid"]


def test_a_copied_file_is_a_duplicate(
    make_evidence: MakeEvidence, ada: SigningKey, ada_public: PublicKey
) -> None:
    evidence = make_evidence()
    file = sign_evidence(evidence, ada)
    file.with_name("z.dsse.json").write_bytes(file.read_bytes())
    assert codes(check_signatures(evidence, [ada_public])) == ["trusted", "duplicate_keyid"]


def test_a_signature_of_other_evidence_is_named(
    make_evidence: MakeEvidence, ada: SigningKey, ada_public: PublicKey
) -> None:
    first = make_evidence("first")
    second = make_evidence("second", date="2026-01-02T00:00:00+00:00")
    file = sign_evidence(first, ada)
    taken = second.directory / "signatures" / file.name
    taken.parent.mkdir()
    taken.write_bytes(file.read_bytes())
    states = check_signatures(second, [ada_public])
    assert codes(states) == ["other_evidence", "missing_signature"]
    assert "other evidence" in states[0].text
    assert codes(check_signatures(second)) == ["other_evidence"]


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("result", lambda s: s["predicate"].update(result="PASSED")),
        ("configuration", lambda s: s["predicate"]["configuration"].pop()),
        ("failedTests", lambda s: s["predicate"].update(failedTests=[])),
        ("warnedTests", lambda s: s["predicate"].pop("warnedTests")),
        ("passedTests", lambda s: s["predicate"]["passedTests"].append("more")),
        ("neartie_verdict", lambda s: claims(s).update(neartie_verdict="PASS")),
        ("neartie_numerics_class", lambda s: claims(s).update(neartie_numerics_class="LIGHT")),
        ("neartie_structural_tag", lambda s: claims(s).pop("neartie_structural_tag")),
        ("neartie_kind", lambda s: claims(s).update(neartie_kind="gate")),
        ("neartie_signer", lambda s: claims(s).update(neartie_signer=["x"])),
        ("neartie_form", lambda s: claims(s).update(neartie_form=3)),
        (EARLIER, lambda s: claims(s).pop(EARLIER)),
        (EARLIER, lambda s: claims(s).update({EARLIER: ["x"]})),
        (EARLIER, lambda s: claims(s).update({EARLIER: {"x": 1}})),
    ],
)
def test_a_signer_who_states_more_than_the_record_is_found(
    make_evidence: MakeEvidence,
    ada: SigningKey,
    ada_public: PublicKey,
    field: str,
    change: Callable[[dict[str, Any]], object],
) -> None:
    evidence = make_evidence()
    file = sign_evidence(evidence, ada)
    replace_payload(file, ada, change)
    state = check_signatures(evidence, [ada_public])[0]
    assert state.code == "other_claim"
    assert state.text.startswith(f"{field} is ")
    assert codes(check_signatures(evidence)) == ["other_claim"]


def claims(statement: dict[str, Any]) -> dict[str, Any]:
    annotations: dict[str, Any] = statement["subject"][0]["annotations"]
    return annotations


def test_a_field_that_nobody_knows_is_ignored_as_in_toto_demands(
    make_evidence: MakeEvidence, ada: SigningKey, ada_public: PublicKey
) -> None:
    evidence = make_evidence()
    file = sign_evidence(evidence, ada)
    replace_payload(file, ada, lambda s: (s.update(more=1), claims(s).update(more=1)))
    assert codes(check_signatures(evidence, [ada_public])) == ["trusted"]


@pytest.mark.parametrize("name", ["ada", "ec-bob"])
def test_every_bit_of_payload_and_signature_counts(
    make_evidence: MakeEvidence, key_files: Callable[[str], Path], name: str
) -> None:
    key = load_signing_key(key_files(name), lambda: None)
    public = load_public_key(key_files(name).with_name(name + ".pub"))
    evidence = make_evidence()
    file = sign_evidence(evidence, key)
    envelope = json.loads(file.read_text())
    payload = base64.b64decode(envelope["payload"])
    signature = base64.b64decode(envelope["signatures"][0]["sig"])
    assert codes(check_signatures(evidence, [public])) == ["trusted"]
    edits = 0
    for what, data in (("payload", payload), ("sig", signature)):
        for bit in range(8 * len(data)):
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            text = base64.b64encode(changed).decode()
            document = dict(envelope)
            if what == "payload":
                document["payload"] = text
            else:
                document["signatures"] = [{**envelope["signatures"][0], "sig": text}]
            write_envelope(file, document)
            states = check_signatures(evidence, [public])
            assert states
            assert all(s.trust is Trust.PROBLEM for s in states), (what, bit)
            edits += 1
    assert edits > 5000


def test_every_edited_character_of_the_file_is_found(
    make_evidence: MakeEvidence, ada: SigningKey, ada_public: PublicKey
) -> None:
    evidence = make_evidence()
    file = sign_evidence(evidence, ada)
    original = file.read_text()
    dice = random.Random(0)
    edits = 0
    for at in range(len(original)):
        other = dice.choice([c for c in 'Aa0+/=-_"{}[],: \n\\\x00\u00e9' if c != original[at]])
        for edited in (
            original[:at] + other + original[at + 1 :],
            original[:at] + other + original[at:],
            original[:at] + original[at + 1 :],
            original[:at],
        ):
            overwrite(file, edited.encode())
            named = {s.file for s in check_signatures(evidence, [ada_public]) if is_problem(s)}
            assert f"signatures/{file.name}" in named, (at, other)
            edits += 1
    assert edits > 4000


def is_problem(state: SignatureState) -> bool:
    return state.trust is Trust.PROBLEM


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data + b" ",
        lambda data: data + b"\n",
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: data.replace(b"{", b'{"more": 1,', 1),
        lambda data: data.replace(b'"payload"', b'"payload": "", "payload"', 1),
        lambda data: data.replace(b"keyid", b"\\u006beyid"),
        lambda data: data.replace(b"=", b"\\u003d"),
        lambda data: json.dumps(json.loads(data)).encode(),
        lambda data: json.dumps(json.loads(data), indent=1, sort_keys=True).encode(),
    ],
)
def test_another_layout_of_a_signature_is_a_changed_file(
    make_evidence: MakeEvidence,
    ada: SigningKey,
    ada_public: PublicKey,
    change: Callable[[bytes], bytes],
) -> None:
    evidence = make_evidence()
    file = sign_evidence(evidence, ada)
    before = file.read_bytes()
    file.write_bytes(change(before))
    assert file.read_bytes() != before
    (state, missing) = check_signatures(evidence, [ada_public])
    assert (state.code, missing.code) == ("changed_file", "missing_signature")
    assert (state.file, state.text) == (
        f"signatures/{file.name}",
        "not laid out as it was written",
    )
    assert codes(check_signatures(evidence)) == ["changed_file"]


def test_another_spelling_of_base64_is_a_changed_file(
    make_evidence: MakeEvidence, ada: SigningKey, ada_public: PublicKey
) -> None:
    evidence = make_evidence()
    file = sign_evidence(evidence, ada)
    # Of three places of a byte in base64, one at least spells it with "/" or "+".
    replace_payload(file, ada, lambda s: claims(s).update(neartie_comment="?>~?>~~?>"))
    document = json.loads(file.read_text())
    other = document["payload"].replace("/", "_").replace("+", "-")
    assert document["payload"] != other
    document["payload"] = other
    assert codes(check_signatures(evidence, [ada_public])) == ["trusted"]
    write_envelope(file, document)
    assert codes(check_signatures(evidence, [ada_public]))[0] == "changed_file"


@pytest.fixture
def three(key_files: Callable[[str], Path]) -> list[SigningKey]:
    return [load_signing_key(key_files(name), lambda: None) for name in ("ada", "ec-bob", "cy")]


def test_a_removed_signature_is_named_by_each_that_came_later(
    make_evidence: MakeEvidence, three: list[SigningKey]
) -> None:
    evidence = make_evidence()
    files = [sign_evidence(evidence, key) for key in three]
    assert [sorted(claims(payload_of(file))[EARLIER]) for file in files] == [
        [],
        [files[0].name],
        sorted(file.name for file in files[:2]),
    ]
    for gone in files[:2]:
        content = gone.read_bytes()
        gone.unlink()
        (missing,) = [s for s in check_signatures(evidence) if is_problem(s)]
        assert (missing.code, missing.file) == ("missing_file", f"signatures/{gone.name}")
        gone.write_bytes(content)
    # Nothing was made after the last one, and nothing outside the folder knows of it.
    files[2].unlink()
    assert codes(check_signatures(evidence)) == ["unknown_key"] * 2


def test_an_exchanged_signature_is_named_without_a_key(
    make_evidence: MakeEvidence, ada: SigningKey, bob: SigningKey
) -> None:
    evidence = make_evidence()
    first = sign_evidence(evidence, ada, comment="not for production")
    second = sign_evidence(evidence, bob)
    replace_payload(first, ada, lambda s: claims(s).update(neartie_comment="for production"))
    (changed,) = [s for s in check_signatures(evidence) if is_problem(s)]
    assert (changed.code, changed.file) == ("changed_file", f"signatures/{first.name}")
    assert changed.text == f"changed after signatures/{second.name} was made"


def test_nobody_signs_beside_a_signature_that_does_not_hold(
    make_evidence: MakeEvidence, ada: SigningKey, bob: SigningKey
) -> None:
    evidence = make_evidence()
    file = sign_evidence(evidence, ada)
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(InputError, match=rf"^signatures/{file.name}=not laid out as it was"):
        sign_evidence(evidence, bob)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_signatures_of_the_first_form_hold() -> None:
    """Made before earlier signatures were listed, with every test that was run as passed."""
    tests = Path(__file__).parents[1]
    kept = tests / "data" / "signatures-form-1"
    evidence = load_evidence(tests.parent / "docs" / "evidence" / "one-h200" / "tie-witness-fp64")
    with tempfile.TemporaryDirectory() as name:
        place = Path(shutil.copytree(evidence.directory, Path(name) / "evidence"))
        (place / "signatures").mkdir()
        for file in kept.glob("*.dsse.json"):
            shutil.copy(file, place / "signatures")
            assert "k3-mini/tie-witness at width 20" in payload_of(file)["predicate"]["passedTests"]
        keys = [load_public_key(kept / f"{name}.pub") for name in ("ada", "bob")]
        found = check_signatures(load_evidence(place), keys)
        assert codes(found) == ["trusted", "trusted"]


@pytest.mark.parametrize(
    ("code", "edit"),
    [
        ("payload_type", {"payloadType": "application/json"}),
        ("payload_type", {"payloadType": "application/vnd.in-toto+JSON"}),
        ("no_signatures", {"signatures": []}),
        ("base64", {"payload": "a"}),
        ("base64", {"payload": "\u00e9\u00e9\u00e9\u00e9"}),
        ("no_statement", {"payload": ""}),
        ("no_statement", {"payload": base64.b64encode(b"[" * 9000).decode()}),
        ("no_statement", {"payload": base64.b64encode(b"\xff{}").decode()}),
        ("no_statement", {"payload": base64.b64encode(b"{}").decode()}),
        ("no_envelope", {"payload": 1}),
        ("no_envelope", {"payload": None}),
        ("no_envelope", {"signatures": None}),
        ("no_envelope", {"signatures": {}}),
        ("no_envelope", {"signatures": [{}]}),
        ("no_envelope", {"signatures": [{"sig": 1}]}),
        ("base64", {"signatures": [{"sig": "*"}]}),
        ("changed_file", {"signatures": [{"sig": ""}]}),
        ("unknown_key", {"signatures": [{"keyid": "", "sig": ""}]}),
    ],
)
def test_what_is_wrong_in_an_envelope_is_named(
    make_evidence: MakeEvidence,
    ada: SigningKey,
    ada_public: PublicKey,
    code: str,
    edit: dict[str, Any],
) -> None:
    evidence = make_evidence()
    file = sign_evidence(evidence, ada)
    write_envelope(file, {**json.loads(file.read_text()), **edit})
    assert codes(check_signatures(evidence, [ada_public])) == [code, "missing_signature"]


def test_spare_bits_of_base64_are_no_second_spelling() -> None:
    assert dsse.decode("aGVsbG8gd29ybGQ=", "x") == b"hello world"
    assert dsse.decode("_-8=", "x") == dsse.decode("/+8=", "x") == b"\xff\xef"
    for text in ("aGVsbG8gd29ybGR=", "aGVsbG8gd29ybGQ", "aGVs\nbG8=", "_+8=", "aGVsbG8gd29ybGQ=="):
        with pytest.raises(dsse.EnvelopeFault, match="is not base64"):
            dsse.decode(text, "x")


@pytest.mark.parametrize(
    ("code", "make"),
    [
        ("stray_file", lambda f: (f / "notes.txt").write_text("x")),
        ("stray_file", lambda f: (f / "x.dsse.json").mkdir()),
        ("stray_file", lambda f: (f / "x.dsse.json").symlink_to("nowhere")),
        ("too_large", lambda f: (f / "x.dsse.json").write_text(" " * (1 << 20) + "{}")),
        ("no_envelope", lambda f: (f / "x.dsse.json").write_bytes(b"\x00")),
        ("no_envelope", lambda f: (f / "x.dsse.json").write_bytes(b"")),
    ],
)
def test_what_else_lies_in_the_folder_is_named(
    make_evidence: MakeEvidence, code: str, make: Callable[[Path], object]
) -> None:
    evidence = make_evidence()
    folder = evidence.directory / "signatures"
    folder.mkdir()
    make(folder)
    assert codes(check_signatures(evidence)) == [code]


def test_a_file_in_the_folders_place_is_named(make_evidence: MakeEvidence) -> None:
    evidence = make_evidence()
    (evidence.directory / "signatures").write_text("x")
    assert codes(check_signatures(evidence)) == ["unreadable"]


def test_stripped_signatures_are_missed(
    make_evidence: MakeEvidence, ada: SigningKey, ada_public: PublicKey
) -> None:
    evidence = make_evidence()
    sign_evidence(evidence, ada).unlink()
    (missing,) = check_signatures(evidence, [ada_public])
    assert missing.code == "missing_signature"
    assert f"{NAME} ada" in missing.text


def test_a_keyid_is_a_hint_and_no_proof(
    make_evidence: MakeEvidence, ada: SigningKey, ada_public: PublicKey, bob_public: PublicKey
) -> None:
    evidence = make_evidence()
    file = sign_evidence(evidence, ada)
    envelope = json.loads(file.read_text())
    envelope["signatures"][0]["keyid"] = bob_public.keyid
    write_envelope(file, envelope)
    both = [ada_public, bob_public]
    assert codes(check_signatures(evidence, both))[0] == "other_keyid"
    assert codes(check_signatures(evidence, [bob_public]))[0] == "bad_signature"


def test_what_others_wrote_reaches_no_terminal_as_control(
    make_evidence: MakeEvidence, ada: SigningKey
) -> None:
    evidence = make_evidence()
    file = sign_evidence(evidence, ada)
    envelope = json.loads(file.read_text())
    envelope["signatures"][0]["keyid"] = "\x1b[2J\n"
    (file.parent / "\x1b.dsse.json").write_text(json.dumps(envelope))
    states = check_signatures(evidence)
    assert all((s.file + s.keyid + s.text).isprintable() for s in states)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def test_no_envelope_and_no_statement_raises(
    make_evidence: MakeEvidence, ada: SigningKey, ada_public: PublicKey
) -> None:
    evidence = make_evidence()
    file = sign_evidence(evidence, ada)
    envelope, statement = json.loads(file.read_text()), payload_of(file)

    @given(st.sampled_from(sorted(envelope)), JSON, st.sampled_from(sorted(statement)), JSON)
    def check(outer: str, value: Any, inner: str, other: Any) -> None:
        for document in (
            {**envelope, outer: value},
            sign_payload(json.dumps({**statement, inner: other}).encode(), ada),
        ):
            if document in (envelope, sign_payload(json.dumps(statement).encode(), ada)):
                continue
            write_envelope(file, document)
            states = check_signatures(evidence, [ada_public])
            assert all(s.trust is not Trust.TRUSTED for s in states)

    check()


def test_evidence_that_was_changed_is_not_signed(
    make_evidence: MakeEvidence, ada: SigningKey
) -> None:
    evidence = make_evidence()
    record = evidence.directory / "audit.json"
    record.write_text(record.read_text().replace("UNKNOWN", "BITWISE"))
    (evidence.directory / "values.parquet").unlink()
    # Read before it was changed, or without a look at the manifest: signing looks itself.
    for stale in (evidence, read_evidence(evidence.directory)):
        with pytest.raises(InputError) as error:
            sign_evidence(stale, ada)
        told = "audit.json is changed since it was written; values.parquet is missing"
        assert told in str(error.value)
    assert not (evidence.directory / "signatures").exists()


def test_what_is_not_in_the_manifest_is_not_signed(
    make_evidence: MakeEvidence, ada: SigningKey
) -> None:
    evidence = make_evidence()
    (evidence.directory / "report.md").write_text("all is well")
    with pytest.raises(InputError, match=r"report\.md is a file that was put there later"):
        sign_evidence(evidence, ada)


def test_a_manifest_that_does_not_list_the_record_is_not_signed(
    make_evidence: MakeEvidence, ada: SigningKey
) -> None:
    evidence = make_evidence()
    for files in ({}, {"values.parquet": "0"}, None, 3):
        (evidence.directory / "manifest.json").write_text(json.dumps({"files": files}))
        with pytest.raises(InputError, match=r"manifest\.json is not as it was written"):
            sign_evidence(evidence, ada)


def test_a_file_outside_is_not_read(make_evidence: MakeEvidence, ada: SigningKey) -> None:
    evidence = make_evidence()
    document = {**evidence.manifest}
    document["files"] = {**document["files"], "../../x": "0" * 64}
    digest = Manifest.model_validate(document).own_digest()
    text = document_text({**document, "digest": digest})
    (evidence.directory / "manifest.json").write_text(text)
    with pytest.raises(InputError, match=r"files\.\.\./\.\./x is not as it was written"):
        sign_evidence(evidence, ada)


def test_one_key_signs_once(make_evidence: MakeEvidence, ada: SigningKey) -> None:
    evidence = make_evidence()
    file = sign_evidence(evidence, ada)
    before = file.read_bytes()
    with pytest.raises(InputError, match="has signed, but should be one that has not"):
        sign_evidence(evidence, ada)
    assert file.read_bytes() == before
    assert [p.name for p in file.parent.iterdir()] == [file.name]


def test_a_signature_that_cannot_be_written_leaves_nothing(
    make_evidence: MakeEvidence, ada: SigningKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = make_evidence()
    before = sorted(evidence.directory.iterdir())

    def full(*arguments: Any, **named: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(InputError, match=r"No space left on device"):
        sign_evidence(evidence, ada)
    assert sorted(evidence.directory.iterdir()) == before


@pytest.mark.parametrize("signer", ["", " ", "a\nb"])
def test_a_signer_has_a_name(make_evidence: MakeEvidence, ada: SigningKey, signer: str) -> None:
    with pytest.raises(InputError, match=r"^signer="):
        sign_evidence(make_evidence(), ada, signer=signer)


def test_a_key_without_a_comment_needs_a_name(make_evidence: MakeEvidence, ada: SigningKey) -> None:
    nameless = SigningKey(ada.keyid, None, ada.signer)
    evidence = make_evidence()
    with pytest.raises(InputError, match="no name, but should be given"):
        sign_evidence(evidence, nameless)
    with pytest.raises(InputError, match=r"^comment=5,000 characters"):
        sign_evidence(evidence, ada, comment="x" * 5000)


@pytest.mark.parametrize("numerics_class", list(NumericsClass))
def test_the_class_is_the_records(
    make_evidence: MakeEvidence, ada: SigningKey, numerics_class: NumericsClass
) -> None:
    evidence = make_evidence(edit=lambda r: r.update(numerics_class=str(numerics_class)))
    statement = payload_of(sign_evidence(evidence, ada))
    assert claims(statement)["neartie_numerics_class"] == numerics_class
