"""Which stage makes two paths differ: each stage swapped alone, undone alone, and in pairs.

What the shares are of is in ``stage_shares``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...banks.bank import Bank
from ...kernels.contract import Path
from ..judged import judge_block
from ..number_words import number_of
from .pair import DEFAULT_WIDTH, make_pair
from .stage_chain import BASELINE_SIDE, CANDIDATE_SIDE, Mixer, cut_paths
from .stage_shares import Quantity, counted, squared
from .stage_sums import SQUARED, StageSums


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
        invalid_rows: rows with a breach of the row contract, whose sets count nowhere.
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
    invalid_rows: int

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
            f"{self.bank}: {number_of(self.rows, 'row')}, width {self.width}, rank {self.rank} of "
            f"{self.ranks}; stages that differ: {told}",
            *(f"not cut: {reason}" for reason in self.not_cut),
        ]
        for quantity in self.quantities:
            found += quantity.lines()
        found += [
            f"  {number_of(count, 'row')} by {cause}, the first is row {self.examples[cause]:,}"
            for cause, count in self.causes.items()
        ]
        if self.hidden_rows:
            found.append(
                f"  {number_of(self.hidden_rows, 'more row')} with equal sets where a single "
                "swapped stage changes the set: differences hide each other there"
            )
        if self.invalid_rows:
            found.append(f"  left out: {number_of(self.invalid_rows, 'invalid row')}")
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
        quantities=(
            *(squared(name, sums.sums[name], sums.cut) for name in SQUARED if name in sums.sums),
            counted(sums.sets),
        ),
        causes=dict(sums.sets.causes.most_common()),
        examples=sums.sets.examples,
        hidden_rows=sums.sets.hidden,
        invalid_rows=sums.invalid,
    )
