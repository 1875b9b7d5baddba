"""Signatures beside evidence: an envelope that somebody changed speaks for nobody."""

from __future__ import annotations

import atexit
import base64
import json
import random
import shutil
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from neartie.audit.evidence.keys import load_public_key, load_signing_key
from neartie.audit.evidence.load import load_evidence
from neartie.audit.evidence.manifest import SIGNATURES
from neartie.audit.evidence.sign import Trust, check_signatures, sign_evidence

from .evidence_reader import evidence_seeds
from .mutate import mutate_bytes, mutate_json, several
from .outcome import WrongPass
from .readers import Files, Reader


class SignatureReader(Reader):
    """``neartie verify DIR --key PUB``: the envelope, its statement, and whom it speaks for."""

    name, file = "signature", "some.dsse.json"

    def __init__(self) -> None:
        # Lives as long as the process; the evidence is never changed.
        base = Path(tempfile.mkdtemp(prefix="neartie-fuzz-"))
        atexit.register(shutil.rmtree, base, ignore_errors=True)
        directory = base / "evidence"
        directory.mkdir()
        for name, content in evidence_seeds()[1].items():
            (directory / name).write_bytes(content)
        self._evidence = load_evidence(directory)
        key = _key(base / "key")
        self._public = load_public_key(key.with_suffix(".pub"))
        path = sign_evidence(self._evidence, load_signing_key(key, lambda: None), signer="Ada")
        self._signed = path.read_bytes()
        path.unlink()
        self._target = directory / SIGNATURES / self.file

    def seeds(self) -> list[Files]:
        return [{self.file: self._signed}]

    def mutate(self, files: Files, rng: random.Random) -> Files:
        data = files[self.file]
        data = _statement(data, rng) if rng.random() < 0.4 else mutate_json(data, rng)
        return {self.file: data}

    def read(self, files: Files, place: Path) -> str:
        self._target.write_bytes(files[self.file])
        states = check_signatures(self._evidence, [self._public])
        told = sorted({f"{state.trust}: {state.code}" for state in states})
        trusted = any(state.trust is Trust.TRUSTED for state in states)
        if trusted and files[self.file] != self._signed:
            raise WrongPass("a file of other bytes is trusted")
        return ", ".join(told)


def _key(path: Path) -> Path:
    key = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    encoding, kept = serialization.Encoding, serialization.PrivateFormat.OpenSSH
    path.write_bytes(key.private_bytes(encoding.PEM, kept, serialization.NoEncryption()))
    public = serialization.PublicFormat.OpenSSH
    path.with_suffix(".pub").write_bytes(key.public_key().public_bytes(encoding.OpenSSH, public))
    return path


def _statement(data: bytes, rng: random.Random) -> bytes:
    """The envelope with another statement in it, as who holds no key would make it."""
    try:
        document = json.loads(data)
        payload = base64.b64decode(document["payload"])
        changed = mutate_json(payload, rng) if rng.random() < 0.7 else mutate_bytes(payload, rng)
        document["payload"] = base64.b64encode(changed).decode()
        return json.dumps(document).encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        return bytes(several(data, mutate_bytes, rng))
