"""The record of an audit: the content of ``audit.json`` and the tables beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from .verdict import Verdict

RECORD_VERSION = 1
"""Version of the words in ``audit.json``; a change of meaning raises it."""


def verdict_record(verdict: Verdict) -> dict[str, Any]:
    """Return verdict, reasons and class as every record words them, JSON values."""
    return {
        "verdict": {
            "state": str(verdict.state),
            "reasons": [
                {
                    "state": str(r.state),
                    "code": str(r.code),
                    "text": r.text,
                    "width": r.width,
                    "bank": r.bank,
                }
                for r in verdict.reasons
            ],
        },
        "numerics_class": str(verdict.numerics_class),
        "provisional_class": str(verdict.provisional_class),
        "structural_tag": verdict.structural_tag,
    }


@dataclass(frozen=True, eq=False)
class AuditRecord:
    """What an audit found; every figure of every report comes from here.

    Attributes:
        record: the content of ``audit.json``, plain JSON values.
        swaps: certificates, one row per differing row (``swaps.parquet``).
        values: the error triangle per bank, width, rank and tensor (``values.parquet``).
        histograms: counts per bank and width (``histograms.parquet``).
        verdict: state, reasons and class.
    """

    record: Mapping[str, Any]
    swaps: pa.Table
    values: pa.Table
    histograms: pa.Table
    verdict: Verdict

    def to_json(self) -> str:
        """Return the record as one strict JSON document."""
        return json.dumps(self.record, indent=1, allow_nan=False)
