"""What identifies evidence: the digest of its manifest, which holds the digests of its files."""

from __future__ import annotations

from pathlib import Path

from ...banks.errors import InputError
from .load import Evidence
from .manifest import MANIFEST_FILE, file_digest


def manifest_digest(evidence: Evidence) -> str:
    """Return the sha256 of the bytes of ``manifest.json``, in hex.

    Raises:
        InputError: the file cannot be read.
    """
    return _sha256(evidence.directory / MANIFEST_FILE)


def changed_files(evidence: Evidence) -> list[str]:
    """Return what does not hold the bytes that the manifest records, each with how.

    Raises:
        InputError: the manifest lists no files, or a file is there and cannot be read.
    """
    listed = evidence.manifest.get("files")
    record = f"{evidence.kind}.json"
    if not isinstance(listed, dict) or record not in listed:
        where = f"{evidence.name}/{MANIFEST_FILE}"
        raise InputError("files", "no list" if not listed else "a list without it", record, where)
    changed = []
    for name, digest in listed.items():
        path = evidence.directory / name
        if not path.resolve().is_relative_to(evidence.directory.resolve()):
            changed.append(f"{name} lies outside")
        elif not path.is_file():
            changed.append(f"{name} is missing")
        elif _sha256(path) != digest:
            changed.append(f"{name} was changed")
    return changed


def _sha256(path: Path) -> str:
    try:
        return file_digest(path)
    except OSError as error:
        raise InputError("file", path, "a readable file", error.strerror or "open") from error
