"""``manifest.json``: what an evidence directory holds, and what it was made with."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ... import __version__
from ...banks.errors import InputError
from ..environment import code_digest, flags, git_state, package_state, versions

MANIFEST_FILE: Final = "manifest.json"
MANIFEST_VERSION: Final = 1
SIGNATURES: Final = "signatures"
"""Folder of the signatures; the manifest, which is what is signed, does not list it."""
BESIDE_MANIFEST: Final[frozenset[str]] = frozenset({MANIFEST_FILE, SIGNATURES})
"""Files that the manifest does not list: itself, and whatever is made of it afterwards."""

TEMPORARY_SUFFIX: Final = ".partial"
"""Ends the name of a directory that is being written, or that a killed writer left."""

Kind = Literal["audit", "gate"]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Model(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )


class BankEntry(_Model):
    """One bank of an audit."""

    name: str
    spec: str
    """What opens the bank again."""
    digest: Sha256


class GitState(_Model):
    """A commit, and whether files differed from it."""

    commit: str
    dirty: bool


class Manifest(_Model):
    """Everything that the record cannot say of itself; the date is here and nowhere else."""

    schema_version: Literal[1]
    kind: Kind
    date: str
    """UTC, ISO 8601: when the directory was written."""
    command: str
    device: str
    banks: tuple[BankEntry, ...] = Field(strict=False)
    files: Mapping[str, Sha256]
    """Sha256 of every other file, by name."""
    neartie: str
    code: Sha256
    """Digest of the package's Python sources."""
    code_repository: GitState | None
    """Of the package's code; null where it lies in no repository."""
    working_directory: GitState | None
    """Of the directory where the audit was run; null where it is no repository."""
    versions: Mapping[str, str | None]
    flags: Mapping[str, Any]
    digest: Sha256
    """Sha256 of the rest of this document: tells accidents, and no forger."""

    def to_json(self) -> str:
        """Return the document; its bytes follow from its content."""
        return document_text(self.model_dump(mode="json"))

    def own_digest(self) -> str:
        """Return what ``digest`` should be."""
        return _digest(self.model_dump(mode="json"))


def make_manifest(kind: Kind, record: Mapping[str, Any], hashes: Mapping[str, str]) -> Manifest:
    """Return the manifest of a directory about to be finished.

    Args:
        kind: of its record.
        record: content of ``audit.json`` or ``gate.json``.
        hashes: sha256 hex of its files, by name.
    """
    document: dict[str, Any] = {
        "schema_version": MANIFEST_VERSION,
        "kind": kind,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": record["command"],
        "device": record["device"],
        "banks": [
            {key: bank[key] for key in ("name", "spec", "digest")} for bank in record["banks"]
        ],
        "files": dict(sorted(hashes.items())),
        "neartie": __version__,
        "code": code_digest(),
        "code_repository": package_state(),
        "working_directory": git_state(Path.cwd()),
        "versions": versions(),
        "flags": flags(),
    }
    document["digest"] = _digest(document)
    return Manifest.model_validate(document)


def bank_entries(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return name, spec and digest of each bank of a record."""
    return [{key: bank[key] for key in BankEntry.model_fields} for bank in record["banks"]]


def parse_manifest(text: str, where: Path) -> Manifest:
    """Return the manifest of a text.

    Raises:
        InputError: it is no JSON, or a field is missing, unknown or of another form.
    """
    try:
        return Manifest.model_validate(read_document(text))
    except ValidationError as error:
        absent = [_place(one["loc"]) for one in error.errors() if one["type"] == "missing"]
        if absent:
            expected = f"every field of a manifest (schema_version {MANIFEST_VERSION})"
            raise InputError("fields", f"no {', '.join(absent)}", expected, str(where)) from error
        first = error.errors()[0]
        field = _place(first["loc"]) or MANIFEST_FILE
        expected = first["msg"].removeprefix("Input should be ")
        raise InputError(field, first.get("input"), expected, str(where)) from error
    except (ValueError, RecursionError) as error:
        raise InputError("file", where, "a JSON document", str(error)) from error


def _place(loc: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in loc)


def read_document(text: str | bytes) -> Any:
    """Return the value of a JSON text as ``document_text`` writes them: every number is finite.

    Raises:
        ValueError: no JSON, or a number that is not finite.
        RecursionError: it is nested too deep.
    """

    def finite(number: str) -> float:
        value = float(number)
        if not math.isfinite(value):
            raise ValueError(f"{number} is no finite number")
        return value

    return json.loads(text, parse_constant=finite, parse_float=finite)


def document_text(document: Mapping[str, Any]) -> str:
    """Return a JSON document as every file of an evidence directory has it."""
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def file_digest(path: Path) -> str:
    """Return the sha256 hex of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(document: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in document.items() if key != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
