"""Two paths and the rows of a bank that they are asked about, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ...banks.bank import Bank, RowBlock, require_inputs
from ...banks.errors import EnvelopeError, InputError
from ...banks.open import open_bank
from ...kernels.contract import F32, I32, FrontWeights, Launch, Path, Routed
from ...kernels.registry import as_path
from ..bank_run import chunk_rows
from ..launching import POISONS, front_weights, make_launch, refusal
from ..metrics.contracts import breaches

DEFAULT_WIDTH: Final = 12


@dataclass(frozen=True, eq=False)
class Pair:
    """Two paths on the first rows of a bank.

    Attributes:
        paths: baseline and candidate.
        bank, weights: where the rows come from.
        width, ranks: of the launches.
        rank: whose outputs are looked at.
        rows: how many of the bank's rows.
    """

    paths: tuple[Path, Path]
    bank: Bank
    weights: FrontWeights
    width: int
    ranks: int
    rank: int
    rows: int

    def chunks(self, width: int | None = None) -> Iterator[tuple[RowBlock, Launch]]:
        """Yield the rows in blocks, each with its launches of ``width`` rows (None: the pair's).

        Raises:
            EnvelopeError: a path refuses the launches.
        """
        step = chunk_rows(self.bank, self.ranks)
        for start in range(0, self.rows, step):
            block = self.bank.read(start, min(start + step, self.rows))
            launch = make_launch(self.bank, self.weights, block, width or self.width, self.ranks)
            if start == 0:
                reason = refusal(self.paths, launch)
                if reason:
                    got = f"width {launch.width}"
                    raise EnvelopeError("launch", got, "one that both paths run", reason)
            yield block, launch

    def invalid(self, outputs: Sequence[Routed], rows: int) -> npt.NDArray[np.bool_]:
        """Return the rows [row] with a breach of the row contract in any of the outputs."""
        bad = np.zeros(rows, np.bool_)
        for out in outputs:
            ids, weights = out.ids[self.rank, :rows], out.weights[self.rank, :rows]
            bad |= invalid_rows(ids, weights, self.bank.geometry.experts)
        return bad


def invalid_rows(ids: I32, weights: F32, experts: int) -> npt.NDArray[np.bool_]:
    """Return the rows [row] of ids and weights [row, slot] with a breach of the row contract."""
    found = breaches(
        ids,
        weights,
        experts,
        poison_ids=POISONS[0].ids,
        poison_weights_bits=POISONS[0].float32_bits,
    )
    return np.asarray(found != 0)


def make_pair(
    baseline: str | Path,
    candidate: str | Path,
    bank: str | Bank,
    *,
    width: int = DEFAULT_WIDTH,
    ranks: int = 8,
    rank: int = 0,
    rows: int | None = None,
    device: str = "cpu",
) -> Pair:
    """Return the pair.

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
        InputError: a path, bank or number that does not fit.
    """
    paths = (as_path(baseline, "baseline", device), as_path(candidate, "candidate", device))
    source = open_bank(bank) if isinstance(bank, str) else bank
    require_inputs(source)
    count = source.rows if rows is None else rows
    if not 1 <= count <= source.rows:
        raise InputError("rows", count, f"1..{source.rows}", source.name)
    if not 0 <= rank < ranks:
        raise InputError("rank", rank, f"0..{ranks - 1}", "why")
    return Pair(paths, source, front_weights(source), width, ranks, rank, count)
