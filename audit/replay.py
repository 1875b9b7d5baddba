"""Rebuild one row of a certificate and show both selections around the boundary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ..banks.bank import Bank
from ..banks.errors import InputError
from ..banks.open import open_bank
from ..kernels.contract import Path, check_width
from ..kernels.registry import make_path
from .judged import judge_block
from .launching import first_rows, front_weights, make_launch, run_path
from .metrics.ulp import ordered
from .report.figures import Table
from .report.notebook import table_html

_AROUND = 3
COLUMNS: Final = (
    "place", "expert", "biased score", "score", "steps", "baseline", "candidate",
)  # fmt: skip
"""Of a replayed row's lines; steps are FP32 ULP from the K-th key."""


@dataclass(frozen=True, eq=False)
class ReplayedRow:
    """One row, run again on its own launch.

    Attributes:
        ids: by role (baseline, candidate), [rank, slot] int32.
        weights: by role, [rank, slot] float32.
        order: experts by the reference's biased score, best first.
        scores, keys: [expert] float32, unbiased and biased, the reference's.
        top_k: slots.
    """

    bank: str
    row: int
    names: dict[str, str]
    ids: dict[str, npt.NDArray[np.int32]]
    weights: dict[str, npt.NDArray[np.float32]]
    order: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]
    keys: npt.NDArray[np.float32]
    top_k: int

    def lines(self, rank: int = 0) -> list[tuple[str, ...]]:
        """Return the experts around the boundary, as text by ``COLUMNS``, best first."""
        chosen = {role: set(ids[rank].tolist()) for role, ids in self.ids.items()}
        differing = chosen["baseline"] ^ chosen["candidate"]
        edge = ordered(self.keys[self.order[self.top_k - 1]])
        found = []
        for place, expert in enumerate(self.order.tolist(), start=1):
            if abs(place - self.top_k) > _AROUND and expert not in differing:
                continue
            steps = int(ordered(self.keys[expert]) - edge)
            marks = ("yes" if expert in chosen[role] else "-" for role in ("baseline", "candidate"))
            key, score = str(self.keys[expert]), str(self.scores[expert])
            found.append((str(place), str(expert), key, score, str(steps), *marks))
        return found

    def title(self, rank: int = 0) -> str:
        """Return which row of what this is."""
        names = f"{self.names['baseline']} against {self.names['candidate']}"
        return f"{self.bank} row {self.row}, rank {rank}: {names}"

    def text(self, rank: int = 0) -> str:
        """Return the experts around the boundary, and who selects them on one rank."""
        shape = "{:>5}  {:>6}  {:<18}  {:<18}  {:>5}  {:<8}  {}"
        lines = [self.title(rank), shape.format(*COLUMNS)]
        return "\n".join([*lines, *(shape.format(*line) for line in self.lines(rank))])

    def _repr_html_(self) -> str:
        """Show the experts around the boundary in a notebook."""
        return table_html(Table(self.title(), COLUMNS, self.lines()))

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__


def replay_row(
    bank: str | Bank,
    *,
    row: int,
    width: int,
    ranks: int = 8,
    baseline: str | Path = "general",
    candidate: str | Path = "route",
    device: str = "cpu",
) -> ReplayedRow:
    """Run both paths on the launch that starts at ``row``, and return that row.

    The row's own inputs are the recorded ones; a path whose result depends on the other rows of
    its launch may answer otherwise than in the audit.

    Raises:
        InputError: no such bank, row, width or path.
    """
    opened = bank if isinstance(bank, Bank) else open_bank(bank)
    check_width(width, "width")
    if not 0 <= row < opened.rows:
        raise InputError("row", row, f"0..{opened.rows - 1}", opened.name)
    opened.geometry.check_ranks(ranks)
    weights = front_weights(opened)
    block = opened.read(row, min(row + width, opened.rows))
    launch = make_launch(opened, weights, block, width, ranks)
    judged = judge_block(opened, weights, block, with_control=False)
    paths = {
        "baseline": baseline if isinstance(baseline, Path) else make_path(baseline, device),
        "candidate": candidate if isinstance(candidate, Path) else make_path(candidate, device),
    }
    ids, values = {}, {}
    for role, path in paths.items():
        path.check(launch)
        out = first_rows(run_path(path, launch), 1)
        ids[role], values[role] = out.ids[:, 0], out.weights[:, 0]
    keys = judged.selection.keys[0]
    line = np.where(np.isnan(keys), np.iinfo(np.int64).min, ordered(keys))
    return ReplayedRow(
        bank=opened.name,
        row=row,
        names={role: path.name for role, path in paths.items()},
        ids=ids,
        weights=values,
        order=np.lexsort((np.arange(len(keys)), -line)),
        scores=judged.selection.scores32[0],
        keys=keys,
        top_k=opened.geometry.top_k,
    )
