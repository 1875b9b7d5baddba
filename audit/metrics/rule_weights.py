"""The weights that a scoring rule gives to a path's own ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...banks.geometry import ScoringRule

F64 = npt.NDArray[np.float64]
Ids = npt.NDArray[np.integer[Any]]


def row_sums(values: npt.NDArray[np.floating[Any]]) -> F64:
    """Return FP64 sums of each row, left to right: the same order of additions on every machine."""
    total = np.zeros(len(values))
    for column in range(values.shape[1]):
        total += values[:, column]
    return total


def rule_weights(ids: Ids, scores: npt.NDArray[np.floating[Any]], scoring: ScoringRule) -> F64:
    """Return the weights that the scoring rule gives to a path's own ids.

    Args:
        ids: [row, slot] integers; ids that are no expert (shared slots) take no part.
        scores: [row, expert] unbiased scores, the reference's; FP64 or FP32.
        scoring: renormalisation, epsilon and scale.

    Returns:
        float64 [row, slot] in the order of ``ids``, 0 in slots without an expert. The sum runs in
        ascending order of id, so slot order cannot change a bit. NaN or inf where the rule has no
        finite answer.
    """
    experts = scores.shape[1]
    routed = (ids >= 0) & (ids < experts)
    order = np.argsort(ids, axis=1, kind="stable")
    picked = np.take_along_axis(scores, np.where(routed, ids, 0), axis=1).astype(np.float64)
    picked[~routed] = 0.0
    if not scoring.renormalize:
        return picked * scoring.scale
    total = row_sums(np.take_along_axis(picked, order, axis=1)) + scoring.epsilon
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(routed, picked / total[:, None] * scoring.scale, 0.0)
