"""Collects batch findings over chunks, and counts the rows of each."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .metrics.findings import Finding
from .observed import BatchFinding


@dataclass
class _Entry:
    rows: int
    text: str
    fails: bool


@dataclass
class FindingLog:
    """Findings of one bank by (name, path, width, tensor); the first text of each is kept."""

    bank: str
    labels: dict[str, str]
    _entries: dict[tuple[Finding, str, int, str], _Entry] = field(default_factory=dict)

    def note(
        self,
        name: Finding,
        role: str,
        width: int,
        rows: npt.NDArray[np.bool_],
        text: str,
        *,
        tensor: str = "",
        fails: bool = True,
    ) -> None:
        """Count the rows [row] that show a finding; nothing is kept where none does."""
        count = int(np.count_nonzero(rows))
        if count:
            key = (name, role, width, tensor)
            self._entries.setdefault(key, _Entry(0, text, fails)).rows += count

    def merge(self, other: FindingLog) -> None:
        """Add what was found on later rows of the same bank."""
        for key, entry in other._entries.items():
            mine = self._entries.setdefault(key, _Entry(0, entry.text, entry.fails))
            mine.rows += entry.rows

    def forget_width(self, width: int) -> None:
        """Drop what was found at a width that could not be finished."""
        self._entries = {key: entry for key, entry in self._entries.items() if key[2] != width}

    def findings(self) -> list[BatchFinding]:
        """Return what was found so far."""
        return [
            BatchFinding(
                name=str(name),
                path=self.labels.get(role, role),
                bank=self.bank,
                width=width,
                rows=entry.rows,
                text=f"{entry.text} ({entry.rows:,} rows)",
                fails=entry.fails,
            )
            for (name, role, width, _), entry in self._entries.items()
        ]
