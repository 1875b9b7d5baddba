"""Are the files those that the manifest names, with the bytes that it names?"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ...banks.errors import InputError
from .manifest import (
    BESIDE_MANIFEST,
    MANIFEST_FILE,
    TEMPORARY_SUFFIX,
    Manifest,
    file_digest,
    parse_manifest,
)
from .problems import Code, Problem

_RECORDS = ("audit.json", "gate.json")
_IN_WORDS: Final = {
    Code.MISSING_FILE: "missing",
    Code.CHANGED_FILE: "changed since it was written",
    Code.NOT_A_FILE: "a link or a directory",
    Code.EXTRA_FILE: "a file that was put there later",
    Code.MANIFEST: "not as it was written",
}


def check_files(place: Path) -> tuple[Manifest | None, list[Problem]]:
    """Return the manifest, None where it cannot be read, and what is wrong with the files.

    Raises:
        InputError: the directory holds neither a manifest nor a record, or was never finished.
    """
    if place.name.endswith(TEMPORARY_SUFFIX):
        raise InputError("evidence", place, "a directory that was finished", "verify")
    if not any((place / name).exists() for name in (MANIFEST_FILE, *_RECORDS)):
        raise InputError("evidence", place, "a directory with a manifest and a record", "verify")
    manifest, problems = _manifest(place)
    if manifest is None:
        if not any((place / name).exists() for name in _RECORDS):
            names = " or ".join(_RECORDS)
            problems.append(Problem(Code.MISSING_FILE, names, "the record is not there"))
        return None, problems
    there = {path.name for path in place.iterdir()} - BESIDE_MANIFEST
    for name in sorted(there | set(manifest.files)):
        problems += _file(place, name, manifest.files.get(name))
    return manifest, problems


def refuse_changed(place: Path, names: Iterable[str]) -> None:
    """Refuse files that are not those of the manifest; the manifest itself is held first.

    What `verify` lists problem by problem stops a reader at the first one.

    Args:
        place: an evidence directory.
        names: the files that will be read; one that is neither there nor recorded is passed over.

    Raises:
        InputError: a file is missing, changed, a link, or not recorded; or there is no manifest to
            hold it against, so that nothing tells whether the directory was finished or changed.
    """
    manifest, problems = _manifest(place)
    if manifest is not None and not problems:
        for name in names:
            if name in manifest.files or (place / name).exists():
                problems += _file(place, name, manifest.files.get(name))
    if problems:
        first = problems[0]
        file = MANIFEST_FILE if first.code == Code.MANIFEST else first.where
        whose = "it was written" if file == MANIFEST_FILE else f"{MANIFEST_FILE} records it"
        expected = f"as {whose}: neartie verify {place} names every problem"
        raise InputError(file, in_words(first), expected, str(place))


def refuse_any_change(place: Path, name: str) -> None:
    """Refuse evidence of which any file is not what the manifest records.

    Args:
        place: an evidence directory.
        name: what it is called in the message.

    Raises:
        InputError: tells every such file.
    """
    _, problems = check_files(place)
    if problems:
        got = "; ".join(f"{problem.where} is {in_words(problem)}" for problem in problems)
        raise InputError("evidence", got, f"the files that {MANIFEST_FILE} records", name)


def in_words(problem: Problem) -> str:
    """Return what is wrong with a file, without its digests."""
    return _IN_WORDS.get(Code(problem.code), problem.text)


def _file(place: Path, name: str, recorded: str | None) -> list[Problem]:
    path = place / name
    if Path(name).name != name:
        return [Problem(Code.MANIFEST, f"files.{name}", "a name that points elsewhere")]
    try:
        there = path.exists() or path.is_symlink()
    # A name that no file can have.
    except OSError as error:
        return [Problem(Code.MANIFEST, f"files.{name[:60]}", error.strerror or "no file's name")]
    if not there:
        return [Problem(Code.MISSING_FILE, name, "named in the manifest and not there")]
    if path.is_symlink() or not path.is_file():
        return [Problem(Code.NOT_A_FILE, name, "a link or a directory")]
    if recorded is None:
        return [Problem(Code.EXTRA_FILE, name, "there and not named in the manifest")]
    try:
        found = file_digest(path)
    except OSError as error:
        return [Problem(Code.UNREADABLE, name, error.strerror or "not readable")]
    if found != recorded:
        return [Problem(Code.CHANGED_FILE, name, f"sha256 {found}, but should be {recorded}")]
    return []


def _manifest(place: Path) -> tuple[Manifest | None, list[Problem]]:
    path = place / MANIFEST_FILE
    if not path.exists():
        return None, [Problem(Code.MISSING_FILE, MANIFEST_FILE, "not there")]
    try:
        # Not read_text, which takes any line end for the one that was written.
        text = path.read_bytes().decode("utf-8")
        manifest = parse_manifest(text, path)
    except OSError as error:
        return None, [Problem(Code.MANIFEST, MANIFEST_FILE, error.strerror or "not readable")]
    except UnicodeDecodeError as error:
        return None, [Problem(Code.MANIFEST, MANIFEST_FILE, str(error))]
    except InputError as error:
        return None, [Problem(Code.MANIFEST, MANIFEST_FILE, str(error))]
    if manifest.own_digest() != manifest.digest:
        text = f"its content has the digest {manifest.own_digest()}, it says {manifest.digest}"
        return manifest, [Problem(Code.MANIFEST, f"{MANIFEST_FILE}: digest", text)]
    if manifest.to_json() != text:
        return manifest, [Problem(Code.MANIFEST, MANIFEST_FILE, "not laid out as it was written")]
    return manifest, []
