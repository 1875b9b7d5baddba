"""What identifies evidence: the digest of its manifest, which holds the digests of its files."""

from __future__ import annotations

from ...banks.errors import InputError
from .load import Evidence
from .manifest import MANIFEST_FILE, file_digest


def manifest_digest(evidence: Evidence) -> str:
    """Return the sha256 of the bytes of ``manifest.json``, in hex.

    Raises:
        InputError: the file cannot be read.
    """
    path = evidence.directory / MANIFEST_FILE
    try:
        return file_digest(path)
    except OSError as error:
        raise InputError("file", path, "a readable file", error.strerror or "open") from error
