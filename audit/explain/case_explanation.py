"""The table of hypotheses for the failing rows of a pasted case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..metrics.findings import Bools
from ..metrics.rule_weights import rule_weights
from .case_rows import Verdict
from .explanation import OWN, Explanation, explain_failing
from .fitter import Failing
from .judged_case import JudgedCase
from .judged_path import JudgedPath
from .mistakes import set_mistakes, weight_mistakes
from .select_steps import Seen


def case_explanations(
    judged: JudgedCase, rows: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, Explanation]]:
    """Yield each path's name with what explains its failing rows; nothing where none fails.

    Args:
        judged: the case.
        rows: the facts of each row, with its verdict.
    """
    bad = np.array([row["verdict"] in (Verdict.FAIL, Verdict.INVALID) for row in rows])
    right = ~judged.a.wrong & ~judged.b.wrong
    for path in (judged.a, judged.b):
        # A row that fails though neither path is wrong is too far from the other path's.
        failing = (path.wrong | right & bad) & ~path.invalid & ~path.uneven
        if failing.any():
            yield path.name, _explained(judged, path, failing)


def _explained(judged: JudgedCase, path: JudgedPath, failing: Bools) -> Explanation:
    case, which = judged.case, np.flatnonzero(failing)
    bias = np.zeros(case.experts, np.float32) if case.bias is None else case.bias
    ids, weights = path.routed[which].astype(np.int64), path.routed_weights
    with np.errstate(all="ignore"):
        rule = rule_weights(ids, path.reference.scores[which], case.scoring).astype(np.float32)
    seen = Seen(
        case.geometry,
        case.scoring,
        path.logits[which],
        bias,
        ids,
        None if weights is None else weights[which],
    )
    budget = np.full(len(which), judged.policy.weight_budget_ulp, np.int64)
    mistakes = [
        *set_mistakes(case.geometry, case.scoring, bias, case.bias_b),
        *weight_mistakes(case.scoring, bias),
    ]
    return explain_failing({OWN: Failing(seen, path.reference.ids[which], rule, budget)}, mistakes)


def explanation_text(name: str, explanation: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of one path as lines of text."""
    # The report's own table: what is shown of a hypothesis is decided in one place.
    from ..report.explanations import hypothesis_rows

    head = (f"path {name}: hypothesis", "bit for bit", "ids only", "failing rows tried", "with")
    table = [head, *hypothesis_rows(explanation)]
    widths = [max(len(row[column]) for row in table) for column in range(len(head) - 1)]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)]
        yield "  ".join([*cells, row[-1]])
