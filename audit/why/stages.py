"""Which stage makes two paths differ: each stage swapped alone, undone alone, and in pairs.

Shares are of squares (of rows, for sets) and are not made to add up: what swapped stages leave over
or have in common is the interaction, and stands beside them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Final

from ...banks.bank import Bank
from ...kernels.contract import Path
from ..judged import judge_block
from .pair import DEFAULT_WIDTH, make_pair
from .stage_chain import BASELINE_SIDE, CANDIDATE_SIDE, Cut, Mixer, cut_paths
from .stage_sums import QUANTITIES, SETS, StageSums, Sums

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
    square, or rows); the shares are theirs of the whole difference, in squares or rows, and None
    where the paths do not differ. ``error_alone`` and ``error_left_out`` are distances of those
    two mixtures from the reference; None for sets.
    """

    stage: str
    alone: float
    left_out: float
    alone_share: float | None
    left_out_share: float | None
    error_alone: float | None
    error_left_out: float | None

    @property
    def acts(self) -> bool:
        """Whether the stage changes anything, in either place."""
        return self.alone > 0 or self.left_out > 0


@dataclass(frozen=True, slots=True)
class PairShare:
    """What two stages do together beyond what each does alone, in squares or rows.

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
        interaction: what is left of the whole when each stage's ``alone`` is taken off, in squares
            or rows; it may be below 0.
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
            total = f"{self.total:.3e} apart on {self.rows:,} rows"
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
                    f"({_percent(share.left_out_share)})"
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


@dataclass(frozen=True)
class StageSwaps:
    """What swapping stages says of two paths on one bank.

    Attributes:
        baseline, candidate, bank: their names.
        width, ranks: of the launches; ``rank``: whose outputs are looked at.
        rows: rows of the bank.
        stages: what both paths were cut into.
        not_cut: why stages stand for several.
        quantities: those that both paths show.
        causes: differing rows by the stages that explain them: ``a or b``, each alone gives the
            candidate's set; ``a with b``, only together; ``all stages together``.
        examples: the first row of each cause.
        hidden_rows: rows with equal sets where a single swapped stage changes the set.
    """

    baseline: str
    candidate: str
    bank: str
    width: int
    ranks: int
    rank: int
    rows: int
    stages: tuple[str, ...]
    not_cut: tuple[str, ...]
    quantities: tuple[Quantity, ...]
    causes: Mapping[str, int]
    examples: Mapping[str, int]
    hidden_rows: int

    @property
    def title(self) -> str:
        """The section's title."""
        return f"Stages: {self.baseline} against {self.candidate}"

    @property
    def acting(self) -> tuple[str, ...]:
        """Stages that change any quantity, in the order of the work."""
        found = {stage for quantity in self.quantities for stage in quantity.acting}
        return tuple(stage for stage in self.stages if stage in found)

    def quantity(self, name: str) -> Quantity | None:
        """Return one quantity, or None where the paths do not show it."""
        return next((one for one in self.quantities if one.name == name), None)

    def lines(self) -> list[str]:
        """Return the section's text."""
        told = ", ".join(self.acting) or "none"
        found = [
            f"{self.bank}: {self.rows:,} rows, width {self.width}, rank {self.rank} of "
            f"{self.ranks}; stages that differ: {told}",
            *(f"not cut: {reason}" for reason in self.not_cut),
        ]
        for quantity in self.quantities:
            found += quantity.lines()
        found += [
            f"  {count:,} rows by {cause}, the first is row {self.examples[cause]:,}"
            for cause, count in self.causes.items()
        ]
        if self.hidden_rows:
            found.append(
                f"  {self.hidden_rows:,} rows have equal sets, and a single swapped stage changes "
                "them: differences hide each other there"
            )
        return found

    def figures(self) -> dict[str, Any]:
        """Return JSON values."""
        return {**asdict(self), "acting": list(self.acting)}


def swap_stages(
    baseline: str | Path,
    candidate: str | Path,
    bank: str | Bank,
    *,
    width: int = DEFAULT_WIDTH,
    ranks: int = 8,
    rank: int = 0,
    rows: int | None = None,
    device: str = "cpu",
) -> StageSwaps:
    """Return which stages make two paths differ, and by how much.

    Args:
        baseline: a path, or what ``make_path`` takes.
        candidate: the other path.
        bank: a bank, or what ``open_bank`` takes.
        width: rows per launch.
        ranks: tensor-parallel ranks.
        rank: whose outputs are looked at.
        rows: the bank's first rows; None: all of them.
        device: as for ``make_path``.

    Raises:
        InputError: a path, bank or number that does not fit; a path whose stages do not give the
            bits that it gives in one piece.
        EnvelopeError: a path refuses the launch.
        PathError: a path raised.
    """
    pair = make_pair(
        baseline, candidate, bank, width=width, ranks=ranks, rank=rank, rows=rows, device=device
    )
    sums: StageSums | None = None
    for block, launch in pair.chunks():
        first = sums is None
        sums = sums or StageSums(cut_paths(pair.paths, launch))
        mixer = Mixer(pair.paths, sums.cut, launch, block.rows, rank)
        if first:
            mixer.check()
        sums.add(mixer, judge_block(pair.bank, pair.weights, block, with_control=False))
    assert sums is not None
    return StageSwaps(
        baseline=pair.paths[BASELINE_SIDE].name,
        candidate=pair.paths[CANDIDATE_SIDE].name,
        bank=pair.bank.name,
        width=width,
        ranks=ranks,
        rank=rank,
        rows=pair.rows,
        stages=sums.cut.stages,
        not_cut=sums.cut.reasons,
        quantities=tuple(
            _quantity(name, sums.sums[name], sums.cut) for name in QUANTITIES if name in sums.sums
        ),
        causes=dict(sums.causes.most_common()),
        examples=sums.examples,
        hidden_rows=sums.hidden,
    )


def _quantity(name: str, sums: Sums, cut: Cut) -> Quantity:
    norm = math.fsum(sums.norms)
    a, b = cut.mixture(BASELINE_SIDE), cut.mixture(CANDIDATE_SIDE)

    def apart(x: Any, y: Any) -> float:
        whole = math.fsum(sums.apart[x, y])
        return whole if name == SETS else _over(whole, norm)

    def size(value: float) -> float:
        return value if name == SETS else math.sqrt(value)

    def error(mixture: Any) -> float | None:
        return None if name == SETS else math.sqrt(_over(math.fsum(sums.errors[mixture]), norm))

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
            size(alone[stage]),
            size(left[stage]),
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
        total=size(total),
        interaction=interaction,
        interaction_share=_share(interaction, total),
        error_baseline=error(a),
        error_candidate=error(b),
        stages=shares,
        pairs=tuple(pairs),
    )


def _over(value: float, norm: float) -> float:
    return value / norm if norm > 0.0 else 0.0


def _share(value: float, total: float) -> float | None:
    return value / total if total else None


def _size(value: float, counted: bool) -> str:
    return f"{value:,.0f} rows" if counted else f"{value:.3e}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
