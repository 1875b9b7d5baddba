"""Keys of each kind and file format are read, and what is no key is told in one line."""

import builtins
import hashlib
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa, x25519

from neartie.audit.evidence.keys import load_public_key, load_signing_key
from neartie.banks.errors import InputError

PEM, DER, OPENSSH_PUBLIC = (
    serialization.Encoding.PEM,
    serialization.Encoding.DER,
    serialization.Encoding.OpenSSH,
)
PKCS8, OPENSSH = serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.OpenSSH
SPKI = serialization.PublicFormat.SubjectPublicKeyInfo
RSA_KEY = rsa.generate_private_key(65537, 2048)
KEYS: dict[str, Any] = {
    "ed25519": ed25519.Ed25519PrivateKey.generate(),
    "p256": ec.generate_private_key(ec.SECP256R1()),
    "p384": ec.generate_private_key(ec.SECP384R1()),
    "p521": ec.generate_private_key(ec.SECP521R1()),
    "rsa": RSA_KEY,
}


def nobody() -> None:
    return None


def private(path: Path, key: Any, form: Any = PKCS8, passphrase: bytes | None = None) -> Path:
    closed = (
        serialization.BestAvailableEncryption(passphrase)
        if passphrase
        else serialization.NoEncryption()
    )
    path.write_bytes(key.private_bytes(PEM, form, closed))
    return path


def ssh_public(path: Path, key: Any, comment: str = "") -> Path:
    line = key.public_key().public_bytes(OPENSSH_PUBLIC, serialization.PublicFormat.OpenSSH)
    path.write_bytes(line + (b" " + comment.encode() if comment else b"") + b"\n")
    return path


@pytest.mark.parametrize("form", [PKCS8, OPENSSH])
@pytest.mark.parametrize("passphrase", [None, "o pen"])
@pytest.mark.parametrize("kind", KEYS)
def test_every_file_format_gives_the_same_keyid(
    tmp_path: Path, kind: str, form: Any, passphrase: str | None
) -> None:
    key = KEYS[kind]
    der = key.public_key().public_bytes(DER, SPKI)
    expected = hashlib.sha256(der).hexdigest()
    (tmp_path / "k.pem").write_bytes(key.public_key().public_bytes(PEM, SPKI))
    ssh_public(tmp_path / "k.pub", key, "Ada <ada@example.org>")
    closed = private(tmp_path / "k", key, form, passphrase.encode() if passphrase else None)
    signing = load_signing_key(closed, lambda: passphrase)
    assert (signing.keyid, signing.comment) == (expected, "Ada <ada@example.org>")
    named = load_public_key(tmp_path / "k.pub")
    assert (named.keyid, named.name) == (expected, "Ada <ada@example.org>")
    plain = load_public_key(tmp_path / "k.pem")
    assert (plain.keyid, plain.name) == (expected, "k.pem")


def test_a_pub_of_another_key_names_nobody(tmp_path: Path) -> None:
    closed = private(tmp_path / "k", KEYS["ed25519"])
    ssh_public(tmp_path / "k.pub", KEYS["p256"], "somebody else")
    assert load_signing_key(closed, nobody).comment is None


@pytest.mark.parametrize("form", [PKCS8, OPENSSH])
@pytest.mark.parametrize(
    ("given", "message"),
    [(None, "NEARTIE_KEY_PASSPHRASE"), ("wrong", "and its passphrase"), ("", "passphrase")],
)
def test_an_encrypted_key_wants_its_passphrase(
    tmp_path: Path, form: Any, given: str | None, message: str
) -> None:
    closed = private(tmp_path / "k", KEYS["ed25519"], form, b"right")
    with pytest.raises(InputError, match=message):
        load_signing_key(closed, lambda: given)


def test_no_passphrase_is_asked_for_an_open_key(tmp_path: Path) -> None:
    def never() -> str:
        raise AssertionError("asked")

    assert load_signing_key(private(tmp_path / "k", KEYS["ed25519"]), never).keyid


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\xff",
        b"hello",
        b"ssh-ed25519",
        b"ssh-ed25519 AAAA",
        b"ssh-dss AAAAB3NzaC1kc3M=",
        b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n",
        b"-----BEGIN OPENSSH PRIVATE KEY-----\n",
        b"a" * 70_000,
    ],
)
def test_what_is_no_key(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "k").write_bytes(content)
    for load in (load_public_key, lambda path: load_signing_key(path, nobody)):
        with pytest.raises(InputError, match=r"^key=.*, but should be .*\[--key\]$"):
            load(tmp_path / "k")


@pytest.mark.parametrize("name", ["nothing", "."])
def test_what_is_no_file(tmp_path: Path, name: str) -> None:
    for load in (load_public_key, lambda path: load_signing_key(path, nobody)):
        with pytest.raises(InputError, match="a readable file"):
            load(tmp_path / name)


@pytest.mark.parametrize(
    "key",
    [
        x25519.X25519PrivateKey.generate(),
        ec.generate_private_key(ec.SECP256K1()),
        dsa.generate_private_key(1024),
    ],
)
def test_a_key_that_is_not_for_this(tmp_path: Path, key: Any) -> None:
    (tmp_path / "k.pem").write_bytes(key.public_key().public_bytes(PEM, SPKI))
    with pytest.raises(InputError, match="an ed25519, ECDSA"):
        load_public_key(tmp_path / "k.pem")
    with pytest.raises(InputError, match="an ed25519, ECDSA"):
        load_signing_key(private(tmp_path / "k", key), nobody)


def test_a_private_key_is_not_taken_for_a_public_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a private key, but should be a public key"):
        load_public_key(private(tmp_path / "k", KEYS["ed25519"]))


@pytest.mark.parametrize("missing", ["cryptography", "securesystemslib.dsse"])
def test_without_the_extra_the_command_that_installs_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == missing:
            raise ImportError(f"No module named {name!r}", name=name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        InputError, match=r'pip install "\.\[sign\]" in a clone of neartie \[sign\]$'
    ):
        load_public_key(tmp_path / "k")
