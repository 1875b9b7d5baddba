"""Match the certificates of two runs by what they are about, never by position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ...banks.errors import InputError
from ..certificates import severity
from ..metrics.swaps import SetClass
from .load import Evidence
from .view import RecordView

NO_CERTIFICATE: Final = "no certificate"
"""The sets of this row were the same, in whatever order, or the row was invalid."""
NOT_RUN: Final = "not run"
SHOWN: Final = 3


class CertificateKey(NamedTuple):
    """One row as a run saw it; ``rank`` is the first of the ranks that held the same bits."""

    digest: str
    row: int
    width: int
    rank: int


@dataclass(frozen=True, slots=True)
class Transition:
    """How many rows went from one set class to another."""

    first: str
    second: str
    rows: int


@dataclass(frozen=True)
class CertificateDiff:
    """Certificates of two runs side by side.

    Attributes:
        transitions: the matrix of set classes, without its zeros; rows are (row, width, rank).
        new, vanished, changed: rows with a certificate in the second run only, in the first only,
            and in both with another class.
        worst_new, worst_vanished: the certificates that are shown, worst first.
    """

    transitions: Sequence[Transition]
    new: int
    vanished: int
    changed: int
    worst_new: Sequence[Mapping[str, Any]]
    worst_vanished: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class Certified:
    """The certificates of one run, and what it ran at all."""

    rows: Mapping[CertificateKey, Mapping[str, Any]]
    ran: frozenset[tuple[str, int]]
    """(bank digest, width)"""

    def set_class(self, key: CertificateKey) -> str:
        """Return the class of a row; ``NO_CERTIFICATE`` or ``NOT_RUN`` where it has none."""
        if key in self.rows:
            return str(self.rows[key]["set_class"])
        return NO_CERTIFICATE if (key.digest, key.width) in self.ran else NOT_RUN

    def rows_at(self, width: int) -> set[tuple[str, int]]:
        """Return the (bank digest, row) with a certificate at a width, on any rank."""
        return {(key.digest, key.row) for key in self.rows if key.width == width}


def certified(evidence: Evidence, view: RecordView) -> Certified:
    """Read the certificates of one run.

    Raises:
        InputError: ``swaps.parquet`` is missing, lacks a column, or names a bank or a class
            that there is none of.
    """
    where = f"{evidence.name}/swaps.parquet"
    table = evidence.tables.get("swaps")
    columns = ["bank", "row", "width", "rank", "set_class", "gap_ulp", "dropped", "added"]
    if table is None or not set(columns) <= set(table.column_names):
        raise InputError("swaps", "missing or incomplete", f"columns {', '.join(columns)}", where)
    digests = {bank.name: bank.digest for bank in view.banks}
    rows = {}
    for record in table.select(columns).to_pylist():
        if record["bank"] not in digests:
            raise InputError("bank", record["bank"], "a bank of the record", where)
        if record["set_class"] not in list(SetClass):
            raise InputError("set_class", record["set_class"], "a class of sets", where)
        digest = digests[record["bank"]]
        key = CertificateKey(digest, record["row"], record["width"], record["rank"])
        rows[key] = record
    ran = {(digests.get(c.bank, c.bank), c.width) for c in view.coverage if c.ran}
    return Certified(rows, frozenset(ran))


def diff_certificates(first: Certified, second: Certified) -> CertificateDiff:
    """Return which rows differ in one run only, in both, and how their class changed."""
    pairs = Counter(
        (first.set_class(key), second.set_class(key)) for key in {*first.rows, *second.rows}
    )
    transitions = [Transition(a, b, rows) for (a, b), rows in sorted(pairs.items())]
    both = first.rows.keys() & second.rows.keys()
    return CertificateDiff(
        transitions,
        len(second.rows) - len(both),
        len(first.rows) - len(both),
        sum(first.set_class(key) != second.set_class(key) for key in both),
        _worst(second, first),
        _worst(first, second),
    )


def _worst(mine: Certified, other: Certified) -> list[Mapping[str, Any]]:
    alone = [record for key, record in mine.rows.items() if key not in other.rows]
    order = sorted(alone, key=lambda r: (r["bank"], r["row"], r["width"], r["rank"]))
    return sorted(order, key=lambda record: severity(dict(record)), reverse=True)[:SHOWN]
