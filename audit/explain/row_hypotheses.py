"""Which named mistakes explain a path's row: its set, and its weights on its own ids."""

from __future__ import annotations

import numpy as np

from ..metrics.findings import same_as_expected
from ..metrics.weight_hypotheses import match_hypotheses
from .case_hypotheses import selection_hypotheses
from .case_reference import case_reference
from .cases import Case
from .judged_path import JudgedPath, weights_fit


def set_hypotheses(case: Case, path: JudgedPath) -> list[list[str]]:
    """Return, for each row, the mistakes that select this path's set; none where it is right."""
    found: list[list[str]] = [[] for _ in range(case.rows)]
    rows = np.flatnonzero(~path.invalid & ~path.uneven & path.differs)
    if not len(rows):
        return found
    # Where flush-to-zero is declared, the path's own reference is the flushed one.
    plain = case_reference(case, path.logits)
    rows = rows[~same_as_expected(path.routed, plain.ids)[rows]]
    for name, ids in selection_hypotheses(case, path.logits, plain):
        same = same_as_expected(path.routed, ids)
        for row in rows[same[rows]].tolist():
            found[row].append(name)
    return found


def weight_hypotheses(case: Case, path: JudgedPath, budget_ulp: int) -> list[list[str]]:
    """Return, for each row, the mistakes that give this path's weights to its own ids."""
    found: list[list[str]] = [[] for _ in range(case.rows)]
    if path.weights is None:
        return found
    rows = np.flatnonzero(~path.invalid & ~path.uneven & path.weights_wrong)
    for row in rows.tolist():
        found[row] = match_hypotheses(
            path.weights[row],
            path.ids[row],
            logits=path.logits[row],
            scores=path.reference.scores[row],
            bias=case.bias,
            scoring=case.scoring,
            budget_ulp=budget_ulp,
        )
        if _padded_softmax(case, path, row, budget_ulp):
            found[row].append("padded_lanes_in_softmax")
    return found


def _padded_softmax(case: Case, path: JudgedPath, row: int, budget_ulp: int) -> bool:
    """Whether the pad lanes, at logit 0, took part in the softmax of a row's weights."""
    if case.pad_to is None or case.scoring.function != "softmax" or path.routed_weights is None:
        return False
    logits = path.logits[row].astype(np.float64)
    with np.errstate(all="ignore"):
        powers = np.exp(logits)
        scores = powers / (powers.sum() + (case.pad_to - case.experts))
    chosen = scores[path.routed[row]]
    if case.scoring.renormalize:
        chosen = chosen / (chosen.sum() + case.scoring.epsilon)
    expected = (chosen * case.scoring.scale)[None]
    return bool(weights_fit(path.routed_weights[row : row + 1], expected, budget_ulp)[0])
