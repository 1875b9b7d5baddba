"""The expected cost of a gate, from its plan alone; no row is run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...banks.bank import Bank
from ...banks.store import StoredBank
from ..engine.contract import Engine
from ..gate.plan import GatePlan, Shard, with_rows
from ..gate.shard import BLOCK_ROWS, MOST_CERTIFICATES, MOST_MERGED
from ..gate.work import GateWork
from . import rates
from .expected import CostPlan, Expected, makespan
from .rows import logits_ns, row_bytes

LARGER: Final = (10**9, 10**12)
"""Rows for which the same gate is told too."""
RAY_NOTE: Final = (
    f"Ray's own processes take some {rates.RAY_BYTES >> 20} MiB more on the driver's machine"
)
# Blocks of rows that a worker holds at once: inputs, both sides' keys in FP64, what is judged.
_BLOCKS_HELD: Final = 8


def expected_gate(plan: GatePlan, banks: Sequence[Bank], engine: Engine) -> CostPlan:
    """Return what the plan would take on the engine, and so many more rows like these."""
    workers = engine.slots(GateWork(plan))
    more_start = rates.RAY_START_SECONDS if engine.name == "ray" else 0.0
    figures = _Figures(plan, banks, workers, more_start)
    more = [figures.of(with_rows(plan, rows)) for rows in LARGER]
    return CostPlan("gate", engine.name, figures.of(plan), more, None, _notes(plan, banks, engine))


class _Figures:
    """Costs of one row of each bank, read or made once and used for every number of rows."""

    def __init__(
        self, plan: GatePlan, banks: Sequence[Bank], workers: int, start_seconds: float
    ) -> None:
        self._workers, self._start = workers, start_seconds
        self._recorded = plan.sides()[0].recorded is not None
        self._device = plan.device != "cpu"
        read = Bank.read_outputs if self._recorded else Bank.read
        self._bytes = [row_bytes(read(bank, 0, 1)) for bank in banks]
        self._make = [logits_ns(bank) for bank in banks]
        self._stored = [isinstance(bank, StoredBank) for bank in banks]
        self._geometry = [bank.geometry for bank in banks]

    def of(self, plan: GatePlan) -> Expected:
        """The figures of one number of rows."""
        shards = plan.shards()
        workers = min(self._workers, len(shards))
        spent = makespan((self._shard(plan, shard) for shard in shards), workers)
        sizes = [rows * size for rows, size in zip(plan.rows, self._bytes, strict=True)]
        kept = min(MOST_MERGED, MOST_CERTIFICATES * len(shards)) * len(plan.widths) * len(sizes)
        held = _BLOCKS_HELD * BLOCK_ROWS * max(g.experts for g in self._geometry) * 4
        process = rates.PROCESS_BYTES + held
        start = rates.DEVICE_START_SECONDS if self._device else rates.START_SECONDS
        return Expected(
            rows=sum(plan.rows),
            shards=len(shards),
            read_bytes=round(sum(n for n, own in zip(sizes, self._stored, strict=True) if own)),
            made_bytes=round(sum(n for n, own in zip(sizes, self._stored, strict=True) if not own)),
            work_bytes=len(shards) * rates.SHARD_FILE_BYTES,
            seconds=start + self._start + spent + len(shards) * rates.SHARD_SECONDS,
            worker_bytes=process,
            driver_bytes=process + min(kept, sum(plan.rows)) * rates.CERTIFICATE_BYTES,
            workers=workers,
        )

    def _shard(self, plan: GatePlan, shard: Shard) -> float:
        """Seconds of a worker."""
        rows, geometry = shard.stop - shard.start, self._geometry[shard.bank]
        made, checked = self._make[shard.bank], -(-rows // plan.sample_every)
        sampled = checked * (geometry.experts * rates.REFERENCE_NS_PER_LOGIT)
        if self._device:
            each = geometry.experts * rates.DEVICE_NS_PER_LOGIT
        elif self._recorded:
            each = geometry.top_k * rates.RECORDED_NS_PER_SLOT
            sampled += checked * made
        else:
            each = made + geometry.experts * rates.SELECT_NS_PER_LOGIT + rates.COUNT_NS_PER_ROW
        return (rows * each + sampled) / 1e9


def _notes(plan: GatePlan, banks: Sequence[Bank], engine: Engine) -> list[str]:
    texts = [
        "times are of the machine in audit/cost/rates.py, with nothing else on it",
        "rows that differ cost as much as sampled ones, and are not counted",
        "driver memory is what it takes with every certificate that it may keep",
    ]
    if engine.name == "ray":
        texts.append(RAY_NOTE)
    if any(isinstance(bank, StoredBank) for bank in banks):
        texts.append("files are read as fast as from the page cache")
    if any(side.runs for side in plan.sides()):
        texts.append("what a path itself takes is not known and not counted")
    if plan.device != "cpu":
        texts.append("rows are made on the GPU; ones that the host makes or reads take longer")
    return texts
