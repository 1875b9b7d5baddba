"""The expected cost of an audit: its own rows, and the gate that it would start."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ...banks.bank import Bank
from ...banks.errors import InputError
from ...banks.store import StoredBank
from ..bank_run import CHUNK_BYTES, chunk_rows
from ..bank_work import BankWork, bank_work, shard_rows
from ..engine.contract import Engine
from ..engine.local import LocalEngine
from ..gate.auto import planned_gate
from ..pairing import Pairing
from . import rates
from .expected import CostPlan, Expected, makespan
from .gate import LARGER, RAY_NOTE, expected_gate
from .rows import front_products, row_bytes

# What a chunk's outputs take besides both paths': reference, comparison, launches again.
_CHUNKS_HELD: Final = 8
# Two processes then save half of it, more than twice what their start takes.
_WORTH_PROCESSES: Final = 5 * rates.START_SECONDS
"""Seconds of work from which on other processes are started for it."""


def work_apart(
    banks: Sequence[Bank], pairing: Pairing, engine: Engine, keep: str | Path | None
) -> BankWork | None:
    """Return the banks as work for an engine; None where they run in the process that asks.

    Those run here that other processes could not make again; and, unless shards are to be kept,
    what takes hardly longer here than other processes take to start.

    Raises:
        InputError: shards are to be kept that other processes could not make.
    """
    if isinstance(engine, LocalEngine) and keep is None:
        seconds = sum(_seconds(bank, pairing, 1.0) for bank in banks)
        if engine.workers < 2 or seconds < _WORTH_PROCESSES:
            return None
    work = bank_work(banks, pairing)
    if keep is not None and work is None:
        expected = "left out with open banks, and with paths that are not built in or use a device"
        raise InputError("work", keep, expected, "--work")
    return work


def expected_audit(
    banks: Sequence[Bank],
    pairing: Pairing,
    engine: Engine,
    *,
    gate: bool,
    keep: str | Path | None = None,
) -> CostPlan:
    """Return what the audit would take on the CPU, by the engine's slots."""
    work = work_apart(banks, pairing, engine, keep)
    # Asked once: where a cluster runs, each time is a connection to it.
    slots = 1 if work is None else engine.slots(work)
    workers = slots if work is None else min(slots, len(work.shards))
    asked = _expected(banks, pairing, workers, 1.0)
    own = sum(bank.rows for bank in banks)
    notes = [
        "times are of the machine in audit/cost/rates.py",
        "rows on which the paths differ take longer, and are not counted",
    ]
    if engine.name == "ray":
        notes.append(RAY_NOTE)
    more: Expected | None = None
    if gate:
        planned = planned_gate(banks, pairing)
        if isinstance(planned, str):
            notes.append(f"no gate: {planned}")
        else:
            more = expected_gate(*planned, engine).asked
            notes.append("the gate's rows are those of an audit whose own rows do not differ")
    # They have enough shards for all slots.
    larger = [_expected(banks, pairing, slots, rows / own) for rows in LARGER]
    return CostPlan("audit", engine.name, asked, larger, more, notes)


def _expected(banks: Sequence[Bank], pairing: Pairing, workers: int, times: float) -> Expected:
    """Figures where each bank has so many times its rows."""
    spent: list[float] = []
    read, made, shards = 0.0, 0.0, 0
    for bank in banks:
        rows, size = bank.rows * times, row_bytes(bank.read(0, 1))
        read += rows * size * isinstance(bank, StoredBank)
        made += rows * size * (not isinstance(bank, StoredBank))
        cut = math.ceil(rows / shard_rows(math.ceil(rows), chunk_rows(bank, pairing.ranks)))
        shards += cut
        spent += [_seconds(bank, pairing, times) / cut] * cut
    memory = rates.PROCESS_BYTES + _CHUNKS_HELD * CHUNK_BYTES
    rows = round(sum(bank.rows for bank in banks) * times)
    return Expected(
        rows=rows, shards=shards, read_bytes=round(read), made_bytes=round(made),
        work_bytes=shards * rates.AUDIT_SHARD_BYTES,
        seconds=rates.START_SECONDS + makespan(spent, workers), worker_bytes=memory,
        driver_bytes=memory, workers=workers,
    )  # fmt: skip


def _seconds(bank: Bank, pairing: Pairing, times: float) -> float:
    """CPU time of so many times a bank's rows at all widths."""
    return bank.rows * times * _row_ns(bank, len(pairing.widths)) / 1e9


def _row_ns(bank: Bank, widths: int) -> float:
    """CPU time of one row at all widths, in ns."""
    if bank.stage == "logits":
        once, each = rates.AUDIT_JUDGE_NS_PER_LOGIT, rates.AUDIT_WIDTH_NS_PER_LOGIT
        return bank.geometry.experts * (once + widths * each)
    products = front_products(bank.geometry)
    each = rates.AUDIT_WIDTH_NS_PER_ROW + products * rates.AUDIT_WIDTH_NS_PER_PRODUCT
    return products * rates.AUDIT_JUDGE_NS_PER_PRODUCT + widths * each
