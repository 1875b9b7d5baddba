"""A small audit with swaps of several classes, and the same with a name of one's choice."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from neartie import run_audit
from neartie.audit.gate.result import GateResult
from neartie.audit.gate.run import run_gate
from neartie.audit.policy import Policy
from neartie.audit.record import AuditRecord

NEAR_TIE = "near_tie:geometry=mini,rows=40,gap=1"
# What a page, a table cell, an XML text and a JSON script could each choke on.
HOSTILE = (
    "<img src=x onerror=\"window.hit='img'\"></script><script>window.hit='script'</script>"
    "|`x` *b* [l](javascript:1) & \u2028 \x00\x1b\ud800\u202e\n# head ]]> --> '\""
)

Rename = Callable[[AuditRecord, str], AuditRecord]


@pytest.fixture(scope="session")
def record() -> AuditRecord:
    """Several banks and widths, a candidate whose sets and weights differ."""
    return run_audit(
        ["k3-mini/tie-witness", NEAR_TIE],
        candidate="route:select=radix_bf16",
        rows=[9, 20],
        ranks=2,
        command="neartie audit",
    )


@pytest.fixture(scope="session")
def clean() -> AuditRecord:
    """Recorded rows whose sets agree, with units that bound a rate and a gate that certifies it."""
    return run_audit(
        "k3-mini/layer0",
        rows=[9, 12],
        ranks=2,
        # A limit that some thousands of rows certify.
        policy=Policy(set_rate=2e-3),
        command="neartie audit",
    )


@pytest.fixture(scope="session")
def gate() -> GateResult:
    return run_gate("topk_sigmoid", "radix_bf16", rows=2000, widths=[9, 20])


@pytest.fixture(scope="session")
def renamed() -> Rename:
    """Return the record with another name for its generated bank, wherever the name stands."""

    def rename(record: AuditRecord, name: str) -> AuditRecord:
        old = record.record["banks"][-1]["name"]
        content = _replaced(json.loads(record.to_json()), old, name)
        # Arrow holds UTF-8: a lone surrogate reaches records alone.
        plain = name.encode(errors="replace").decode()
        return dataclasses.replace(
            record,
            record=content,
            swaps=_renamed(record.swaps, old, plain),
            values=_renamed(record.values, old, plain),
            histograms=_renamed(record.histograms, old, plain),
        )

    return rename


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, list):
        return [_replaced(item, old, new) for item in value]
    if isinstance(value, dict):
        return {key: _replaced(item, old, new) for key, item in value.items()}
    return value


def _renamed(table: pa.Table, old: str, new: str) -> pa.Table:
    rows = [
        {k: v.replace(old, new) if isinstance(v, str) else v for k, v in row.items()}
        for row in table.to_pylist()
    ]
    return pa.Table.from_pylist(rows, schema=table.schema)


@pytest.fixture(scope="session")
def hostile(record: AuditRecord, renamed: Rename) -> AuditRecord:
    return renamed(record, HOSTILE)


@pytest.fixture(scope="session")
def schemas() -> Path:
    return Path(__file__).parent.parent / "data" / "schemas"
