"""The expected cost of an audit: its own rows, and the gate that it would start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...banks.bank import Bank
from ...banks.store import StoredBank
from ..bank_run import CHUNK_BYTES, Pairing
from ..bank_work import bank_work
from ..engine.contract import Engine
from ..gate.auto import planned_gate
from . import rates
from .expected import CostPlan, Expected, makespan
from .gate import LARGER, expected_gate
from .rows import front_products, row_bytes

# What a chunk's outputs take besides both paths': reference, comparison, launches again.
_CHUNKS_HELD: Final = 8


def expected_audit(
    banks: Sequence[Bank], pairing: Pairing, engine: Engine, *, gate: bool
) -> CostPlan:
    """Return what the audit would take on the CPU; what the engine runs, by its slots."""
    work = bank_work(banks, pairing) if engine.name == "ray" else None
    workers = 1 if work is None else min(engine.slots(work), len(banks))
    asked = _expected(banks, pairing, workers, 1.0)
    own = sum(bank.rows for bank in banks)
    notes = [
        "times are of the machine in audit/cost/rates.py; a bank is not cut, so no more workers "
        "than banks help",
        "rows on which the paths differ take longer, and are not counted",
    ]
    more: Expected | None = None
    if gate:
        planned = planned_gate(banks, pairing)
        if isinstance(planned, str):
            notes.append(f"no gate: {planned}")
        else:
            more = expected_gate(*planned, engine).asked
            notes.append("the gate's rows are those of an audit whose own rows do not differ")
    larger = [_expected(banks, pairing, workers, rows / own) for rows in LARGER]
    return CostPlan("audit", engine.name, asked, larger, more, notes)


def _expected(banks: Sequence[Bank], pairing: Pairing, workers: int, times: float) -> Expected:
    """Figures where each bank has so many times its rows."""
    spent, read, made = [], 0.0, 0.0
    for bank in banks:
        rows, size = bank.rows * times, row_bytes(bank.read(0, 1))
        read += rows * size * isinstance(bank, StoredBank)
        made += rows * size * (not isinstance(bank, StoredBank))
        spent.append(rows * _row_ns(bank, len(pairing.widths)) / 1e9)
    memory = rates.PROCESS_BYTES + _CHUNKS_HELD * CHUNK_BYTES
    rows = round(sum(bank.rows for bank in banks) * times)
    return Expected(
        rows=rows, shards=len(banks), read_bytes=round(read), made_bytes=round(made), work_bytes=0,
        seconds=rates.START_SECONDS + makespan(spent, workers), worker_bytes=memory,
        driver_bytes=memory, workers=workers,
    )  # fmt: skip


def _row_ns(bank: Bank, widths: int) -> float:
    """CPU time of one row at all widths, in ns."""
    if bank.stage == "logits":
        once, each = rates.AUDIT_JUDGE_NS_PER_LOGIT, rates.AUDIT_WIDTH_NS_PER_LOGIT
        return bank.geometry.experts * (once + widths * each)
    products = front_products(bank.geometry)
    each = rates.AUDIT_WIDTH_NS_PER_ROW + products * rates.AUDIT_WIDTH_NS_PER_PRODUCT
    return products * rates.AUDIT_JUDGE_NS_PER_PRODUCT + widths * each
