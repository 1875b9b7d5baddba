"""One shard on the CPU: rows through both selects, or recorded outputs of both, compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from ...banks.bank import RowBlock
from ...kernels.fast.compare import DIFFERENT, PLAIN, REORDERED, ULP_BINS
from ...kernels.fast.gate import PairedRows, PairedSelect, histogram_of
from ...kernels.fast.plain import compare_pairs
from ...kernels.fast.recorded import Outputs, compare_recorded
from ..launching import PathError, front_weights
from ..tally import AlikeRows
from .path_rows import PathRows
from .path_sides import paths_of
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

RECORDED_ROWS: Final = 1 << 18
"""Rows of recorded outputs that are compared at once: a large shard is not held whole."""


class ShardRunner:
    """Runs the shards of a plan on the CPU; loops are made once and used again."""

    def __init__(self, plan: GatePlan) -> None:
        self.plan = plan
        self._judge = ShardJudge(plan)
        self._sides, self._policy = self._judge.sides, self._judge.policy
        self._paths = paths_of(self._sides)
        self._compare: dict[tuple[int, int], Callable[[RowBlock], PairedRows]] = {}

    def _compared(self, shard: Shard, block: RowBlock) -> PairedRows:
        """Both sides of a block that holds logits, at the shard's width."""
        place = shard.bank, shard.width
        if place not in self._compare:
            self._compare[place] = self._comparison(*place)
        return self._compare[place](block)

    def _comparison(self, number: int, width: int) -> Callable[[RowBlock], PairedRows]:
        bank = self._judge.bank(number)
        if self._paths:
            return PathRows(bank, self._sides, self._paths, width).run
        pair = PairedSelect(
            self._sides[0].rule(width),
            self._sides[1].rule(width),
            front_weights(bank).bias,
            bank.geometry,
            bank.scoring,
            self.plan.windows[number][self.plan.widths.index(width)],
        )
        return lambda block: pair.run(logits_of(block), threads=1)

    def run(self, shard: Shard) -> ShardResult:
        """Return the counts and certificates of one shard; the same bits wherever it runs.

        Where a path raised, the result says so, and counts nothing.
        """
        try:
            return self._run(shard)
        except PathError as error:
            return ShardResult(not_run=str(error))

    def _run(self, shard: Shard) -> ShardResult:
        result = ShardResult()
        bank, recorded = self._judge.bank(shard.bank), self._sides[0].recorded is not None
        sample = sampled_rows(self.plan, shard)
        pending: list[ClosePart] = []
        step = RECORDED_ROWS if recorded else BLOCK_ROWS
        for start in range(shard.start, shard.stop, step):
            stop = min(start + step, shard.stop)
            if recorded:
                block = bank.read_outputs(start, stop)
                rows = compare_recorded(self._outputs(block), bank.geometry.experts)
            else:
                block = at_logits(bank, bank.read(start, stop))
                rows = self._compared(shard, block)
            chosen = sample[(sample >= start) & (sample < stop)] - start
            pending.append(self._block(result, shard, block, rows, chosen))
            if sum(len(part.rows) for part in pending) >= BLOCK_ROWS:
                self._judge.judge(result, shard, pending)
                pending = []
        self._judge.judge(result, shard, pending)
        self._judge.finish(result, shard)
        # From a shard earlier on: a record batch may lie in two shards.
        bank.forget(max(0, shard.start - self.plan.shard_rows), shard.stop)
        return result

    def _outputs(self, block: RowBlock) -> tuple[Outputs, Outputs]:
        """Ids and weights of both sides, as the bank carries them."""
        found = []
        for side in self._sides:
            assert side.recorded is not None
            ids, weights = block.recorded[side.recorded]
            assert weights is not None, "the plan refuses outputs without weights"
            found.append((ids, weights))
        return found[0], found[1]

    def _block(
        self,
        result: ShardResult,
        shard: Shard,
        block: RowBlock,
        rows: PairedRows,
        sample: npt.NDArray[np.int64],
    ) -> ClosePart:
        """Count a block's ordinary rows; return the ones that need a closer look."""
        unusual = (rows.code >= DIFFERENT) | (rows.weight_ulp < 0)
        unusual |= rows.weight_ulp > self._policy.weight_budget_ulp
        plain = np.flatnonzero(rows.plain)
        if len(plain):
            unusual[plain] |= ~np.isfinite(logits_of(block)[plain]).all(axis=1)
        looked_at = unusual.copy()
        looked_at[sample] = True
        full = np.flatnonzero(looked_at)
        self._alike(result, shard, block, rows, ~looked_at, full)
        result.margins.add(rows.margin_steps, rows.margin, rows.shift)
        result.plain_rows += len(plain)
        result.selected_twice += rows.selected_twice
        same_ids = np.array_equal(rows.ids_a, rows.ids_b)
        same = np.array_equal(rows.weights_a.view(np.uint32), rows.weights_b.view(np.uint32))
        result.bits_equal["ids"] &= same_ids
        result.bits_equal["weights"] &= same
        return ClosePart(
            full + block.start,
            {name: values[full] for name, values in block.keys.items()},
            self._some_logits(shard, block, full),
            (rows.ids_a[full], rows.ids_b[full]),
            (rows.weights_a[full], rows.weights_b[full]),
            np.isin(full, sample),
        )

    def _some_logits(
        self, shard: Shard, block: RowBlock, rows: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float32]:
        """FP32 logits of some rows; read now where the block holds outputs alone."""
        if block.logits is not None:
            return np.asarray(block.logits[rows])
        bank = self._judge.bank(shard.bank)
        if not len(rows):
            return np.empty((0, bank.geometry.experts), np.float32)
        return logits_of(at_logits(bank, bank.read_rows(rows + block.start)))

    def _alike(
        self,
        result: ShardResult,
        shard: Shard,
        block: RowBlock,
        rows: PairedRows,
        alike: npt.NDArray[np.bool_],
        full: npt.NDArray[np.int64],
    ) -> None:
        """Count the rows that need no closer look."""
        apart = np.zeros(ULP_BINS, np.int64)
        some = full[rows.code[full] != PLAIN]
        compare_pairs(
            rows.ids_a[some], rows.weights_a[some], rows.ids_b[some], rows.weights_b[some], apart
        )
        alike_rows = AlikeRows(
            rows.code[alike] == REORDERED,
            rows.weight_ulp[alike],
            histogram_of(rows.weight_bins - apart),
        )
        keys = self._judge.unit_keys(
            shard, np.flatnonzero(alike) + block.start, block.keys["unit"][alike]
        )
        result.tally.add_alike(self._judge.bank(shard.bank).name, alike_rows, keys)
