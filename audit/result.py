"""The result of an audit, with what a user does with it: read it, write it, show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import overload

from .evidence.write import write_evidence
from .metrics.worst_weight import WorstWeight
from .record import AuditRecord
from .report.markdown import render_markdown
from .report.notebook import render_notebook


@dataclass(frozen=True, eq=False)
class AuditResult(AuditRecord):
    """What ``run_audit`` returns; beside the record it has what no evidence keeps.

    Attributes:
        bank_specs: by the bank names of ``swaps``, what ``open_bank`` and ``replay_row`` open each
            by from any working directory on this machine; a bank in memory has none. A name opens
            only what is shipped or generated.
        worst_weights: by bank name and width, slot, expert and values of the weight that the record
            calls the worst: the candidate's, and the baseline's as the expected one.
    """

    bank_specs: Mapping[str, str] = field(default_factory=dict)
    worst_weights: Mapping[tuple[str, int], WorstWeight] = field(default_factory=dict)

    @property
    def exit_status(self) -> int:
        """0 pass, 1 failed or a claim refuted, 3 inconclusive, not run or a claim unsupported."""
        status = {self.verdict.exit_status}
        counts = self.record.get("claims", {}).get("counts", {})
        status |= {1} if counts.get("REFUTED") else set()
        status |= {3} if counts.get("UNSUPPORTED") else set()
        return 1 if 1 in status else max(status)

    @property
    def numerics_class(self) -> str:
        """The class that may be signed."""
        return str(self.verdict.numerics_class)

    def to_markdown(self) -> str:
        """Return the report that is pasted into a pull request."""
        return render_markdown(self)

    @overload
    def write(self, directory: Path) -> Path: ...
    @overload
    def write(self, directory: str | Path) -> Path | str: ...
    def write(self, directory: str | Path) -> Path | str:
        """Write the evidence directory in one step and return its path, or its URL.

        Raises:
            InputError: the directory exists and is not empty.
        """
        return write_evidence(self, directory)

    def _repr_html_(self) -> str:
        """Show verdict, widths and the worst certificates in a notebook."""
        return render_notebook(self)
