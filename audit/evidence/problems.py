"""What a verification found, by name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum


class Code(StrEnum):
    """Names of problems."""

    MISSING_FILE = "missing_file"
    EXTRA_FILE = "extra_file"
    CHANGED_FILE = "changed_file"
    NOT_A_FILE = "not_a_file"
    UNREADABLE = "unreadable"
    MANIFEST = "manifest"
    MANIFEST_RECORD = "manifest_record"
    SCHEMA = "schema"
    BANK = "bank"
    BANKS_SWAPPED = "banks_swapped"
    FIGURE = "figure"
    CERTIFICATE = "certificate"
    COUNTS = "counts"
    RENDERED = "rendered"
    RERUN = "rerun"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is not as it was written.

    Attributes:
        code: its name, one of ``Code`` or a name of whoever checks signatures.
        where: file, and the place in it.
        text: what is there, and what should be.
    """

    code: str
    where: str
    text: str


@dataclass(frozen=True)
class Verification:
    """Answer of ``verify_evidence``.

    Attributes:
        problems: what is wrong; empty where everything that was checked holds.
        not_run: checks that could not be made here, each with its reason; such evidence is neither
            good nor bad.
        checked: what was compared, in words.
        notes: what no check of this kind can see; it changes no state.
    """

    problems: Sequence[Problem]
    not_run: Sequence[str]
    checked: Sequence[str] = field(default=())
    notes: Sequence[str] = field(default=())

    @property
    def state(self) -> str:
        """FAIL with a problem, NOT_RUN where a check could not be made, else PASS."""
        return "FAIL" if self.problems else "NOT_RUN" if self.not_run else "PASS"

    @property
    def exit_status(self) -> int:
        """0 pass, 1 fail, 3 not run."""
        return {"PASS": 0, "FAIL": 1, "NOT_RUN": 3}[self.state]

    def to_json(self) -> str:
        """Return the answer as one strict JSON document."""
        return json.dumps({"state": self.state, **asdict(self)}, indent=1, allow_nan=False)

    def text(self) -> str:
        """Return one line a problem, a check that was not run, a thing checked, and a note."""
        lines = [f"{p.code}: {p.where}: {p.text}" for p in self.problems]
        lines += [f"NOT_RUN: {reason}" for reason in self.not_run]
        lines += [f"checked: {what}" for what in self.checked]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, self.state])
