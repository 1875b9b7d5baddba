"""Named bugs that give a path's weights: tried where the weights of a row do not match."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ...banks.errors import InputError
from ...banks.geometry import ScoringRule
from .rule_weights import rule_weights
from .ulp import finite, from_ordered, ordered, rounded, ulp_distance

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
Ids = npt.NDArray[np.integer[Any]]

BFLOAT16: Final = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True, eq=False, slots=True)
class RowContext:
    """One row as a hypothesis sees it.

    Attributes:
        ids: [1, slot] the path's ids.
        weights: float32 [slot] the path's weights.
        logits, scores: float64 [expert]; scores are the rule's.
        bias: float32 [expert].
        scoring: the rule.
        rule: float64 [slot], the rule's own weights for these ids.
        budget_ulp: FP32 steps that a match may be off.
    """

    ids: Ids
    weights: F32
    logits: F64
    scores: F64
    bias: F32
    scoring: ScoringRule
    rule: F64
    budget_ulp: int

    def weigh(self, scores: npt.ArrayLike, **changes: Any) -> F64:
        """Weights by the rule from other scores, or by a changed rule."""
        fields = ("function", "renormalize", "epsilon", "scale")
        rule = {name: getattr(self.scoring, name) for name in fields} | changes
        values = np.asarray(scores, dtype=np.float64)[None, :]
        result: F64 = rule_weights(self.ids, values, ScoringRule(**rule))[0]
        return result


def _score(function: str, logits: F64) -> F64:
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        if function == "sigmoid":
            return 1.0 / (1.0 + np.exp(-logits))
        if function == "softmax":
            powers = np.exp(logits - np.max(logits))
            result: F64 = powers / powers.sum()
            return result
        if function == "sqrtsoftplus":
            return np.sqrt(np.logaddexp(0.0, logits))
        return logits


def _biased(row: RowContext) -> F64:
    return row.weigh(row.scores.astype(np.float32) + row.bias)


def _bias_subtracted(row: RowContext) -> F64:
    # In FP32, where a large bias leaves nothing of the score.
    return row.weigh((row.scores.astype(np.float32) + row.bias) - row.bias)


def _bf16_weights(row: RowContext) -> F64:
    # The value that was narrowed may be off by the budget, and then round to the next BF16 value:
    # round the value nearest to the path's weight that the budget allows.
    steps = ordered(rounded(row.rule, np.float32))
    low, high = steps - row.budget_ulp, steps + row.budget_ulp
    allowed = from_ordered(np.clip(ordered(row.weights), low, high), np.float32)
    return rounded(allowed, BFLOAT16).astype(np.float64)


def _softmax_over_selected(row: RowContext) -> F64:
    routed = (row.ids >= 0) & (row.ids < len(row.logits))
    masked = np.full(len(row.logits), -np.inf)
    masked[row.ids[routed]] = row.logits[row.ids[routed]]
    return row.weigh(_score("softmax", masked))


def _bf16_scores(row: RowContext) -> F64:
    return row.weigh(rounded(row.scores, BFLOAT16).astype(np.float64))


def _bf16_logits(row: RowContext) -> F64:
    logits = rounded(row.logits, BFLOAT16).astype(np.float64)
    return row.weigh(_score(row.scoring.function, logits))


HYPOTHESES: Final[dict[str, Callable[[RowContext], F64]]] = {
    "biased_score_weights": _biased,
    "scale_applied_twice": lambda row: row.rule * row.scoring.scale,
    "scale_not_applied": lambda row: row.weigh(row.scores, scale=1.0),
    "not_renormalised": lambda row: row.weigh(row.scores, renormalize=False),
    "renormalised": lambda row: row.weigh(row.scores, renormalize=True),
    "bf16_weights": _bf16_weights,
    "bf16_scores": _bf16_scores,
    "bf16_logits": _bf16_logits,
    "softmax_weights": lambda row: row.weigh(_score("softmax", row.logits), renormalize=True),
    "softmax_over_selected": _softmax_over_selected,
    "sigmoid_instead_of_softmax": lambda row: row.weigh(_score("sigmoid", row.logits)),
    "bias_subtracted": _bias_subtracted,
    "uniform": lambda row: row.weigh(np.ones(len(row.scores)), renormalize=True, epsilon=0.0),
}
"""Named bugs, each with the weights (float64 [slot]) that it would give to the path's own ids."""


def match_hypotheses(
    weights: F32,
    ids: Ids,
    *,
    logits: npt.ArrayLike,
    scores: npt.ArrayLike,
    bias: F32 | None,
    scoring: ScoringRule,
    budget_ulp: int = 8,
) -> list[str]:
    """Return the names of the hypotheses that give one row's weights, in the table's order.

    A match is every routed slot within the budget. A hypothesis that gives the rule's own weights
    here, within the budget, is not named: nothing tells the two apart.

    Args:
        weights: float32 [slot].
        ids: [slot] integers; ids that are no expert (shared slots) take no part.
        logits: [expert].
        scores: [expert] the reference's unbiased scores.
        bias: float32 [expert] or None.
        scoring: the rule that the path should follow.
        budget_ulp: FP32 steps that each weight may be off.
    """
    scores64 = np.asarray(scores, dtype=np.float64)
    if not (weights.ndim == 1 and weights.shape == ids.shape):
        raise InputError("weights.shape", weights.shape, ids.shape, "match_hypotheses")
    known = np.zeros(len(scores64), np.float32) if bias is None else bias
    row = RowContext(
        ids[None, :],
        weights,
        np.asarray(logits, dtype=np.float64),
        scores64,
        known,
        scoring,
        rule_weights(ids[None, :], scores64[None, :], scoring)[0],
        budget_ulp,
    )
    routed = (ids >= 0) & (ids < len(scores64))
    rule = rounded(row.rule[routed], np.float32)
    # A rule or weight that is not finite has no steps to count, so nothing can match.
    if not (routed.any() and finite(rule).all() and finite(weights[routed]).all()):
        return []
    names = []
    for name, weigh in HYPOTHESES.items():
        with np.errstate(over="ignore", invalid="ignore"):
            expected = rounded(weigh(row)[routed], np.float32)
        own = ulp_distance(expected, rule).within(budget_ulp).all()
        if not own and ulp_distance(weights[routed], expected).within(budget_ulp).all():
            names.append(name)
    return names
