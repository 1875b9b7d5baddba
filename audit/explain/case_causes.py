"""Why a row of a case differs: named mistakes and a differing bias, as facts and sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...kernels.contract import BFLOAT16
from ..metrics.ulp import ulp_distance
from .case_rows import Verdict
from .cases import Case
from .judged_case import JudgedCase
from .row_hypotheses import set_hypotheses, weight_hypotheses


def add_hypotheses(judged: JudgedCase, rows: list[dict[str, Any]]) -> None:
    """Add to each row's facts the named mistakes that give what either path returned."""
    budget = judged.policy.weight_budget_ulp
    for path in (judged.a, judged.b):
        sets = set_hypotheses(judged.case, path)
        weights = weight_hypotheses(judged.case, path, budget)
        for facts, of_set, of_weights in zip(rows, sets, weights, strict=True):
            facts[f"set_hypotheses_{path.name}"] = of_set
            facts[f"weight_hypotheses_{path.name}"] = of_weights
            names = list(dict.fromkeys([*of_set, *of_weights]))
            facts[f"hypotheses_{path.name}"] = names
            facts[f"matches_hypothesis_{path.name}"] = names[0] if names else None


def cause_texts(case: Case, rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each named mistake that explains a row that does not pass."""
    if bias_facts(case).get("bias_b_is_bf16"):
        yield "path b's bias is the bias rounded to BF16"
    for facts in rows:
        if facts["verdict"] == Verdict.PASS:
            continue
        place = f"{case.leading_axis} {facts['row']}"
        for name in ("a", "b"):
            for what, noun, verb in (("set", "experts", "select"), ("weight", "weights", "give")):
                causes = facts[f"{what}_hypotheses_{name}"]
                if causes:
                    given = f"{_either(causes)} would {verb}"
                    yield f"{place}: path {name} holds the {noun} that {given}"


def _either(names: list[str], most: int = 3) -> str:
    return " or ".join(names[:most]) + (" or others" if len(names) > most else "")


def bias_facts(case: Case) -> dict[str, Any]:
    """How the bias that b held differs from the true one; nothing where it is not told."""
    if case.bias_b is None or case.bias is None:
        return {}
    narrow = case.bias.astype(BFLOAT16).astype(np.float32)
    differs = np.flatnonzero(case.bias != case.bias_b)
    is_bf16 = bool((narrow == case.bias_b).all()) and bool(len(differs))
    return {
        "bias_differs": differs.tolist(),
        "bias_max_ulp": ulp_distance(case.bias, case.bias_b).max(),
        "bias_b_is_bf16": is_bf16,
        "bias_hypothesis": "bias_bf16" if is_bf16 else None,
    }
