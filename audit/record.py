"""The result of an audit: the record of ``audit.json`` and the tables beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from .verdict import Verdict

RECORD_VERSION = 1
"""Version of the words in ``audit.json``; a change of meaning raises it."""


@dataclass(frozen=True, eq=False)
class AuditResult:
    """What an audit found; every figure of every report comes from here.

    Attributes:
        record: the content of ``audit.json``, plain JSON values.
        swaps: certificates, one row per differing row (``swaps.parquet``).
        values: the error triangle per bank, width, rank and tensor (``values.parquet``).
        verdict: state, reasons and class.
    """

    record: Mapping[str, Any]
    swaps: pa.Table
    values: pa.Table
    verdict: Verdict

    @property
    def exit_status(self) -> int:
        """0 pass, 1 fail, 3 inconclusive or not run."""
        return self.verdict.exit_status

    @property
    def numerics_class(self) -> str:
        """The class that may be signed."""
        return str(self.verdict.numerics_class)

    def to_json(self) -> str:
        """Return the record as one strict JSON document."""
        return json.dumps(self.record, indent=1, allow_nan=False)

    def to_markdown(self) -> str:
        """Return the report that is pasted into a pull request."""
        from .report.markdown import render_markdown

        return render_markdown(self)

    def write(self, directory: str | Path) -> Path:
        """Write the evidence directory in one step and return its path.

        Raises:
            InputError: the directory exists and is not empty.
        """
        from .evidence import write_evidence

        return write_evidence(self, directory)

    def _repr_html_(self) -> str:
        """Show verdict, widths and the worst certificates in a notebook."""
        from .report.notebook import render_notebook

        return render_notebook(self)
