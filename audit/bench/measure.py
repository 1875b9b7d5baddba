"""Time a plan's cases on every rank: check through replay, then blocks in the order A B B A."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...banks.geometry import PRESETS
from ...kernels.contract import F64
from ...kernels.options import parse_spec
from ...kernels.ranks.arms import Arm, BenchShape, GeneralArm, RouteArm, SelectArm
from ...kernels.ranks.exchange import PairedGather, make_gather
from ...kernels.ranks.group import RankGroup
from ...kernels.ranks.paths import Rank, together
from ...kernels.ranks.spec import parse_rank_spec
from ...kernels.select import make_select
from ...kernels.timing import EagerReplay, GraphReplay, Replay, abba, summary
from .plan import SELECT, BenchPlan, Case

_SEEDS = (1, 2, 1)
"""Inputs of the checked replays: other ones in between, so that a stale output is seen."""


@dataclass(frozen=True, eq=False)
class RunBench:
    """The order to time a plan; every rank performs it."""

    plan: BenchPlan

    def perform(self, rank: Rank) -> list[dict[str, Any]]:
        """Return a row for every case; only rank 0's have times.

        Raises:
            RanksLost: a rank failed.
        """
        bench = _Bench(rank.group, self.plan)
        rows = [bench.row(case) for case in self.plan.cases]
        bench.close()
        return rows


def not_run(case: Case, reason: str) -> dict[str, Any]:
    """Return the row of a case that is not timed."""
    return {
        "width": case.width,
        "baseline": case.baseline,
        "candidate": case.candidate,
        "state": "NOT_RUN",
        "reason": reason,
    }


class _Bench:
    """One rank's arms and buffers."""

    def __init__(self, group: RankGroup, plan: BenchPlan) -> None:
        self.group, self.plan = group, plan
        self.geometry, self.scoring = PRESETS[plan.geometry]
        random = torch.Generator().manual_seed(plan.seed)
        bias = 0.02 * torch.randn(self.geometry.experts, generator=random)
        self._bias = bias.to(group.device)
        # Symmetric memory is shared for good: one gather for all widths.
        self._gathers: dict[tuple[str, int], PairedGather] = {}

    def close(self) -> None:
        """Let go of everything before the ranks part."""
        self._gathers = {}
        gc.collect()
        self.group.meet()

    def row(self, case: Case) -> dict[str, Any]:
        """Return one case's row: times, or why there are none."""
        if case.reason is not None:
            return not_run(case, case.reason)
        arms = together(self.group, lambda: [self._arm(s, case) for s in _sides(case)])
        replays = [self._replay(arm) for arm in arms]
        wrong = self._wrong(arms, replays)
        times = None if wrong else self._times(arms, replays)
        wrong = wrong or self._wrong(arms, replays)
        if wrong or times is None:
            reason = "; ".join(wrong)
            return not_run(case, reason) | {"state": "REFUSED"}
        baseline, candidate = (self._told(samples) for samples in times)
        row = {**not_run(case, ""), "state": "MEASURED"}
        del row["reason"]
        return row | {
            "baseline_us": baseline,
            "candidate_us": candidate,
            "saved_us": baseline["median_us"] - candidate["median_us"],
            "checked_steps": 2 * len(_SEEDS) * self.plan.steps * len(arms),
        }

    def _arm(self, spec: str, case: Case) -> Arm:
        shape = BenchShape(self.geometry, self.scoring, case.width, self.plan.steps, self._bias)
        kind, _, name = spec.partition(":")
        if kind == SELECT:
            return SelectArm(self.group, shape, make_select(name, {}, "bench"))
        path = parse_rank_spec(spec, self.plan.device)
        rule = path.rule(case.width)
        if path.kind == "general":
            return GeneralArm(self.group, shape, rule)
        options = parse_spec(spec)[1]
        key = options["transport"], int(options.get("row_blocks", "1"))
        if key not in self._gathers:
            self._gathers[key] = make_gather(self.group, self.geometry, *key, self.plan.steps)
        return RouteArm(self.group, shape, rule, self._gathers[key])

    def _replay(self, arm: Arm) -> Replay:
        def make() -> Replay:
            arm.load(arm.shape.inputs(self.group, 0))
            return GraphReplay(arm.work) if self.plan.device == "cuda" else EagerReplay(arm.work)

        return together(self.group, make)

    def _wrong(self, arms: list[Arm], replays: list[Replay]) -> list[str]:
        """What a replay gives otherwise than it must, on any rank; the same answer on all ranks."""
        found = []
        for arm, replay, spec in zip(arms, replays, ("baseline", "candidate"), strict=True):
            for seed in _SEEDS:
                found += [f"{spec}, {text}" for text in self._checked(arm, replay, seed)]
        answers = self.group.answers(found)
        every = None
        if answers is not None:
            every = [f"rank {r}: {one[0]}" for r, one in enumerate(answers) if one]
        shared: list[str] = self.group.order(every)
        return shared

    def _checked(self, arm: Arm, replay: Replay, seed: int) -> list[str]:
        inputs = arm.shape.inputs(self.group, seed)

        def run() -> list[str]:
            arm.poison()
            arm.load(inputs)
            replay.once()
            return arm.problems(inputs)

        # All ranks are done before any of them loads again.
        return together(self.group, run)

    def _times(self, arms: list[Arm], replays: list[Replay]) -> list[F64]:
        """Samples [sample] of each arm in microseconds per step, as this rank saw them."""
        for arm in arms:
            arm.settle()
        samples: list[list[F64]] = [[], []]
        for letter in abba(self.plan.blocks):
            side = "AB".index(letter)
            self.group.meet()
            block: Callable[[], F64] = _block(replays[side], self.plan.replays)
            samples[side].append(together(self.group, block) / self.plan.steps)
        return [np.concatenate(blocks) for blocks in samples]

    def _told(self, mine: F64) -> dict[str, Any]:
        """The slowest rank's times, on rank 0; on the others, their own."""
        pieces = self.group.gather(mine)
        every = [mine] if pieces is None else [piece.view(np.float64) for piece in pieces]
        return dict(summary(np.stack(every))._asdict())


def _sides(case: Case) -> tuple[str, str]:
    return case.baseline, case.candidate


def _block(replay: Replay, count: int) -> Callable[[], F64]:
    return lambda: replay.sample(count)
