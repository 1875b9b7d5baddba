"""What each stage does to one quantity, as shares of the whole difference.

Shares are of squares, or of the rows whose sets differ, and are not made to add up: what swapped
stages leave over or have in common is the interaction, and stands beside them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from ..number_words import number_of
from .stage_chain import BASELINE_SIDE, CANDIDATE_SIDE, Cut
from .stage_sets import SetCounts
from .stage_sums import SETS, Sums

_WORDS: Final = {
    "latent": "latent, relative RMS",
    "keys": "keys, RMS",
    "weights": "weights by expert, relative RMS",
    "sets": "expert sets, rows that differ",
}


@dataclass(frozen=True, slots=True)
class StageShare:
    """What one stage does to one quantity.

    ``alone``: the baseline with this stage of the candidate, against the baseline. ``left_out``:
    the candidate with this stage of the baseline, against the candidate. Both are sizes (root mean
    square). For sets, they are rows of the whole difference: those where that mixture has the
    candidate's set, and those where it has the baseline's set back. The shares are theirs of the
    whole difference, in squares or rows, and None where the paths do not differ. ``error_alone``
    and ``error_left_out`` are distances of those two mixtures from the reference; None for sets.
    ``other_rows``: for sets, further rows whose set the stage changes (``SetCounts.others``).
    """

    stage: str
    alone: float
    left_out: float
    alone_share: float | None
    left_out_share: float | None
    error_alone: float | None
    error_left_out: float | None
    other_rows: int = 0

    @property
    def acts(self) -> bool:
        """Whether the stage changes anything, in either place."""
        return self.alone > 0 or self.left_out > 0 or self.other_rows > 0


@dataclass(frozen=True, slots=True)
class PairShare:
    """What two stages do together beyond what each does alone, in squares.

    For sets, the differing rows that the two explain together and neither alone.

    ``share``: of the whole difference; None where the paths do not differ.
    """

    stages: tuple[str, str]
    interaction: float
    share: float | None


@dataclass(frozen=True, slots=True)
class Quantity:
    """One quantity: how far the paths are apart in it, and by which stages.

    Attributes:
        name: ``latent``, ``keys``, ``weights`` or ``sets``.
        rows: rows that count: finite ones; for weights, those on which every mixture and the
            reference select one set.
        total: the candidate against the baseline, a size as in ``StageShare``.
        interaction: what is left of the whole when each stage's ``alone`` is taken off, in
            squares; it may be below 0. For sets, the differing rows that no stage explains alone.
        interaction_share: its share of the whole.
        error_baseline: of the baseline from the reference; None for sets.
        error_candidate: of the candidate.
        stages: every stage, in the order of the work.
        pairs: pairs of stages whose interaction is not 0.
    """

    name: str
    rows: int
    total: float
    interaction: float
    interaction_share: float | None
    error_baseline: float | None
    error_candidate: float | None
    stages: tuple[StageShare, ...]
    pairs: tuple[PairShare, ...]

    @property
    def acting(self) -> tuple[str, ...]:
        """Stages that change this quantity."""
        return tuple(share.stage for share in self.stages if share.acts)

    def lines(self) -> list[str]:
        """Return the figures as text."""
        counted = self.name == SETS
        if not self.rows:
            return [f"{_WORDS[self.name]}: nothing to compare, no row counts"]
        total = f"{self.total:,.0f} of {self.rows:,}"
        if not counted:
            total = f"{self.total:.3e} apart on {number_of(self.rows, 'row')}"
        found = [f"{_WORDS[self.name]}: {total}"]
        if self.error_baseline is not None and self.error_candidate is not None:
            found[0] += (
                f"; from the reference {self.error_baseline:.3e} and {self.error_candidate:.3e}"
            )
        for share in self.stages:
            if share.acts:
                found.append(
                    f"  {share.stage:<16} alone {_size(share.alone, counted)} "
                    f"({_percent(share.alone_share)}), undone {_size(share.left_out, counted)} "
                    f"({_percent(share.left_out_share)})" + _others(share.other_rows)
                )
        idle = [share.stage for share in self.stages if not share.acts]
        if idle and len(idle) < len(self.stages):
            found.append(f"  no effect: {', '.join(idle)}")
        if len(self.acting) > 1:
            found.append(f"  interaction      {_percent(self.interaction_share)} of the whole")
            found += [
                f"    {' with '.join(pair.stages)} {_percent(pair.share)}" for pair in self.pairs
            ]
        return found


def squared(name: str, sums: Sums, cut: Cut) -> Quantity:
    """Return a quantity whose differences are sums of squares."""
    norm = math.fsum(sums.norms)
    a, b = cut.mixture(BASELINE_SIDE), cut.mixture(CANDIDATE_SIDE)

    def apart(x: Any, y: Any) -> float:
        return _over(math.fsum(sums.apart[x, y]), norm)

    def error(mixture: Any) -> float:
        return math.sqrt(_over(math.fsum(sums.errors[mixture]), norm))

    total = apart(a, b)
    alone = {s: apart(a, cut.mixture(BASELINE_SIDE, s)) for s in cut.stages}
    left = {s: apart(b, cut.mixture(CANDIDATE_SIDE, s)) for s in cut.stages}
    pairs = []
    for one, two in combinations(cut.stages, 2):
        both = apart(a, cut.mixture(BASELINE_SIDE, one, two))
        beyond = both - alone[one] - alone[two]
        # Two stages that add nothing to each other leave the same sums, not merely near ones.
        if both != alone[one] and both != alone[two]:
            pairs.append(PairShare((one, two), beyond, _share(beyond, total)))
    interaction = total - math.fsum(alone.values())
    shares = tuple(
        StageShare(
            stage,
            math.sqrt(alone[stage]),
            math.sqrt(left[stage]),
            _share(alone[stage], total),
            _share(left[stage], total),
            error(cut.mixture(BASELINE_SIDE, stage)),
            error(cut.mixture(CANDIDATE_SIDE, stage)),
        )
        for stage in cut.stages
    )
    return Quantity(
        name=name,
        rows=sums.rows,
        total=math.sqrt(total),
        interaction=interaction,
        interaction_share=_share(interaction, total),
        error_baseline=error(a),
        error_candidate=error(b),
        stages=shares,
        pairs=tuple(pairs),
    )


def counted(sets: SetCounts) -> Quantity:
    """Return the expert sets: shares of the rows whose sets differ."""
    total = sets.differing
    shares = tuple(
        StageShare(
            stage,
            sets.alone[stage],
            sets.undone[stage],
            _share(sets.alone[stage], total),
            _share(sets.undone[stage], total),
            None,
            None,
            sets.others[stage],
        )
        for stage in sets.cut.stages
    )
    pairs = tuple(
        PairShare(two, count, _share(count, total)) for two, count in sets.pairs.items() if count
    )
    return Quantity(
        name=SETS,
        rows=sets.rows,
        total=total,
        interaction=sets.unexplained,
        interaction_share=_share(sets.unexplained, total),
        error_baseline=None,
        error_candidate=None,
        stages=shares,
        pairs=pairs,
    )


def _over(value: float, norm: float) -> float:
    return value / norm if norm > 0.0 else 0.0


def _share(value: float, total: float) -> float | None:
    return value / total if total else None


def _size(value: float, counted: bool) -> str:
    return number_of(round(value), "row") if counted else f"{value:.3e}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _others(rows: int) -> str:
    return f", changes {number_of(rows, 'other row')}" if rows else ""
