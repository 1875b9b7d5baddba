"""DSSE envelopes as files: made in one step, read without trust.

Encoding and schemes are those of ``securesystemslib``, the library of DSSE's own authors. Reading
is ours: its reader stops at the first fault, where a check must name each.

Source: https://github.com/secure-systems-lab/dsse, protocol.md and envelope.md, version 1.0.0.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from ...banks.errors import InputError
from .keys import PublicKey, SigningKey
from .statement import PAYLOAD_TYPE

SUFFIX: Final = ".dsse.json"
_MAX_BYTES: Final = 1 << 20
_SHOWN: Final = 16
"""Hex digits of a keyid in file names and messages."""


class EnvelopeFault(ValueError):
    """An envelope that cannot be read; ``code`` names how."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class SignatureEntry(BaseModel):
    """One signature; the keyid is a hint that nothing authenticates."""

    model_config = ConfigDict(strict=True, frozen=True)

    keyid: str = ""
    sig: str


class Envelope(BaseModel):
    """The JSON envelope as it lies in the file, not yet decoded."""

    model_config = ConfigDict(strict=True, frozen=True)

    payload: str
    payloadType: str
    signatures: list[SignatureEntry] = []


def short(keyid: str) -> str:
    """Return the part of a keyid that is shown."""
    return keyid[:_SHOWN]


def sign_payload(payload: bytes, key: SigningKey) -> dict[str, Any]:
    """Return the envelope with one signature over the payload, JSON values."""
    from securesystemslib import dsse

    envelope = dsse.Envelope(payload, PAYLOAD_TYPE, {})
    envelope.sign(key.signer)
    return envelope.to_dict()


def verifies(payload: bytes, payload_type: str, signature: bytes, key: PublicKey) -> bool:
    """Return whether the key made this signature over the payload of this type."""
    from securesystemslib import dsse
    from securesystemslib.exceptions import UnverifiedSignatureError
    from securesystemslib.signer import Signature

    pae = dsse.Envelope(payload, payload_type, {}).pae()
    try:
        key.scheme.verify_signature(Signature(key.keyid, signature.hex()), pae)
    except UnverifiedSignatureError:
        return False
    return True


def read_envelope(path: Path) -> tuple[Envelope, bytes]:
    """Return the envelope of a file, and the file's bytes.

    Raises:
        EnvelopeFault: it cannot be read, is too large, or is no envelope.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise EnvelopeFault("unreadable", error.strerror or "cannot be opened") from error
    if len(data) > _MAX_BYTES:
        raise EnvelopeFault("too_large", f"more than {_MAX_BYTES:,} bytes")
    try:
        return Envelope.model_validate_json(data), data
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "file"
        raise EnvelopeFault("no_envelope", f"no DSSE envelope: {field}: {first['msg']}") from error


def as_written(envelope: Envelope) -> bytes:
    """Return the bytes of the file that ``write_new`` makes of an envelope.

    DSSE reads other layouts, other spellings of base64 and fields of others too. Nothing signs
    those: a file of other bytes was made or changed by somebody else.
    """
    signatures = [
        {"keyid": entry.keyid, "sig": _respelled(entry.sig)} for entry in envelope.signatures
    ]
    document = {
        "payload": _respelled(envelope.payload),
        "payloadType": envelope.payloadType,
        "signatures": signatures,
    }
    return _text(document).encode()


def _respelled(text: str) -> str:
    try:
        return base64.b64encode(decode(text, "it")).decode()
    except EnvelopeFault:
        return text


def _text(document: Any) -> str:
    return json.dumps(document, indent=1) + "\n"


def decode(text: str, what: str) -> bytes:
    """Return the bytes of standard or URL-safe base64; DSSE demands that both are taken.

    Raises:
        EnvelopeFault: it is neither, or spare bits are set, so that it is another spelling of bytes
            that were written differently.
    """
    for alternative in (None, b"-_"):
        try:
            data = base64.b64decode(text.encode("ascii"), alternative, validate=True)
        except (binascii.Error, UnicodeEncodeError):
            continue
        if base64.b64encode(data, alternative).decode() == text:
            return data
    raise EnvelopeFault("base64", f"{what} is not base64")


def write_new(path: Path, document: Any) -> None:
    """Write a JSON document under a name that is free: the whole file or nothing.

    Raises:
        InputError: the name is taken, or the file cannot be written.
    """
    made = None
    try:
        path.parent.mkdir(exist_ok=True)
        if path.exists():
            raise InputError("file", path, "a new file", "sign")
        handle, made = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(_text(document))
        Path(made).chmod(0o644)
        Path(made).rename(path)
    except BaseException as error:
        if made is not None:
            Path(made).unlink(missing_ok=True)
        if path.parent.is_dir() and not any(path.parent.iterdir()):
            path.parent.rmdir()
        if isinstance(error, OSError):
            reason = error.strerror or type(error).__name__
            raise InputError("file", path, f"a file that can be written ({reason})", "sign") from (
                error
            )
        raise
