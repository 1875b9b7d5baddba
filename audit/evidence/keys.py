"""Keys that sign evidence: ed25519, ECDSA and RSA, from PEM files or OpenSSH's own.

Reading is left to ``cryptography`` and the schemes to ``securesystemslib`` (ed25519; ECDSA with
the SHA-2 of its curve; RSA-PSS with SHA-256). Both come with the extra ``sign``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...banks.errors import InputError

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner, SSlibKey

AskPassphrase = Callable[[], str | None]
"""Gives the passphrase of an encrypted key, or None where there is nobody to ask."""

_SSH_PRIVATE: Final = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_PUBLIC: Final = "a public key: PEM (SubjectPublicKeyInfo) or an OpenSSH .pub file"
_PRIVATE: Final = "a private key: PEM (PKCS8) or OpenSSH"
_KINDS: Final = "an ed25519, ECDSA (P-256, P-384, P-521) or RSA key"
_MAX_BYTES: Final = 1 << 16  # No key is near this; a wrong file may be.


@dataclass(frozen=True, eq=False)
class PublicKey:
    """A key that signatures are checked with.

    Attributes:
        keyid: sha256 of its SubjectPublicKeyInfo in DER, hex: the same for every file format.
        name: the comment of an OpenSSH key, else the file's name.
        scheme: what verifies, a key of ``securesystemslib``.
    """

    keyid: str
    name: str
    scheme: SSlibKey


@dataclass(frozen=True, eq=False)
class SigningKey:
    """A key that signs; ``comment`` is that of the ``.pub`` file beside it, where there is one."""

    keyid: str
    comment: str | None
    signer: CryptoSigner


def load_public_key(path: str | Path) -> PublicKey:
    """Read a public key.

    Raises:
        InputError: the file cannot be read, holds no such key, or the extra is not installed.
    """
    require_signing()
    where = Path(path)
    data = _read(where)
    key, comment = _public(data, where)
    keyid = _keyid(key)
    return PublicKey(keyid, comment or where.name, _scheme(key, keyid, where))


def load_signing_key(path: str | Path, ask_passphrase: AskPassphrase) -> SigningKey:
    """Read a private key; ``ask_passphrase`` is called only if it is encrypted.

    Raises:
        InputError: the file cannot be read, holds no such key, the passphrase is wrong or missing,
            or the extra is not installed.
    """
    require_signing()
    from securesystemslib.signer import CryptoSigner

    where = Path(path)
    private = _private(_read(where), where, ask_passphrase)
    public = private.public_key()
    keyid = _keyid(public)
    scheme = _scheme(public, keyid, where)
    return SigningKey(keyid, _comment_beside(where, keyid), CryptoSigner(private, scheme))


def require_signing() -> None:
    """Refuse where the libraries of the extra ``sign`` are not installed.

    Raises:
        InputError: they are not, with the command that installs them.
    """
    try:
        import cryptography
        import securesystemslib.dsse
    except ImportError as error:
        missing = error.name or "cryptography"
        expected = 'installed: pip install ".[sign]" in a clone of neartie'
        raise InputError(missing, "missing", expected, "sign") from error
    del cryptography, securesystemslib


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InputError("key", path, f"a readable file ({error.strerror})", "--key") from error
    if len(data) > _MAX_BYTES:
        raise InputError("key", path, f"a key, at most {_MAX_BYTES:,} bytes", "--key")
    return data


def _public(data: bytes, path: Path) -> tuple[Any, str | None]:
    """The key and the comment of its file."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    if b"PRIVATE KEY" in data:
        raise InputError("key", f"{path}, a private key", _PUBLIC, "--key")
    try:
        if data.lstrip().startswith(b"-----BEGIN"):
            return serialization.load_pem_public_key(data), None
        key = serialization.load_ssh_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError("key", path, f"{_PUBLIC} ({error})", "--key") from error
    comment = data.decode("utf-8", "replace").strip().split(None, 2)[2:]
    return key, comment[0] if comment else None


def _private(data: bytes, path: Path, ask_passphrase: AskPassphrase) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    if b"PRIVATE KEY" not in data:
        raise InputError("key", path, _PRIVATE, "--key")
    ssh = data.lstrip().startswith(_SSH_PRIVATE)
    load: Callable[..., Any] = (
        serialization.load_ssh_private_key if ssh else serialization.load_pem_private_key
    )
    try:
        try:
            return load(data, password=None)
        except TypeError:  # Documented: raised where the key is encrypted and no password given.
            passphrase = ask_passphrase()
        if not passphrase:
            expected = "its passphrase in NEARTIE_KEY_PASSPHRASE, or a terminal to ask at"
            raise InputError("key", f"{path}, encrypted", expected, "--key")
        return load(data, password=passphrase.encode())
    except InputError:
        raise
    except (ValueError, UnsupportedAlgorithm) as error:
        # The library's own words may be long and are the same for a wrong passphrase.
        expected = f"{_PRIVATE}, whole, and its passphrase if it has one"
        raise InputError("key", path, expected, "--key") from error


def _scheme(key: Any, keyid: str, path: Path) -> SSlibKey:
    from securesystemslib.signer import SSlibKey

    try:
        return SSlibKey.from_crypto(key, keyid)
    except ValueError as error:
        raise InputError("key", path, f"{_KINDS} ({error})", "--key") from error


def _keyid(public: Any) -> str:
    from cryptography.hazmat.primitives import serialization

    der = public.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(der).hexdigest()


def _comment_beside(path: Path, keyid: str) -> str | None:
    """The comment of KEY.pub, if that is the public half of this key."""
    beside = path.with_name(path.name + ".pub")
    if not beside.is_file():
        return None
    key, comment = _public(_read(beside), beside)
    return comment if _keyid(key) == keyid else None
