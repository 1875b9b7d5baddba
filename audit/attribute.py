"""Whether each path's latent is what its declared schedule gives, on every row.

A declared schedule is run on the bank's own partials, so no law of their distribution is assumed.
For an emulated path the two agree bit for bit; a real kernel sums in FP32 in another order, which
moves a few roundings, so agreement is judged on norms. A communication library promises no order:
the schedule that its result shows is named first, and then all rows are judged by that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..banks.bank import RowBlock
from ..kernels.contract import Bf16, FrontWeights
from ..kernels.project import latent_partials, latent_shards
from ..kernels.reduce import DEFAULT_ISLANDS, LIBRARY_ORDERS, SCHEDULES, run_schedule
from ..kernels.rounding import to_fp64
from .compare import BASELINE, CANDIDATE
from .metrics.exact_sum import ExactSum
from .metrics.values import log_ratio
from .observed import ScheduleFit
from .rank_parts import same_as_first

GATHER = "gather"
"""What a path declares that rounds the full sum once and copies it."""
APART = "apart"
"""The side of the triangle between the two paths."""
SAMPLE_ROWS = 64
"""Rows on which the other schedules are tried, to name the nearest where the declared one fails."""

Latent = npt.NDArray[np.float64]
Triangle = tuple[float, float, float]


@dataclass
class _Side:
    """Squared norms of one side of the triangle, observed and as declared."""

    observed: ExactSum = field(default_factory=ExactSum)
    declared: ExactSum = field(default_factory=ExactSum)

    def add(self, observed: Latent, declared: Latent) -> None:
        self.observed.add(np.array(_square(observed)))
        self.declared.add(np.array(_square(declared)))

    def merge(self, other: _Side) -> None:
        self.observed.merge(other.observed)
        self.declared.merge(other.declared)

    def distance(self) -> float:
        """Relative difference of the two norms; infinite where one is 0 or no number."""
        return log_ratio(math.sqrt(self.observed.value()), math.sqrt(self.declared.value()))


# Both paths' latent [row, latent] of rank 0, the exact one, hidden [row, hidden], rows per launch.
_Sample = tuple[Bf16, Bf16, Latent, Bf16, int]


@dataclass
class LatentSums:
    """What a bank's latents show, shard by shard; merged in row order.

    Attributes:
        sides: sides of the triangle by (width, side).
        elements: of the latent of one chunk, the most of any, by width.
        sample: the bank's first rows, at the first width that was run there; it names schedules.
        stands_for: by path, the schedule that a library's own order shows on those.
        undeclared: whether a path declares no schedule that could be run.
    """

    sides: dict[tuple[int, str], _Side] = field(default_factory=dict)
    elements: dict[int, int] = field(default_factory=dict)
    sample: _Sample | None = None
    stands_for: dict[str, str] = field(default_factory=dict)
    undeclared: bool = False

    def merge(self, other: LatentSums) -> None:
        """Add later rows of the same bank; the earlier sample stays."""
        for key, side in other.sides.items():
            self.sides.setdefault(key, _Side()).merge(side)
        for width, elements in other.elements.items():
            self.elements[width] = max(self.elements.get(width, 0), elements)
        self.sample = other.sample if self.sample is None else self.sample
        self.stands_for = self.stands_for or other.stands_for
        self.undeclared |= other.undeclared

    def forget_width(self, width: int) -> None:
        """Drop what was summed at a width that could not be finished."""
        self.sides = {key: side for key, side in self.sides.items() if key[0] != width}
        self.elements.pop(width, None)

    def pooled(self) -> dict[str, _Side]:
        """The sides over all widths."""
        sides = {side: _Side() for side in (BASELINE, CANDIDATE, APART)}
        for (_, name), side in self.sides.items():
            sides[name].merge(side)
        return sides


class ScheduleJudge:
    """Holds both paths' latent of one chunk against their declared schedules."""

    def __init__(
        self,
        declared: dict[str, str | None],
        weights: FrontWeights,
        ranks: int,
        *,
        machine_dependent: bool = False,
        sums: LatentSums | None = None,
    ) -> None:
        self.declared, self.weights, self.ranks = declared, weights, ranks
        self.sums = LatentSums() if sums is None else sums
        self._machine_dependent = machine_dependent
        simulated = [name for name in (*SCHEDULES, GATHER) if _available(name, ranks)]
        self.known = all(
            name is not None and name.partition(":")[0] in {*simulated, *LIBRARY_ORDERS}
            for name in declared.values()
        )
        self._simulated = simulated
        self._libraries = [role for role, name in declared.items() if name in LIBRARY_ORDERS]
        self._expected: dict[tuple[str, int], Latent] = {}

    def add(
        self, block: RowBlock, exact: Latent, width: int, latents: dict[str, Bf16]
    ) -> dict[str, npt.NDArray[np.bool_]]:
        """Judge rows of all ranks; return, by path, the rows [row] that are beyond their schedule.

        A row is beyond when its error's norm exceeds the declared schedule's by more than eight
        standard errors of a relative RMS over its elements, 8 / sqrt(2 latent), on any rank.

        Args:
            block: the rows, at stage hidden.
            exact: [row, latent] reference.
            width: rows per launch.
            latents: by path, [rank, row, latent].
        """
        beyond = {role: np.zeros(block.rows, np.bool_) for role in latents}
        limit = 1 + 8 / math.sqrt(2 * exact.shape[1])
        unnamed = any(role not in self.sums.stands_for for role in self._libraries)
        if self.sums.sample is None and (block.start == 0 or unnamed):
            self._keep_sample(block, exact, width, latents)
        if unnamed:
            self._name_library_orders()
        for rank in self._distinct(latents):
            wide = {role: to_fp64(latent[rank]) for role, latent in latents.items()}
            rule = {role: _of_rank(self._expect(block, role, width), rank) for role in latents}
            for role in latents:
                errors = _row_norms(wide[role] - exact)
                beyond[role] |= ~(errors <= limit * _row_norms(rule[role] - exact))
                self._side(width, role).add(wide[role] - exact, rule[role] - exact)
            self._side(width, APART).add(
                wide[BASELINE] - wide[CANDIDATE], rule[BASELINE] - rule[CANDIDATE]
            )
        self.sums.elements[width] = max(self.sums.elements.get(width, 0), exact.size)
        return beyond

    def _side(self, width: int, name: str) -> _Side:
        return self.sums.sides.setdefault((width, name), _Side())

    def result(self) -> ScheduleFit | None:
        """Return how the pooled triangle compares; None where no latent was judged.

        The declared pair fits when no side is off by more than four standard errors of a relative
        RMS over the elements of one width's chunk, 4 / sqrt(2 n). Two paths that declare the same
        arithmetic are 0 apart, if their bits are not their machine's: products in another order
        move a few roundings, and then only each path's own side is judged.
        """
        elements = max(self.sums.elements.values(), default=0)
        if not elements:
            return None
        sides = self.sums.pooled()
        if self._machine_dependent and not sides[APART].declared.value():
            del sides[APART]
        off = max(side.distance() for side in sides.values())
        tolerance = 4 / math.sqrt(2 * elements)
        fits = off <= tolerance
        names = self.names()
        distance = off if math.isfinite(off) else None
        nearest = self._fitted() if fits else self._nearest()
        return ScheduleFit(names, nearest, distance, tolerance, fits)

    def names(self) -> str:
        """Return what the two paths declare, in words."""
        a, b = self.declared[BASELINE], self.declared[CANDIDATE]
        return f"{a or 'nothing'} against {b or 'nothing'}"

    def _fitted(self) -> str:
        """Name what fits: the declared pair, a library's order by the schedule that it shows."""
        first, second = self._schedule(BASELINE), self._schedule(CANDIDATE)
        return f"{first} against {second}"

    def _schedule(self, role: str) -> str:
        """The schedule that a path is held against: the declared one, or what stands for it."""
        return self.sums.stands_for.get(role, str(self.declared[role]))

    def _name_library_orders(self) -> None:
        """Find which schedule a library's own order shows, by its error and its distance.

        The first rows decide; all of them, and the rest, are then judged as if it were declared.
        """
        for role in self._libraries:
            self.sums.stands_for[role] = self._nearest_to(role)

    def _nearest_to(self, role: str) -> str:
        assert self.sums.sample is not None
        a, b, exact, hidden, width = self.sums.sample
        mine, other = (a, b) if role == BASELINE else (b, a)
        weight = self.weights.latent
        assert weight is not None
        partials = latent_partials(hidden, weight, self.ranks)
        target = _triangle(mine, other, exact)
        distances = {
            name: _distance(target, _triangle(run_schedule(name, partials, width)[0], other, exact))
            for name in self._simulated
            if name != GATHER
        }
        return min(distances, key=lambda name: distances[name])

    def _distinct(self, latents: dict[str, Bf16]) -> list[int]:
        """Ranks whose latent has other bits than rank 0's in some path, and rank 0."""
        same = np.all([same_as_first(latent) for latent in latents.values()], axis=0)
        return [0, *np.flatnonzero(~same).tolist()]

    def _expect(self, block: RowBlock, role: str, width: int) -> Latent:
        """The declared result [rank, row, latent]; one rank where all agree."""
        name = self._schedule(role)
        schedule = name.partition(":")[0]
        fixed = schedule == GATHER or SCHEDULES[schedule].row_independent
        key = (name, 0 if fixed else width)
        if key not in self._expected:
            self._expected[key] = self._run(name, block, width)
        return self._expected[key]

    def _run(self, name: str, block: RowBlock, width: int) -> Latent:
        hidden, weight = block.hidden, self.weights.latent
        assert hidden is not None
        assert weight is not None
        if name == GATHER:
            whole = np.concatenate(list(latent_shards(hidden, weight, self.ranks)), axis=1)
            return whole.astype(np.float64)[None]
        index = np.arange(-(-block.rows // width) * width) % block.rows
        partials = latent_partials(hidden, weight, self.ranks)[:, index]
        reduced = run_schedule(name, partials, width)[:, : block.rows]
        agree = SCHEDULES[name.partition(":")[0]].ranks_agree
        return np.asarray((reduced[:1] if agree else reduced).astype(np.float64))

    def _keep_sample(
        self, block: RowBlock, exact: Latent, width: int, latents: dict[str, Bf16]
    ) -> None:
        rows = max(1, min(SAMPLE_ROWS, block.rows) // width) * width
        if rows > block.rows:
            rows = width = block.rows
        assert block.hidden is not None
        self.sums.sample = (
            latents[BASELINE][0, :rows].copy(),
            latents[CANDIDATE][0, :rows].copy(),
            exact[:rows],
            block.hidden[:rows],
            width,
        )

    def _nearest(self) -> str:
        """Name the pair of schedules nearest to the observed triangle, one of them as declared."""
        if self.sums.sample is None:
            return "none named: the bank's first rows show no latent"
        a, b, exact, hidden, width = self.sums.sample
        weight = self.weights.latent
        assert weight is not None
        partials = latent_partials(hidden, weight, self.ranks)
        whole = np.concatenate(list(latent_shards(hidden, weight, self.ranks)), axis=1)
        results = {
            name: whole if name == GATHER else run_schedule(name, partials, width)[0]
            for name in sorted({*self._simulated, *map(self._schedule, self.declared)})
        }
        target = _triangle(a, b, exact)
        first, second = self._schedule(BASELINE), self._schedule(CANDIDATE)
        distances = {
            (x, y): _distance(target, _triangle(results[x], results[y], exact))
            for x in results
            for y in results
            if x == first or y == second
        }
        nearest = min(distances, key=lambda pair: distances[pair])
        return f"{nearest[0]} against {nearest[1]}"


def _of_rank(expected: Latent, rank: int) -> Latent:
    """[row, latent] of one rank; schedules whose ranks agree hold a single one."""
    return np.asarray(expected[rank if len(expected) > 1 else 0])


def _available(name: str, ranks: int) -> bool:
    if name == "two_level" and ranks % DEFAULT_ISLANDS:
        return False
    return name == GATHER or SCHEDULES[name].unavailable is None


def _triangle(a: Bf16, b: Bf16, exact: Latent) -> Triangle:
    wide_a, wide_b = to_fp64(a), to_fp64(b)
    sides = (wide_a - exact, wide_b - exact, wide_a - wide_b)
    first, second, third = (math.sqrt(_square(side)) for side in sides)
    return first, second, third


def _square(values: npt.NDArray[Any]) -> float:
    """Squared norm; not a number where an element is none.

    numpy sums a contiguous row pairwise in one fixed order, fsum the rows exactly.
    """
    return math.fsum(np.square(values).sum(axis=-1).tolist())


def _row_norms(values: Latent) -> Latent:
    return np.asarray(np.sqrt(np.square(values).sum(axis=-1)))


def _distance(a: Triangle, b: Triangle) -> float:
    return max(log_ratio(x, y) for x, y in zip(a, b, strict=True))
