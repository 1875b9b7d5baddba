"""Sign evidence, and check the signatures beside it.

Each signer adds one envelope of one signature, ``signatures/<keyid>.dsse.json``: a maintainer
signs without rewriting what another one signed, and each states their own name and comment. DSSE
holds that equal to one envelope of several signatures, and both are read. Each states which
signatures were there before it, so that one that is removed or changed is missed by the later ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from ...banks.errors import InputError, printable
from .check_files import refuse_any_change
from .dsse import (
    SUFFIX,
    Envelope,
    EnvelopeFault,
    SignatureEntry,
    as_written,
    decode,
    read_envelope,
    short,
    sign_payload,
    verifies,
    write_new,
)
from .identity import manifest_digest
from .keys import PublicKey, SigningKey
from .load import Evidence
from .manifest import SIGNATURES, file_digest
from .problems import Code
from .signed_tests import first_form_tests, signed_tests
from .statement import PAYLOAD_TYPE, SignersPart, Statement, first_difference, make_statement
from .view import record_view

_MAX_COMMENT: Final = 4096
_SHOWN: Final = 16
"""Hex digits of a manifest's digest in messages."""


class Trust(StrEnum):
    """What a check of one signature found."""

    TRUSTED = "trusted"
    """One of the given keys made it, and it states what this evidence states."""
    UNKNOWN_KEY = "unknown_key"
    """It states what this evidence states, by a key that was not given: not trusted."""
    PROBLEM = "problem"
    """It does not hold."""


@dataclass(frozen=True, slots=True)
class SignatureState:
    """One signature, or what is wrong with a file that should hold one.

    Attributes:
        file: path inside the evidence directory.
        trust: the answer.
        code: names the problem; equal to ``trust`` where there is none.
        keyid: as the envelope gives it; empty where it gives none.
        text: one sentence.
        earlier: sha256 hex of the signatures that were there before this one, by the file's name;
            empty where it does not hold.
    """

    file: str
    trust: Trust
    code: str
    keyid: str
    text: str
    earlier: Mapping[str, str] = field(default_factory=dict)


def sign_evidence(
    evidence: Evidence, key: SigningKey, *, signer: str | None = None, comment: str = ""
) -> Path:
    """Add a signature that states the record's verdict and class, and return its file.

    Args:
        evidence: what is signed; whatever its verdict is.
        key: of the signer.
        signer: name of the signer; None takes the comment of the key's ``.pub`` file.
        comment: kept in what is signed, such as a reason or the pull request.

    Raises:
        InputError: evidence at a URL, a file does not hold the bytes that the manifest records,
            there is no name, the key has signed already, a signature that is there does not hold,
            or the file cannot be written. Nothing was written.
    """
    if evidence.url is not None:
        expected = "a directory of this machine: sign before it is copied"
        raise InputError("evidence", evidence.url, expected, "sign")
    name = signer if signer is not None else key.comment
    if name is None:
        raise InputError("signer", "no name", "given: the key has no .pub with a comment", "sign")
    if not name.strip() or not name.isprintable():
        raise InputError("signer", name, "printable text", "sign")
    if len(comment) > _MAX_COMMENT:
        raise InputError("comment", f"{len(comment):,} characters", f"<= {_MAX_COMMENT:,}", "sign")
    refuse_any_change(evidence.directory, evidence.name)
    target = evidence.directory / SIGNATURES / f"{short(key.keyid)}{SUFFIX}"
    if target.exists():
        raise InputError("key", f"{short(key.keyid)}, has signed", "one that has not", str(target))
    for state in check_signatures(evidence):
        if state.trust is Trust.PROBLEM:
            raise InputError(state.file, state.text, "a signature that holds", evidence.name)
    own = SignersPart(name, comment, _digests(evidence.directory / SIGNATURES))
    statement = _made(evidence, own, manifest_digest(evidence))
    write_new(target, sign_payload(json.dumps(statement, sort_keys=True).encode(), key))
    return target


def _made(evidence: Evidence, own: SignersPart, digest: str) -> dict[str, Any]:
    """The statement that the evidence gives, with what a signer adds."""
    view = record_view(evidence)
    tests = first_form_tests(view) if own.form == 1 else signed_tests(evidence, view)
    return make_statement(view, evidence.kind, digest, own, tests)


def _digests(folder: Path) -> dict[str, str]:
    """Sha256 hex of every file of the folder, by its name.

    Raises:
        InputError: one cannot be read.
    """
    if not folder.is_dir():
        return {}
    try:
        return {path.name: file_digest(path) for path in sorted(folder.iterdir()) if path.is_file()}
    except OSError as error:
        reason = error.strerror or "not readable"
        raise InputError(SIGNATURES, reason, "files that can be read", str(folder)) from error


def check_signatures(evidence: Evidence, keys: Sequence[PublicKey] = ()) -> list[SignatureState]:
    """Check every signature of the evidence.

    Args:
        evidence: whose ``signatures`` folder is read; that its files hold what the manifest
            records is checked elsewhere.
        keys: those that are trusted; each is expected to have signed.

    Returns:
        one state per signature, problems included; what is wrong in an envelope is named and
        never raised. An earlier signature that a later one lists is named where it is gone or
        changed; that the last one is gone, or all, shows by ``keys`` alone.

    Raises:
        InputError: the record itself, or a file of the folder, cannot be read.
    """
    found = _without_duplicates(list(_states(evidence, keys)))
    found += _gone(found, evidence.directory / SIGNATURES)
    signed = {state.keyid for state in found if state.trust is Trust.TRUSTED}
    for key in keys:
        if key.keyid not in signed:
            text = f"no signature of this evidence by {key.name} (keyid {short(key.keyid)})"
            found.append(_problem(SIGNATURES, "missing_signature", text, key.keyid))
    return found


def _gone(states: Sequence[SignatureState], folder: Path) -> Iterator[SignatureState]:
    """A problem for each file that a signature which holds was added to, and that is not there."""
    if not any(state.earlier for state in states):
        return
    there = _digests(folder)
    told = set()
    for state in states:
        for name, digest in state.earlier.items():
            if digest in there.values() or (name, digest) in told:
                continue
            told.add((name, digest))
            code = Code.CHANGED_FILE if name in there else Code.MISSING_FILE
            what = "changed" if name in there else "removed"
            yield _problem(f"{SIGNATURES}/{name}", code, f"{what} after {state.file} was made")


def _states(evidence: Evidence, keys: Sequence[PublicKey]) -> Iterator[SignatureState]:
    folder = evidence.directory / SIGNATURES
    if not folder.exists() and not folder.is_symlink():
        return
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        yield _problem(SIGNATURES, "unreadable", f"no folder: {error.strerror}")
        return
    for path in paths:
        yield from _of_file(evidence, path, keys)


def _of_file(evidence: Evidence, path: Path, keys: Sequence[PublicKey]) -> Iterator[SignatureState]:
    file = f"{SIGNATURES}/{path.name}"
    if not path.name.endswith(SUFFIX) or not path.is_file():
        yield _problem(file, "stray_file", f"no file of the name *{SUFFIX}")
        return
    try:
        envelope, data = read_envelope(path)
        payload = decode(envelope.payload, "the payload")
        if envelope.payloadType != PAYLOAD_TYPE:
            got = envelope.payloadType[:60]
            raise EnvelopeFault("payload_type", f"payload type {got!r} is not {PAYLOAD_TYPE}")
        if not envelope.signatures:
            raise EnvelopeFault("no_signatures", "the envelope holds no signature")
        statement = _statement(payload)
    except EnvelopeFault as fault:
        yield _problem(file, fault.code, str(fault))
        return

    @cache
    def wrong() -> EnvelopeFault | None:
        if data != as_written(envelope):
            return EnvelopeFault(Code.CHANGED_FILE, "not laid out as it was written")
        return _says_other(evidence, statement)

    for entry in envelope.signatures:
        yield _of_signature(file, envelope, payload, entry, statement.own, wrong, keys)


def _statement(payload: bytes) -> Statement:
    try:
        return Statement.model_validate_json(payload)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "payload"
        text = f"the payload is no in-toto test result: {field}: {first['msg']}"
        raise EnvelopeFault("no_statement", text) from error


def _says_other(evidence: Evidence, statement: Statement) -> EnvelopeFault | None:
    """How the statement is not about this evidence, or not what its record says."""
    subject = statement.subject[0]
    digest = manifest_digest(evidence)
    signed = subject.digest.get("sha256")
    if signed != digest:
        text = f"it signs other evidence: {str(signed)[:_SHOWN]}, and this is {digest[:_SHOWN]}"
        return EnvelopeFault("other_evidence", text)
    different = first_difference(statement, _made(evidence, statement.own, digest))
    return EnvelopeFault("other_claim", different) if different else None


def _of_signature(
    file: str,
    envelope: Envelope,
    payload: bytes,
    entry: SignatureEntry,
    own: SignersPart,
    wrong: Callable[[], EnvelopeFault | None],
    keys: Sequence[PublicKey],
) -> SignatureState:
    """Judge one signature: first who made it, then what it says."""
    keyid = entry.keyid
    try:
        signature = decode(entry.sig, "the signature")
    except EnvelopeFault as fault:
        return _problem(file, fault.code, str(fault), keyid)
    maker = _maker(envelope, payload, signature, keyid, keys)
    if maker is None and any(key.keyid == keyid for key in keys):
        text = f"the signature by keyid {short(keyid)} does not fit the payload"
        return _problem(file, "bad_signature", text, keyid)
    if maker is not None and maker.keyid != keyid:
        text = f"keyid {short(keyid)!r} is named, but {maker.name} ({short(maker.keyid)}) signed"
        return _problem(file, "other_keyid", text, keyid)
    says_wrong = wrong()
    if says_wrong is not None:
        return _problem(file, says_wrong.code, str(says_wrong), keyid)
    if maker is None:
        text = f"signed by keyid {short(keyid) or '(none)'}, key not given: not trusted"
        return _holds(file, Trust.UNKNOWN_KEY, keyid, text, own)
    text = f"signed by {maker.name} (keyid {short(keyid)}) as {own.signer!r}"
    return _holds(file, Trust.TRUSTED, keyid, text, own)


def _maker(
    envelope: Envelope, payload: bytes, signature: bytes, keyid: str, keys: Sequence[PublicKey]
) -> PublicKey | None:
    """The key that made the signature. The keyid only says which to try first, as DSSE demands."""
    for key in sorted(keys, key=lambda key: key.keyid != keyid):
        if verifies(payload, envelope.payloadType, signature, key):
            return key
    return None


def _without_duplicates(states: Sequence[SignatureState]) -> list[SignatureState]:
    """A second signature by one keyid adds nothing, and a count of signers must not see it."""
    seen: set[str] = set()
    result = []
    for state in states:
        holds = state.trust is not Trust.PROBLEM
        if holds and state.keyid in seen:
            text = f"keyid {short(state.keyid)} has signed in a file or entry before this one"
            state = _problem(state.file, "duplicate_keyid", text, state.keyid)
        elif holds and state.keyid:
            seen.add(state.keyid)
        result.append(state)
    return result


def _holds(file: str, trust: Trust, keyid: str, text: str, own: SignersPart) -> SignatureState:
    # What others wrote goes to a terminal: no control characters.
    shown = printable(file), trust, trust, printable(keyid), printable(text)
    return SignatureState(*shown, own.earlier)


def _problem(file: str, code: str, text: str, keyid: str = "") -> SignatureState:
    return SignatureState(printable(file), Trust.PROBLEM, code, printable(keyid), printable(text))
