"""What the swaps between two paths move: weight, output, and tokens of a whole model."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...banks.bank import Bank
from ...banks.errors import InputError
from ...kernels.contract import F32, I32, Path
from ..launching import run_path
from ..metrics.effect import ModelRate, SwapEffect, check_norms, mass_moved, model_rate, swap_effect
from ..number_words import number_of
from .pair import DEFAULT_WIDTH, make_pair

I64 = npt.NDArray[np.int64]

K3_LAYERS: Final = 92
EXPERT_NORMS: Final = "expert_output_norms"
"""Name of a bank's own tensor [row, expert]: the 2-norm of each expert's output for the row."""


@dataclass(frozen=True)
class SwapEffects:
    """The effect of the swaps of two paths on one bank.

    Attributes:
        baseline, candidate, bank: their names.
        width, ranks, rank: of the launches, and whose outputs are looked at.
        effect: mass moved, and the output bound where norms of expert outputs are known; rows are
            numbers in the bank.
        model: the rate over the model's layers.
        invalid: rows with a breach of the row contract, which count nowhere.
        unit: the bank's independence unit: where it is not ``row``, rows are not independent and
            ``model.upper`` is too small.
    """

    baseline: str
    candidate: str
    bank: str
    width: int
    ranks: int
    rank: int
    effect: SwapEffect
    model: ModelRate
    invalid: int
    unit: str

    @property
    def exit_status(self) -> int:
        """3 where every row is invalid, so that nothing was compared; else 0."""
        return 0 if self.effect.rows else 3

    @property
    def title(self) -> str:
        """The section's title."""
        return f"Effect of the swaps: {self.baseline} against {self.candidate}"

    def lines(self) -> list[str]:
        """Return the section's text."""
        effect, model = self.effect, self.model
        found = [
            f"{self.bank}: sets differ on {effect.differing + effect.undefined:,} of "
            f"{number_of(effect.rows, 'row')}, rank {self.rank} of {self.ranks}"
        ]
        if effect.mean_mass is not None:
            found.append(
                f"weight moved, sum |wA - wB|: mean {effect.mean_mass:.3e}, largest "
                f"{effect.max_mass:.3e} in row {effect.max_mass_row:,}"
            )
        if effect.max_output is not None:
            found.append(
                f"output moved: at most {effect.max_output:.3e} in row {effect.max_output_row:,}"
            )
        if self.invalid:
            found.append(f"invalid: {number_of(self.invalid, 'more row')}")
        if effect.undefined:
            found.append(f"a weight is not finite on {effect.undefined:,} of them")
        if not effect.rows:
            return [*found, "unknown: every row is invalid"]
        rate = "-" if model.rate is None else f"{model.rate:.2%}"
        found.append(
            f"over {model.layers} independent layers {rate} of the tokens, at most "
            f"{model.upper:.2%} ({model.confidence:.0%})"
        )
        if self.unit != "row":
            found.append(f"rows are not independent (unit {self.unit}): the bound is too small")
        return found

    def figures(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


def swap_effects(
    baseline: str | Path,
    candidate: str | Path,
    bank: str | Bank,
    *,
    layers: int = K3_LAYERS,
    expert_norms: npt.NDArray[Any] | None = None,
    width: int = DEFAULT_WIDTH,
    ranks: int = 8,
    rank: int = 0,
    rows: int | None = None,
    confidence: float = 0.95,
    device: str = "cpu",
) -> SwapEffects:
    """Return what the swaps between two paths move.

    Args:
        baseline: as for ``make_pair``, and so are candidate, bank, width, ranks, rank and rows.
        candidate: the other path.
        bank: the rows.
        layers: layers with a router of the whole model.
        expert_norms: [expert] or [row, expert] 2-norms of expert outputs; None takes the bank's
            ``expert_output_norms`` where it has such a tensor.
        width: rows per launch.
        ranks: tensor-parallel ranks.
        rank: whose outputs are looked at.
        rows: the bank's first rows.
        confidence: of the rate's upper bound.
        device: as for ``make_path``.

    Raises:
        InputError: an argument that does not fit.
        EnvelopeError: a path refuses the launch.
        PathError: a path raised.
    """
    pair = make_pair(
        baseline, candidate, bank, width=width, ranks=ranks, rank=rank, rows=rows, device=device
    )
    if expert_norms is not None:
        _check_norms(expert_norms, pair.bank.geometry.experts, pair.rows)
    found: list[tuple[I64, SwapEffect, float]] = []
    for block, launch in pair.chunks():
        a, b = (run_path(path, launch) for path in pair.paths)
        norms = block.extra.get(EXPERT_NORMS)
        if expert_norms is not None:
            part = slice(block.start, block.start + block.rows)
            norms = expert_norms if expert_norms.ndim == 1 else expert_norms[part]
        valid = np.flatnonzero(~pair.invalid((a, b), block.rows))
        own = norms if norms is None or norms.ndim == 1 else norms[valid]
        ids_a, weights_a = a.ids[rank, valid], a.weights[rank, valid]
        ids_b, weights_b = b.ids[rank, valid], b.weights[rank, valid]
        one = swap_effect(ids_a, weights_a, ids_b, weights_b, own)
        found.append((valid + block.start, one, _mass(ids_a, weights_a, ids_b, weights_b)))
    effect = _merged(found)
    differing = effect.differing + effect.undefined
    return SwapEffects(
        pair.paths[0].name, pair.paths[1].name, pair.bank.name, width, ranks, rank, effect,
        model_rate(differing, effect.rows, layers, confidence), pair.rows - effect.rows,
        pair.bank.independence_unit,
    )  # fmt: skip


def _check_norms(norms: object, experts: int, rows: int) -> None:
    """Refuse what is no norms of these experts, or of too few rows."""
    if not isinstance(norms, np.ndarray):
        expected = "a numpy array [expert] or [row, expert]"
        raise InputError("expert_norms", type(norms).__name__, expected, "swap_effects")
    fits = norms.shape == (experts,) or (norms.ndim == 2 and norms.shape[1] == experts)
    if not fits or len(norms) < (rows if norms.ndim == 2 else 1):
        expected = f"({experts},), or {rows} rows or more of {experts}"
        raise InputError("expert_norms.shape", norms.shape, expected, "swap_effects")
    check_norms(norms)


def _mass(ids_a: I32, weights_a: F32, ids_b: I32, weights_b: F32) -> float:
    """The mass moved on rows with other sets, summed."""
    masses = mass_moved(ids_a, weights_a, ids_b, weights_b)
    unlike = (np.sort(ids_a, axis=1) != np.sort(ids_b, axis=1)).any(axis=1)
    return math.fsum(masses[unlike & np.isfinite(masses)])


def _merged(found: list[tuple[I64, SwapEffect, float]]) -> SwapEffect:
    """The effects of all chunks as one; the first chunk with a largest value gives its row."""
    differing = sum(one.differing for _, one, _ in found)
    mass = math.fsum(total for _, _, total in found)
    largest: tuple[float | None, int | None] = (None, None)
    output: tuple[float | None, int | None] = (None, None)
    for numbers, one, _ in found:
        largest = _larger(largest, one.max_mass, one.max_mass_row, numbers)
        output = _larger(output, one.max_output, one.max_output_row, numbers)
    return SwapEffect(
        rows=sum(one.rows for _, one, _ in found),
        differing=differing,
        undefined=sum(one.undefined for _, one, _ in found),
        mean_mass=mass / differing if differing else None,
        max_mass=largest[0],
        max_mass_row=largest[1],
        max_output=output[0],
        max_output_row=output[1],
    )


def _larger(
    known: tuple[float | None, int | None], value: float | None, place: int | None, numbers: I64
) -> tuple[float | None, int | None]:
    if value is None or place is None or (known[0] is not None and known[0] >= value):
        return known
    return value, int(numbers[place])
