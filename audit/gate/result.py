"""The result of a gate: the record of ``gate.json`` and the certificates beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..verdict import Verdict


@dataclass(frozen=True, eq=False)
class GateResult:
    """What a gate found; every figure of every report comes from here.

    Attributes:
        record: the content of ``gate.json``, plain JSON values, the same bits for the same plan.
        swaps: certificates, one row per differing row (``swaps.parquet``).
        histograms: counts per bank and width (``histograms.parquet``).
        verdict: state, reasons and class.
        reused_shards: shards taken over from an earlier run; not part of the record.
        seconds: time of this run; not part of the record.
    """

    record: Mapping[str, Any]
    swaps: pa.Table
    histograms: pa.Table
    verdict: Verdict
    reused_shards: int = 0
    seconds: float = 0.0

    @property
    def exit_status(self) -> int:
        """0 pass, 1 fail, 3 inconclusive or not run."""
        return self.verdict.exit_status

    def to_json(self) -> str:
        """Return the record as one strict JSON document."""
        return json.dumps(self.record, indent=1, allow_nan=False)

    def to_markdown(self) -> str:
        """Return the report that is pasted into a pull request."""
        from ..report.gate import render_gate

        return render_gate(self)

    def write(self, directory: str | Path) -> Path:
        """Write the evidence directory in one step and return its path.

        Raises:
            InputError: the directory exists and is not empty.
        """
        from ..evidence.write import write_gate_evidence

        return write_gate_evidence(self, directory)
