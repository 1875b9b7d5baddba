"""One shard on a device: the screen decides most rows there, the rest is judged here in full.

Rows come from the host, as on the CPU, or are made on the device where they follow from their
numbers alone; the host makes those that it looks at too, and holds the device's to them. Of most
the device says "same ids in the same slots, weights so many ULP apart", which is proven
(``screen_triton``). The others, and the random sample, come back with ids, weights and boundary
keys, and are compared and judged by the same code as CPU rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...banks.bank import Bank, RowBlock
from ...banks.normal import NormalBank
from ...kernels.cuda.rows import (
    ROWS_AT_ONCE,
    STREAM_ROWS_AT_ONCE,
    UNDECIDED,
    RowPair,
    ScreenedRows,
    StreamPair,
    slots_of,
)
from ...kernels.cuda.selects import DeviceSelect
from ...kernels.device_select import device_select
from ...kernels.fast.compare import DIFFERENT, REORDERED, ULP_BINS
from ...kernels.fast.gate import histogram_of
from ...kernels.fast.plain import compare_pairs
from ..launching import front_weights
from ..metrics.ulp import ordered
from ..tally import AlikeRows
from .device_plan import margin_limit
from .device_rows import BlockRows, HostRows, MadeRows, ScreenFault
from .plan import GatePlan, Shard
from .shard import (
    BLOCK_ROWS,
    ClosePart,
    ShardJudge,
    ShardResult,
    at_logits,
    logits_of,
    sampled_rows,
)

_ROWS_PER_READ: Final = 1024
"""Rows that one thread reads at once."""

PairMaker = Callable[[Bank, tuple[DeviceSelect, DeviceSelect], float | None, float, int], RowPair]
"""From bank, selects, proven bound, margin limit and weight budget to what runs the rows."""


class DeviceRunner:
    """Runs the shards of a plan on the device; kernels and buffers are made once and used again.

    Args:
        plan: with a device plan.
        make_pair: what runs the rows; None takes the kernels. For checks against another one.
    """

    def __init__(self, plan: GatePlan, make_pair: PairMaker | None = None) -> None:
        assert plan.device_plan is not None, "run_gate runs nothing without a device"
        self.plan, self._device = plan, plan.device_plan
        self._judge = ShardJudge(plan)
        self._make_pair = make_pair or _kernels
        self._pairs: dict[tuple[int, tuple[DeviceSelect, DeviceSelect]], RowPair] = {}
        self._limits: dict[int, float] = {}
        self._readers = ThreadPoolExecutor(os.cpu_count())

    def run(self, shard: Shard) -> ShardResult:
        """Return the counts and certificates of one shard; the same bits on every run."""
        result = ShardResult()
        bank = self._judge.bank(shard.bank)
        sample = sampled_rows(self.plan, shard)
        pending: list[ClosePart] = []
        for start in range(shard.start, shard.stop, self._at_once(bank, shard)):
            stop = min(start + self._at_once(bank, shard), shard.stop)
            chosen = sample[(sample >= start) & (sample < stop)] - start
            block, rows = self._screened(bank, shard, start, stop, chosen)
            pending.append(self._block(result, shard, block, rows, chosen))
            if sum(len(part.rows) for part in pending) >= BLOCK_ROWS:
                self._judge.judge(result, shard, pending)
                pending = []
        self._judge.judge(result, shard, pending)
        self._judge.finish(result, shard)
        # From a shard earlier on: a record batch may lie in two shards.
        bank.forget(max(0, shard.start - self.plan.shard_rows), shard.stop)
        return result

    def _at_once(self, bank: Bank, shard: Shard) -> int:
        made = isinstance(bank, NormalBank) and isinstance(self._pair(shard), StreamPair)
        return STREAM_ROWS_AT_ONCE if made else ROWS_AT_ONCE

    def _screened(
        self, bank: Bank, shard: Shard, start: int, stop: int, chosen: npt.NDArray[np.int64]
    ) -> tuple[BlockRows, ScreenedRows]:
        """Rows start..stop through both selects, made on the device where they can be."""
        pair = self._pair(shard)
        if isinstance(bank, NormalBank) and isinstance(pair, StreamPair):
            stream = bank.stream
            rows = pair.run_stream(stream, start, stop - start, chosen)
            return MadeRows(stream, pair, start, stop - start), rows
        block = HostRows(self._read(bank, start, stop, pair.host))
        return block, pair.run(block.rows, chosen)

    def _read(self, bank: Bank, start: int, stop: int, host: npt.NDArray[np.float32]) -> RowBlock:
        """Rows start..stop with their logits in ``host``, read by several threads if they may."""

        def piece(first: int) -> dict[str, npt.NDArray[Any]]:
            last = min(first + _ROWS_PER_READ, stop)
            block = at_logits(bank, bank.read(first, last))
            host[first - start : last - start] = logits_of(block)
            return block.keys

        firsts = range(start, stop, _ROWS_PER_READ)
        keys = list((self._readers.map if bank.threads_may_read else map)(piece, firsts))
        joined_keys = {name: np.concatenate([one[name] for one in keys]) for name in keys[0]}
        return RowBlock(start, stop - start, joined_keys, logits=host[: stop - start])

    def _limit(self, number: int) -> float:
        if number not in self._limits:
            self._limits[number] = margin_limit(front_weights(self._judge.bank(number)).bias)
        return self._limits[number]

    def _pair(self, shard: Shard) -> RowPair:
        bank = self._judge.bank(shard.bank)
        a, b = (
            device_select(*side.on_device(shard.width), bank.geometry, bank.scoring)
            for side in self._judge.sides
        )
        key = (shard.bank, (a, b))
        if key not in self._pairs:
            self._pairs[key] = self._make_pair(
                bank,
                (a, b),
                self._device.bound((a.form, b.form)),
                self._limit(shard.bank),
                self._judge.policy.weight_budget_ulp,
            )
        return self._pairs[key]

    def _block(
        self,
        result: ShardResult,
        shard: Shard,
        block: BlockRows,
        rows: ScreenedRows,
        sample: npt.NDArray[np.int64],
    ) -> ClosePart:
        """Count a block's ordinary rows; return the ones that need a closer look."""
        seen, bins = rows.seen, np.zeros(ULP_BINS, np.int64)
        (ids_a, weights_a), (ids_b, weights_b) = slots_of(rows, 0), slots_of(rows, 1)
        code, ulp = compare_pairs(ids_a, weights_a, ids_b, weights_b, bins)
        _check_decided(rows, code, ulp)
        finite = block.finite(seen)
        sampled = np.isin(seen, sample)
        close = (code == DIFFERENT) | (ulp < 0) | (ulp > self._judge.policy.weight_budget_ulp)
        close |= sampled | ~finite
        self._margins(result, shard, rows, finite)
        decided = int(np.count_nonzero(rows.weight_ulp != UNDECIDED))
        result.plain_rows += block.rows - decided
        same_weights = np.array_equal(weights_a.view(np.uint32), weights_b.view(np.uint32))
        result.bits_equal["ids"] &= np.array_equal(ids_a, ids_b)
        result.bits_equal["weights"] &= same_weights and not rows.histogram[1:].any()
        self._alike(result, shard, block, rows, code, ulp, close)
        full = seen[close]
        return ClosePart(
            full + block.start,
            *block.full(full),
            (ids_a[close], ids_b[close]),
            (weights_a[close], weights_b[close]),
            sampled[close],
        )

    def _alike(
        self,
        result: ShardResult,
        shard: Shard,
        block: BlockRows,
        rows: ScreenedRows,
        code: npt.NDArray[np.int8],
        ulp: npt.NDArray[np.int64],
        close: npt.NDArray[np.bool_],
    ) -> None:
        """Count the rows that need no closer look: decided ones, and those seen to be alike."""
        alike = np.ones(block.rows, np.bool_)
        alike[rows.seen[close]] = False
        reordered = np.zeros(block.rows, np.bool_)
        reordered[rows.seen] = code == REORDERED
        distance = rows.weight_ulp.astype(np.int64)
        distance[rows.seen] = ulp
        # The device's histogram holds the decided rows, of which the sampled ones go elsewhere.
        bins = np.zeros(ULP_BINS, np.int64)
        bins[: len(rows.histogram)] = rows.histogram
        counted = rows.weight_ulp[rows.seen] != UNDECIDED
        bins += _bins_of(rows, ~counted & ~close) - _bins_of(rows, counted & close)
        which = np.flatnonzero(alike)
        keys = self._judge.unit_keys(shard, which + block.start, block.units(which))
        alike_rows = AlikeRows(reordered[alike], distance[alike], histogram_of(bins))
        result.tally.add_alike(self._judge.bank(shard.bank).name, alike_rows, keys)

    def _margins(
        self,
        result: ShardResult,
        shard: Shard,
        rows: ScreenedRows,
        finite: npt.NDArray[np.bool_],
    ) -> None:
        """Count margins up to the limit one by one, and how many are beyond it."""
        defined = finite & np.isfinite(rows.edges).all(axis=(1, 2))
        edges = rows.edges.astype(np.float64)
        with np.errstate(invalid="ignore"):
            margin = edges[:, 0, 0] - edges[:, 0, 1]
            near = defined & (margin <= self._limit(shard.bank))
            # (B - A of the key of A's expert K + 1) - (B - A of that of its expert K)
            moved = edges[:, 1] - edges[:, 0]
            shift = moved[:, 1] - moved[:, 0]
        own = rows.edges[near, 0]
        result.margins.add(ordered(own[:, 0]) - ordered(own[:, 1]), margin[near], shift[near])
        undefined = int(np.count_nonzero(~defined))
        result.margins.undefined += undefined
        beyond = len(rows.weight_ulp) - len(own) - undefined
        result.margins.rows += beyond
        result.margins.beyond += beyond


def _bins_of(rows: ScreenedRows, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Weights of some of the seen rows by FP32 distance, in bins of ``ULP_BINS``."""
    bins = np.zeros(ULP_BINS, np.int64)
    ids, weights = rows.ids[chosen], rows.weights[chosen]
    compare_pairs(ids[:, 0], weights[:, 0], ids[:, 1], weights[:, 1], bins)
    return bins


def _check_decided(
    rows: ScreenedRows, code: npt.NDArray[np.int8], ulp: npt.NDArray[np.int64]
) -> None:
    """Hold the screen to its word on the decided rows that were asked for.

    Raises:
        ScreenFault: ids, slots or the largest distance differ.
    """
    said = rows.weight_ulp[rows.seen]
    decided = said != UNDECIDED
    wrong = decided & ((code != 0) | (ulp != said))
    if wrong.any():
        row = int(rows.seen[wrong][0])
        raise ScreenFault(f"row {row} of a block was decided with {said[wrong][0]} ULP, and is not")


def _kernels(
    bank: Bank,
    selects: tuple[DeviceSelect, DeviceSelect],
    bound: float | None,
    margin: float,
    budget: int,
) -> RowPair:
    from ...kernels.cuda.rows_triton import DeviceRows

    return DeviceRows(
        bank.geometry.experts,
        bank.geometry.top_k,
        front_weights(bank).bias,
        selects,
        bound,
        margin=margin,
        budget=budget,
        scale=bank.scoring.scale,
    )
