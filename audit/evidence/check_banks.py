"""Are the banks those that were audited?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from ...banks.bank import Bank
from ...banks.errors import InputError
from ...banks.open import open_bank
from ..policy import model_names
from .load import Evidence
from .manifest import bank_entries
from .problems import Code, Problem


def check_banks(evidence: Evidence) -> tuple[int, list[Problem], list[str]]:
    """Return how many banks were opened, what is wrong, and which could not be opened and why.

    Manifest and record must name the same banks; one that opens here must have the name, the
    digest and the sizes that the record gives it.
    """
    mine, theirs = list(evidence.manifest["banks"]), bank_entries(evidence.record)
    problems: list[Problem] = []
    if mine != theirs:
        problems.append(_unlike(mine, theirs))
    entries = dict(all_banks(evidence.record))
    names = {bank["digest"]: bank["name"] for bank in entries.values()}
    opened, unopened = 0, []
    for where, entry in entries.items():
        try:
            bank = open_bank(entry["spec"])
        except InputError as error:
            if error.what.startswith("sha256"):
                problems.append(Problem(Code.BANK, where, str(error)))
            else:
                unopened.append(f"{where}: not opened here: {error}")
            continue
        opened += 1
        problems += _bank(bank, entry, names, where, evidence.kind)
    return opened, problems, unopened


def all_banks(record: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every bank with its place: the audit's own, and those of the gate that it started."""
    sections = [("banks", record["banks"]), ("gate.banks", (record.get("gate") or {}).get("banks"))]
    for section, banks in sections:
        for number, entry in enumerate(banks or ()):
            yield f"{section}[{number}] {entry['name']}", entry


def _unlike(mine: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> Problem:
    def sorted_values(entries: list[dict[str, Any]]) -> list[str]:
        return sorted(str(value) for entry in entries for value in entry.values())

    if sorted_values(mine) == sorted_values(theirs):
        text = "the same names, specs and digests as the record's, and not at the same banks"
        return Problem(Code.BANKS_SWAPPED, "manifest.json: banks", text)
    return Problem(Code.MANIFEST_RECORD, "banks", "not those of the record")


def _bank(
    bank: Bank, entry: Mapping[str, Any], names: Mapping[str, str], where: str, kind: str
) -> Iterator[Problem]:
    if bank.digest != entry["digest"]:
        other = names.get(bank.digest)
        code = Code.BANKS_SWAPPED if other else Code.BANK
        whose = f", which the record gives to {other}" if other else ""
        text = f"{entry['spec']} has sha256 {bank.digest}{whose}, recorded is {entry['digest']}"
        yield Problem(code, where, text)
        return
    found: dict[str, Any] = {
        "name": bank.name,
        "stage": bank.stage,
        "geometry": asdict(bank.geometry),
        "models": list(model_names(bank)),
        "independence_unit": bank.independence_unit,
    }
    if kind == "audit":
        found["rows"] = bank.rows
    for name, value in found.items():
        # The gate of an audit names its banks and their rows alone; older evidence, no models.
        if entry.get(name, value) != value:
            yield Problem(Code.BANK, f"{where}: {name}", f"{entry[name]}, but the bank has {value}")
