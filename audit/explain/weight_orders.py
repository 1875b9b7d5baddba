"""Weights of selected scores by every order of the sum and every normalisation that is known."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...banks.geometry import ScoringRule
from ...kernels.select_weights import LANES, NORMALISATIONS

F32 = npt.NDArray[np.float32]
Floats = npt.NDArray[Any]
Ids = npt.NDArray[np.integer[Any]]


def _left_to_right(values: Floats, ids: Ids) -> Floats:
    total = np.zeros(len(values), values.dtype)
    for slot in range(values.shape[1]):
        total = total + values[:, slot]
    return total


def _fold(values: Floats, ids: Ids) -> Floats:
    width = 1 << (values.shape[1] - 1).bit_length()
    lanes = np.zeros((len(values), width), values.dtype)
    lanes[:, : values.shape[1]] = values
    while width > 1:
        width //= 2
        lanes = lanes[:, :width] + lanes[:, width:]
    return lanes[:, 0]


def _butterfly(values: Floats, ids: Ids) -> Floats:
    # Lane i of a warp first adds its own values i, i + 32, ..., then lanes exchange by xor.
    lanes = np.zeros((len(values), LANES), values.dtype)
    for slot in range(values.shape[1]):
        lanes[:, slot % LANES] = lanes[:, slot % LANES] + values[:, slot]
    offset = LANES // 2
    while offset:
        lanes = lanes + lanes[:, np.arange(LANES) ^ offset]
        offset //= 2
    return lanes[:, 0]


def _ascending(values: Floats, ids: Ids) -> Floats:
    order = np.argsort(ids, axis=1, kind="stable")
    return _left_to_right(np.take_along_axis(values, order, axis=1), ids)


def _descending_weight(values: Floats, ids: Ids) -> Floats:
    return _left_to_right(-np.sort(-values, axis=1), ids)


def _fp64(values: Floats, ids: Ids) -> Floats:
    return _left_to_right(values.astype(np.float64), ids).astype(values.dtype)


SUM_ORDERS: Final[dict[str, Callable[[Floats, Ids], Floats]]] = {
    "left_to_right": _left_to_right,
    "fold": _fold,
    "butterfly": _butterfly,
    "ascending": _ascending,
    "descending_weight": _descending_weight,
    "fp64": _fp64,
}
"""Sums [row] of values [row, slot] in selection order, by the order of additions.

``ascending`` adds by ascending id, ``descending_weight`` the largest value first, and ``fp64`` adds
in FP64 and rounds once; the others are ``kernels.select_weights.SUMS``.
"""

PRECISE: Final = "fp64 throughout, rounded once"

Arithmetic = tuple[str, str]
"""Normalisation and order of the sum, by name."""


def arithmetics(precise: bool, scoring: ScoringRule) -> list[Arithmetic]:
    """Return what ``weigh`` tries, in its order.

    Args:
        precise: whether the values are FP64.
        scoring: without ``renormalize`` nothing is summed.
    """
    if precise:
        return [(PRECISE, "")]
    if not scoring.renormalize:
        return [("none", "")]
    return list(product(NORMALISATIONS[:-1], SUM_ORDERS))


def weigh(values: Floats, ids: Ids, scoring: ScoringRule) -> F32:
    """Return the weights that each arithmetic makes of selected scores.

    Args:
        values: [row, slot] float32 or float64, in selection order.
        ids: [row, slot], in the same order.
        scoring: renormalisation, epsilon and scale.

    Returns:
        float32 [arithmetic, row, slot], in the order of ``arithmetics``.
    """
    with np.errstate(all="ignore"):
        if values.dtype == np.float64:
            return _precise(values, ids, scoring)[None]
        scale = np.float32(scoring.scale)
        if not scoring.renormalize:
            return (values * scale)[None]
        sums = np.stack([add(values, ids) for add in SUM_ORDERS.values()])
        made = [_normalised(name, values, sums[..., None], scoring) for name in NORMALISATIONS[:-1]]
    return np.concatenate(made)


def _precise(values: Floats, ids: Ids, scoring: ScoringRule) -> F32:
    if scoring.renormalize:
        values = values / (_ascending(values, ids) + scoring.epsilon)[:, None]
    return np.asarray((values * scoring.scale).astype(np.float32))


def _normalised(name: str, values: Floats, sums: Floats, scoring: ScoringRule) -> F32:
    """Weights [sum, row, slot], rounded to FP32 where the named kernel rounds."""
    scale, epsilon = np.float32(scoring.scale), np.float32(scoring.epsilon)
    if name == "divide_fp64":
        wide = sums.astype(np.float64) + scoring.epsilon
        return np.asarray((values.astype(np.float64) * scoring.scale / wide).astype(np.float32))
    kind, _, end = name.partition("_")
    denominator = sums + epsilon if end == "eps" else np.where(sums > 0, sums, np.float32(1))
    if kind == "reciprocal":
        return np.asarray((values * (scale / denominator)).astype(np.float32))
    return np.asarray(((values / denominator) * scale).astype(np.float32))
