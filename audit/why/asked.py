"""What ``neartie why`` was asked: banks, paths, ranks and width, of a bank or of evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...banks.bank import Bank
from ...banks.errors import InputError
from ...banks.geometry import Geometry
from ...banks.open import expand_banks, open_bank
from ...kernels import contract
from ...kernels.contract import check_width
from ...kernels.registry import as_path
from ..compare import BASELINE, CANDIDATE
from ..evidence.check_shape import check_shape
from ..evidence.load import Evidence, load_evidence
from ..evidence.rerun import job_of

DEFAULT_RANKS: Final = 8
DEFAULT_WIDTH: Final = 9
DEFAULT_ROWS: Final = 48
_PATHS: Final = {BASELINE: "general", CANDIDATE: "route"}


@dataclass(frozen=True, slots=True)
class MissingBank:
    """A bank of the evidence that is not the audited one here, and why."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False)
class Asked:
    """The question of one call.

    Attributes:
        target: as it was given.
        banks: the banks that open here.
        missing: those of the evidence that do not.
        names: of the baseline and the candidate, by role.
        paths: those of them that can be made here.
        refused: why the others cannot: only paths of evidence, never those that were given.
        ranks, width: of every launch.
        rows: rows of each bank that are run.
        evidence: the evidence directory; None for a bank.
    """

    target: str
    banks: Sequence[Bank]
    missing: Sequence[MissingBank]
    names: dict[str, str]
    paths: dict[str, contract.Path]
    refused: dict[str, str]
    ranks: int
    width: int
    rows: int
    evidence: Evidence | None = None

    def geometries(self) -> list[tuple[Geometry, Bank]]:
        """Return each geometry once, with the first bank that has it."""
        found: dict[Geometry, Bank] = {}
        for bank in self.banks:
            found.setdefault(bank.geometry, bank)
        return list(found.items())


def asked(
    target: str | Bank | Evidence,
    *,
    baseline: str | contract.Path | None = None,
    candidate: str | contract.Path | None = None,
    ranks: int | None = None,
    width: int | None = None,
    rows: int = DEFAULT_ROWS,
    device: str | None = None,
) -> Asked:
    """Return what a target and options ask; what is None is the evidence's, or the default.

    Raises:
        InputError: a bank, path, width or number that is refused, or evidence of a gate.
    """
    for what, number in (("rows", rows), ("width", width), ("ranks", ranks)):
        if number is not None and number < 1:
            raise InputError(what, number, "at least 1", "why")
    evidence = _evidence(target)
    given = {BASELINE: baseline, CANDIDATE: candidate}
    if evidence is None:
        banks = [target] if isinstance(target, Bank) else expand_banks([str(target)])
        missing: list[MissingBank] = []
        known = {**_PATHS, "device": "cpu"}
        recorded = [bank.header.ranks for bank in banks if bank.header.ranks is not None]
        told_ranks, told_width = (recorded or [DEFAULT_RANKS])[0], DEFAULT_WIDTH
    else:
        job = job_of(evidence)
        banks, missing = _banks(evidence)
        known = {role: job[role] for role in (*_PATHS, "device")}
        told_ranks, told_width = job["ranks"], (job["widths"] or [DEFAULT_WIDTH])[0]
    where = device or known["device"]
    if where not in ("cpu", "cuda"):
        raise InputError("device", where, "cpu or cuda", "why")
    paths: dict[str, contract.Path] = {}
    refused: dict[str, str] = {}
    for role in _PATHS:
        one = given[role]
        if evidence is None or one is not None:
            paths[role] = as_path(one or known[role], role, where)
        else:
            made = _recorded_path(evidence, role, known[role], where)
            if isinstance(made, str):
                refused[role] = made
            else:
                paths[role] = made
    number = told_ranks if ranks is None else ranks
    rows_per_launch = told_width if width is None else width
    check_width(rows_per_launch, "why")
    for bank in banks:
        bank.geometry.check_ranks(number)
    name = target.name if isinstance(target, Bank) else str(target)
    if isinstance(target, Evidence):
        name = str(target.directory)
    names = {role: paths[role].name if role in paths else str(known[role]) for role in _PATHS}
    return Asked(
        name, banks, missing, names, paths, refused, number, rows_per_launch, rows, evidence
    )


def _recorded_path(evidence: Evidence, role: str, spec: str, device: str) -> contract.Path | str:
    """A path of the evidence, or why it cannot be made here."""
    launch = evidence.record.get("launch")
    if launch is not None:
        return f"it ran on {launch['ranks']} real ranks; give --{role} to run another in its place"
    try:
        return as_path(spec, role, device)
    except InputError as error:
        return str(error)


def _evidence(target: str | Bank | Evidence) -> Evidence | None:
    """The evidence where the target is some.

    Raises:
        InputError: evidence of a gate, or evidence that cannot be read or has another form.
    """
    if isinstance(target, Bank):
        return None
    found = target if isinstance(target, Evidence) else None
    if found is None and _holds_evidence(str(target)):
        found = load_evidence(str(target))
    if found is not None and found.kind != "audit":
        raise InputError("evidence", found.kind, "an audit's: a gate runs no front", "why")
    broken = None if found is None else next(check_shape(found), None)
    if broken is not None:
        raise InputError(broken.where, broken.text, "as an audit writes it", "why")
    return found


def _holds_evidence(target: str) -> bool:
    try:
        return any((Path(target) / name).is_file() for name in ("audit.json", "gate.json"))
    # A generator's spec may be longer than a file's name can be.
    except (OSError, ValueError):
        return False


def _banks(evidence: Evidence) -> tuple[list[Bank], list[MissingBank]]:
    """The banks of the evidence that open here with the digest that was audited."""
    banks, missing = [], []
    for entry in evidence.record["banks"]:
        try:
            bank = open_bank(entry["spec"])
        except InputError as error:
            missing.append(
                MissingBank(entry["name"], f"{entry['spec']} does not open here: {error}")
            )
            continue
        if bank.digest != entry["digest"]:
            reason = f"{entry['spec']} has sha256 {bank.digest}, audited was {entry['digest']}"
            missing.append(MissingBank(entry["name"], reason))
            continue
        banks.append(bank)
    return banks, missing
