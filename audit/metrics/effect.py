"""What a swap does: the weight that moves to other experts, and what may come of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...banks.errors import InputError
from .rates import layers_rate, upper_bound

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Ids = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class SwapEffect:
    """The effect of the swaps of some rows.

    Attributes:
        rows: rows compared.
        differing: rows whose sets differ and whose weights are all finite.
        undefined: rows whose sets differ with a weight that is not finite: they have no mass.
        mean_mass: mean of the mass moved over ``differing``; None without such a row.
        max_mass: the largest.
        max_mass_row: index of the lowest row that shows it.
        max_output: largest bound on ||output_a - output_b|| over ``differing``; None where no
            norms of expert outputs were given.
        max_output_row: index of the lowest row that shows it.
    """

    rows: int
    differing: int
    undefined: int
    mean_mass: float | None
    max_mass: float | None
    max_mass_row: int | None
    max_output: float | None
    max_output_row: int | None


def mass_moved(ids_a: Ids, weights_a: Floats, ids_b: Ids, weights_b: Floats) -> F64:
    """Return sum |wA - wB| over all experts [row] float64, weights aligned by id, in FP64.

    An expert that one side does not select has weight 0 there. With weights that add up to 1 the
    result lies between 0 and 2.

    Args:
        ids_a: [row, slot] integers, none twice in a row.
        weights_a: [row, slot] floats, in the order of ``ids_a``.
        ids_b: [row, slot], another order and other experts.
        weights_b: [row, slot].

    Raises:
        InputError: shapes differ, or a row holds an id twice.

    Example:
        >>> mass_moved(np.array([[3, 1]]), np.array([[0.75, 0.25]]),
        ...            np.array([[2, 3]]), np.array([[0.25, 0.75]])).tolist()
        [0.5]
    """
    difference, _ = _by_expert(ids_a, weights_a, ids_b, weights_b)
    # Left to right, in the order of the ids: the same bits whatever the machine's vectors.
    total = np.zeros(len(difference))
    for column in range(difference.shape[1]):
        total = total + np.abs(difference[:, column])
    return total


def output_bound(
    ids_a: Ids, weights_a: Floats, ids_b: Ids, weights_b: Floats, expert_norms: Floats
) -> F64:
    """Return a bound on ||output_a - output_b|| [row]: sum |wA - wB| times the expert's norm.

    The outputs are sums of expert outputs times weights, so this is the triangle inequality over
    the experts. It assumes that both paths' experts return the same output for the row.

    Args:
        ids_a: as for ``mass_moved``, and so are the next three.
        weights_a: [row, slot].
        ids_b: [row, slot].
        weights_b: [row, slot].
        expert_norms: [row, expert], or [expert] for all rows: 2-norm of an expert's output.

    Raises:
        InputError: as ``mass_moved``, norms of another shape, a norm that is not finite or below 0,
            or an id without a norm.
    """
    difference, ids = _by_expert(ids_a, weights_a, ids_b, weights_b)
    norms = np.asarray(expert_norms, np.float64)
    if norms.ndim not in (1, 2) or (norms.ndim == 2 and len(norms) != len(ids)):
        expected = f"[expert] or [{len(ids)}, expert]"
        raise InputError("expert_norms.shape", norms.shape, expected, "output_bound")
    if ids.size and not (ids.min() >= 0 and ids.max() < norms.shape[-1]):
        got = f"{ids.min()}..{ids.max()}"
        raise InputError("ids", got, f"0..{norms.shape[-1] - 1}", "output_bound")
    check_norms(norms)
    own = norms[ids] if norms.ndim == 1 else np.take_along_axis(norms, ids, axis=1)
    total = np.zeros(len(ids))
    for column in range(ids.shape[1]):
        step = np.abs(difference[:, column])
        # An expert that keeps its weight adds nothing, whatever its norm.
        total = total + np.where(step == 0.0, 0.0, step * own[:, column])
    return total


def check_norms(norms: npt.NDArray[Any]) -> None:
    """Refuse norms of which one is no finite number of at least 0.

    Raises:
        InputError: there is one, which is shown.
    """
    expected = "finite numbers, at least 0"
    if norms.dtype.kind not in "fiu":
        raise InputError("expert_norms.dtype", norms.dtype, expected, "output_bound")
    wrong = norms[~(np.isfinite(norms) & (norms >= 0))]
    if wrong.size:
        raise InputError("expert_norms", wrong.flat[0], expected, "output_bound")


def swap_effect(
    ids_a: Ids,
    weights_a: Floats,
    ids_b: Ids,
    weights_b: Floats,
    expert_norms: Floats | None = None,
) -> SwapEffect:
    """Return the effect over the rows whose sets differ; arguments as for ``output_bound``.

    Raises:
        InputError: as ``output_bound``.
    """
    masses = mass_moved(ids_a, weights_a, ids_b, weights_b)
    unlike = (np.sort(ids_a, axis=1) != np.sort(ids_b, axis=1)).any(axis=1)
    rows = np.flatnonzero(unlike & np.isfinite(masses))
    undefined = int(np.count_nonzero(unlike)) - len(rows)
    largest = None if not rows.size else int(rows[masses[rows].argmax()])
    bound: tuple[float | None, int | None] = (None, None)
    if expert_norms is not None and rows.size:
        bounds = output_bound(ids_a, weights_a, ids_b, weights_b, expert_norms)[rows]
        at = int(bounds.argmax())
        bound = (float(bounds[at]), int(rows[at]))
    return SwapEffect(
        rows=len(ids_a),
        differing=len(rows),
        undefined=undefined,
        mean_mass=math.fsum(masses[rows]) / len(rows) if rows.size else None,
        max_mass=None if largest is None else float(masses[largest]),
        max_mass_row=largest,
        max_output=bound[0],
        max_output_row=bound[1],
    )


@dataclass(frozen=True, slots=True)
class ModelRate:
    """Share of tokens that at least one of the model's layers routes otherwise.

    Attributes:
        layers: layers with a router, taken as independent.
        rate: 1 - (1 - p)^L of the observed rate p of one layer; None where nothing was tried.
        upper: the same of the rate's upper bound.
        confidence: of that bound, one-sided.
    """

    layers: int
    rate: float | None
    upper: float
    confidence: float


def model_rate(events: int, trials: int, layers: int, confidence: float = 0.95) -> ModelRate:
    """Return the rate over a model's layers, from the events of one layer's independent rows.

    Raises:
        InputError: as ``rates.upper_bound`` and ``rates.layers_rate``.

    Example:
        >>> f"{model_rate(0, 59_914, 92).upper:.2%}"
        '0.46%'
    """
    bound = upper_bound(events, trials, confidence)
    rate = layers_rate(events / trials, layers) if trials else None
    return ModelRate(layers, rate, layers_rate(bound, layers), confidence)


def _by_expert(ids_a: Ids, weights_a: Floats, ids_b: Ids, weights_b: Floats) -> tuple[F64, I64]:
    """Differences wA - wB [row, place], and the expert of each place; an empty place has 0."""
    for name, array in (("weights_a", weights_a), ("ids_b", ids_b), ("weights_b", weights_b)):
        if ids_a.ndim != 2 or array.shape != ids_a.shape:
            raise InputError(f"{name}.shape", array.shape, ids_a.shape, "mass_moved")
    for name, ids in (("ids_a", ids_a), ("ids_b", ids_b)):
        in_order = np.sort(ids, axis=1)
        twice = np.flatnonzero((in_order[:, 1:] == in_order[:, :-1]).any(axis=1))
        if twice.size:
            row = int(twice[0])
            raise InputError(f"{name}[row {row}]", ids[row].tolist(), "distinct ids", "mass_moved")
    experts = np.concatenate([ids_a, ids_b], axis=1).astype(np.int64)
    values = np.concatenate([weights_a.astype(np.float64), -weights_b.astype(np.float64)], axis=1)
    order = np.argsort(experts, axis=1, kind="stable")
    experts = np.take_along_axis(experts, order, axis=1)
    values = np.take_along_axis(values, order, axis=1)
    # At most two of each expert, a's first: put both into the first place.
    pair = experts[:, 1:] == experts[:, :-1]
    with np.errstate(invalid="ignore"):
        values[:, :-1] += np.where(pair, values[:, 1:], 0.0)
    values[:, 1:][pair] = 0.0
    return values, experts
