"""The counts of one shard, and the judging of its differing and sampled rows by the reference."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...banks.bank import Bank, RowBlock
from ...banks.open import open_bank
from ...kernels.reference import reference_product
from ...kernels.registry import make_path
from ...kernels.scores import declared_forms
from ..certificates import Place, certificates, severity
from ..compare import BASELINE, CANDIDATE, RankRows, RowComparison, compare_rows
from ..detect import FAR
from ..engine.fit import check_bank
from ..judged import JudgedBlock, judge_block
from ..launching import front_weights
from ..metrics.margins import MarginTally
from ..metrics.swaps import SET_CLASSES, SET_CODE, SetClass, boundary_counts, classify_sets
from ..policy import Policy
from ..tally import Tally, UnitKeys
from .plan import GatePlan, Shard

BLOCK_ROWS: Final = 2048
"""Rows that are run at once on the CPU, and rows that are judged at once."""
MOST_CERTIFICATES: Final = 1024
"""Certificates kept of one shard, the gravest; the others are counted."""
MOST_MERGED: Final = 16384
"""Certificates kept of the shards of one bank and width: memory does not grow with the rows."""
UNIT_STRIDE: Final = 1 << 40
CPU_REPLAY: Final = "  # replays with CPU arithmetic, which may agree where the device did not"
"""Said with the snippet of a device's row."""


@dataclass
class ShardResult:
    """Exact counts of one shard, or of several merged; certificates in row order.

    Attributes:
        reference: by role, sampled rows by set class against the reference.
        sampled: rows checked by the reference at random; ``boundary`` counts their near ties.
        echo: rows on which both sides agree and differ from the reference beyond the window.
        bits_equal: by output, whether every bit was the same.
        left_out: certificates beyond ``MOST_CERTIFICATES``.
        not_run: why the rows could not be run; empty where they were. Its counts mean nothing.
    """

    tally: Tally = field(default_factory=Tally)
    margins: MarginTally = field(default_factory=MarginTally)
    boundary: Counter[str] = field(default_factory=Counter)
    reference: dict[str, Counter[str]] = field(
        default_factory=lambda: {BASELINE: Counter(), CANDIDATE: Counter()}
    )
    sampled: int = 0
    echo: int = 0
    plain_rows: int = 0
    selected_twice: int = 0
    bits_equal: dict[str, bool] = field(default_factory=lambda: {"ids": True, "weights": True})
    certificates: list[dict[str, Any]] = field(default_factory=list)
    left_out: int = 0
    not_run: str = ""

    def merge(self, other: ShardResult) -> None:
        """Add another shard of the same bank and width."""
        self.tally.merge(other.tally)
        self.margins.merge(other.margins)
        self.boundary.update(other.boundary)
        for role, counts in self.reference.items():
            counts.update(other.reference[role])
        self.sampled += other.sampled
        self.echo += other.echo
        self.plain_rows += other.plain_rows
        self.selected_twice += other.selected_twice
        for name in self.bits_equal:
            self.bits_equal[name] = self.bits_equal[name] and other.bits_equal[name]
        self.certificates += other.certificates
        self.left_out += other.left_out
        self.not_run = self.not_run or other.not_run

    def keep_gravest(self, most: int) -> None:
        """Keep so many certificates, the gravest, of equal ones the first; count the others."""
        extra = len(self.certificates) - most
        if extra > 0:
            gravest = sorted(self.certificates, key=severity, reverse=True)[:most]
            self.certificates = sorted(gravest, key=lambda record: record["row"])
            self.left_out += extra


@dataclass(frozen=True, eq=False)
class ClosePart:
    """Rows that need a closer look: [row] numbers in the bank, keys and logits, both outputs."""

    rows: npt.NDArray[np.int64]
    keys: dict[str, npt.NDArray[Any]]
    logits: npt.NDArray[np.float32]
    ids: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]
    weights: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]
    sampled: npt.NDArray[np.bool_]


def joined(parts: list[ClosePart]) -> ClosePart | None:
    """Several parts as one, in their order; None where there is no row."""
    some = [part for part in parts if len(part.rows)]
    if not some:
        return None
    return ClosePart(
        np.concatenate([p.rows for p in some]),
        {name: np.concatenate([p.keys[name] for p in some]) for name in some[0].keys},
        np.concatenate([p.logits for p in some]),
        (np.concatenate([p.ids[0] for p in some]), np.concatenate([p.ids[1] for p in some])),
        (
            np.concatenate([p.weights[0] for p in some]),
            np.concatenate([p.weights[1] for p in some]),
        ),
        np.concatenate([p.sampled for p in some]),
    )


class ShardJudge:
    """Judges rows of a plan's shards by the reference; banks are opened once and used again."""

    def __init__(self, plan: GatePlan) -> None:
        self.plan = plan
        self.policy = Policy.model_validate(plan.policy)
        self.sides = plan.sides()
        self._forms = tuple(
            declared_forms(make_path(side.path).declared.score) for side in self.sides
        )
        self._banks: dict[int, Bank] = {}

    def bank(self, number: int) -> Bank:
        """The plan's bank, opened once.

        Raises:
            InputError: the bank is another one than when the plan was made.
        """
        if number not in self._banks:
            bank = open_bank(self.plan.banks[number])
            check_bank(bank, self.plan.digests[number])
            self._banks[number] = bank
        return self._banks[number]

    def unit_keys(
        self, shard: Shard, rows: npt.NDArray[np.int64], unit: npt.NDArray[Any]
    ) -> UnitKeys:
        """Row numbers [row] and the independence units of a bank's rows; units of banks differ."""
        kind = self.bank(shard.bank).independence_unit
        used = rows if kind == "row" else unit.astype(np.int64)
        return UnitKeys(rows, used + shard.bank * UNIT_STRIDE, kind)

    def judge(self, result: ShardResult, shard: Shard, parts: list[ClosePart]) -> None:
        """Judge rows by the reference: contracts, classes, flags, certificates."""
        part = joined(parts)
        if part is None:
            return
        bank = self.bank(shard.bank)
        block = RowBlock(int(part.rows[0]), len(part.rows), part.keys, logits=part.logits)
        judged = judge_block(bank, front_weights(bank), block, with_control=False)
        slack = judged.logit_error
        comparison = compare_rows(
            RankRows(part.ids[0], part.weights[0], slack, self._forms[0]),
            RankRows(part.ids[1], part.weights[1], slack, self._forms[1]),
            judged,
            bank.geometry,
            bank.scoring,
            self.policy,
        )
        keys = self.unit_keys(shard, part.rows, part.keys["unit"])
        result.tally.add(bank.name, comparison, keys, 0, 1)
        self._reference(result, judged, comparison, part.ids, part.sampled)
        place = Place(
            bank.name, bank.spec, shard.width, 0, 1, 1, self.sides[0].path, self.sides[1].path,
            part.keys, 0, part.rows,
        )  # fmt: skip
        for found in certificates(place, comparison, *part.ids, judged.selection, judged.logits):
            if self.plan.device != "cpu":
                found["snippet"] += CPU_REPLAY
            result.certificates.append(found)

    def _reference(
        self,
        result: ShardResult,
        judged: JudgedBlock,
        comparison: RowComparison,
        ids: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]],
        sampled: npt.NDArray[np.bool_],
    ) -> None:
        selection, policy = judged.selection, self.policy
        far = np.zeros((2, len(sampled)), np.bool_)
        for side, role in enumerate((BASELINE, CANDIDATE)):
            sets = classify_sets(
                selection.ids,
                ids[side],
                selection.keys,
                window_ulp=policy.window_ulp,
                noise_abs=policy.noise_abs,
                invalid=comparison.breach[role] != 0,
                group_keys=selection.group_keys,
                groups=1 if selection.group_keys is None else selection.group_keys.shape[1],
            )
            names = [str(SET_CLASSES[code]) for code in sets.set_class[sampled].tolist()]
            result.reference[role].update(names)
            far[side] = np.isin(sets.set_class, FAR)
        agree = comparison.sets.set_class < SET_CODE[SetClass.EXACT_TIE]
        result.echo += int(np.count_nonzero(far[0] & far[1] & agree & sampled))
        result.sampled += int(np.count_nonzero(sampled))
        result.boundary.update(boundary_counts(selection.boundary_ulp[sampled]))

    def finish(self, result: ShardResult, shard: Shard) -> None:
        """Bound what a finished shard holds: its gravest certificates, row units as counts."""
        result.keep_gravest(MOST_CERTIFICATES)
        if self.bank(shard.bank).independence_unit == "row":
            result.tally.settle_rows()


def at_logits(bank: Bank, block: RowBlock) -> RowBlock:
    """The block with its FP32 logits and none of the stages before them.

    Hidden rows are multiplied exactly and rounded to FP64, then to FP32, as the CPU paths do.
    """
    logits = block.logits
    if logits is None and block.logits_shards is not None:
        logits = np.concatenate(list(block.logits_shards), axis=1)
    if logits is None:
        assert block.hidden is not None, "a bank holds hidden rows, shards or logits"
        router = bank.weights["router_weight"]
        logits = reference_product(block.hidden, router).astype(np.float32)
    return RowBlock(block.start, block.rows, block.keys, logits=logits, recorded=block.recorded)


def logits_of(block: RowBlock) -> npt.NDArray[np.float32]:
    """The block's FP32 logits [row, expert]."""
    assert block.logits is not None, "see at_logits"
    return block.logits


def sampled_rows(plan: GatePlan, shard: Shard) -> npt.NDArray[np.int64]:
    """The shard's rows that the reference checks, ascending: distinct, drawn by seed and shard."""
    rows = shard.stop - shard.start
    count = min(rows, -(-rows // plan.sample_every))
    sequence = np.random.SeedSequence((plan.seed, 5, shard.bank, shard.start))
    chosen = np.random.Generator(np.random.Philox(sequence)).choice(rows, count, replace=False)
    return np.sort(chosen.astype(np.int64)) + shard.start
