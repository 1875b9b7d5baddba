"""Find out whether an evidence directory is what was written, and whether its figures follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...banks.errors import InputError
from ...banks.files import local_path
from ...banks.remote_urls import public_url
from .check_banks import all_banks, check_banks
from .check_figures import check_certificates, check_counts, check_record, check_tables
from .check_files import check_files
from .check_shape import check_shape
from .load import Evidence, read_evidence
from .manifest import SIGNATURES, Manifest
from .problems import Code, Problem, Verification
from .remote import copy_of

if TYPE_CHECKING:
    from .keys import PublicKey

CHECKS: Final[tuple[tuple[str, Callable[[Evidence], Iterator[Problem]]], ...]] = (
    ("certificates against their gaps and their counts", check_certificates),
    ("counts of the tables against each other", check_counts),
    ("figures, verdict and rendered files against the tables", check_record),
)
"""What is asked of evidence that can be read. The place to add a check."""

UNSEEN: Final = f"{SIGNATURES}: whether the last one, or all, was removed shows only with --key"
"""Nothing outside the folder says how many there were."""


def verify_evidence(
    directory: str | Path, *, rerun: bool = False, keys: Sequence[PublicKey] = ()
) -> Verification:
    """Return every problem of an evidence directory, and what could not be checked here.

    Files are held against the manifest; the record against the tables, each of its figures that
    follows from them made again; the manifest against the record; banks that open here against
    their recorded digests.

    Args:
        directory: as ``--out`` wrote it; of a URL, a copy is read.
        rerun: also repeat the audit from the banks in a new process, and compare every table bit
            for bit and the record but for its environment.
        keys: public keys that are trusted (``keys.load_public_key``); each is expected to have
            signed. A signature by another key is told and proves nothing.

    Raises:
        InputError: there is no evidence at all.
    """
    place = local_path(directory)
    if place is not None:
        return _verify(place, None, rerun, keys)
    url = public_url(str(directory))
    with copy_of(str(directory)) as copy:
        found = _verify(copy, url, rerun, keys)
        told = [replace(p, text=p.text.replace(str(copy), url)) for p in found.problems]
        return replace(found, problems=told)


def _verify(place: Path, url: str | None, rerun: bool, keys: Sequence[PublicKey]) -> Verification:
    manifest, problems = check_files(place)
    checked = [] if manifest is None else [f"sha256 of {len(manifest.files)} files"]
    not_run: list[str] = []
    evidence = _readable(place, url, problems)
    if evidence is None:
        not_run.append("record and tables: not read, as files are not those that were written")
        return Verification(problems, not_run, checked)
    broken = [*check_shape(evidence), *check_tables(evidence)]
    if broken:
        not_run.append("figures: not checked, as record or tables have another form")
        return Verification([*problems, *broken], not_run, checked)
    for words, check in CHECKS:
        problems += check(evidence)
        checked.append(words)
    if manifest is not None:
        problems += _manifest_record(manifest, evidence)
    opened, found, unopened = check_banks(evidence)
    problems += found
    not_run += unopened
    checked.append(f"digests of {opened} of {len(dict(all_banks(evidence.record)))} banks")
    problems += _signatures(evidence, keys, checked)
    if rerun:
        from .rerun import rerun_evidence

        again, reasons = rerun_evidence(evidence)
        problems += again
        not_run += reasons
        checked.append("the audit repeated in a new process" if not reasons else "no repeated run")
    return Verification(problems, not_run, checked, () if keys else (UNSEEN,))


def _signatures(
    evidence: Evidence, keys: Sequence[PublicKey], checked: list[str]
) -> Iterator[Problem]:
    """What is wrong with the signatures; those that hold are told among what was checked."""
    if not keys and not (evidence.directory / SIGNATURES).exists():
        return
    # Needs the extra `sign`, which evidence without signatures does not.
    from .sign import Trust, check_signatures

    for state in check_signatures(evidence, keys):
        if state.trust is Trust.PROBLEM:
            yield Problem(state.code, state.file, state.text)
        else:
            checked.append(f"{state.file}: {state.text}")


def _readable(place: Path, url: str | None, problems: list[Problem]) -> Evidence | None:
    """The evidence, where its files are worth reading; a problem is added where they are not.

    A table whose hash is wrong may hold anything, so it is not parsed.
    """
    damaged = {Code.MISSING_FILE, Code.CHANGED_FILE, Code.NOT_A_FILE, Code.MANIFEST}
    if any(problem.code in damaged for problem in problems):
        return None
    try:
        return read_evidence(place, url)
    except InputError as error:
        problems.append(Problem(Code.UNREADABLE, str(error.where), str(error)))
        return None


def _manifest_record(manifest: Manifest, evidence: Evidence) -> Iterator[Problem]:
    """What manifest and record both say must be the same."""
    record = evidence.record
    told: dict[str, tuple[Any, Any]] = {
        "kind": (manifest.kind, evidence.kind),
        "command": (manifest.command, record.get("command")),
        "device": (manifest.device, record.get("device")),
    }
    for name, (mine, theirs) in told.items():
        if mine != theirs:
            yield Problem(
                Code.MANIFEST_RECORD, name, f"{mine} in the manifest, {theirs} in the record"
            )
