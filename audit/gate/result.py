"""The result of a gate, with what a user does with it: read it, write it, show it."""

from __future__ import annotations

from pathlib import Path
from typing import overload

from ..evidence.write import write_gate_evidence
from ..report.gate import render_gate
from ..report.notebook import render_notebook_gate
from .record import GateRecord


class GateResult(GateRecord):
    """What ``run_gate`` returns."""

    @property
    def exit_status(self) -> int:
        """0 pass, 1 fail, 3 inconclusive or not run."""
        return self.verdict.exit_status

    def to_markdown(self) -> str:
        """Return the report that is pasted into a pull request."""
        return render_gate(self)

    @overload
    def write(self, directory: Path) -> Path: ...
    @overload
    def write(self, directory: str | Path) -> Path | str: ...
    def write(self, directory: str | Path) -> Path | str:
        """Write the evidence directory in one step and return its path, or its URL.

        Raises:
            InputError: the directory exists and is not empty.
        """
        return write_gate_evidence(self, directory)

    def _repr_html_(self) -> str:
        """Show verdict, swaps and tables in a notebook."""
        return render_notebook_gate(self)
