"""Sentences about one row that a person can act on: experts, slots, gap, window."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..metrics.swaps import SetClass
from ..metrics.weights import WeightClass
from ..metrics.worst_weight import worst_weight
from .judged_case import JudgedCase

_SET_WORDS: Final = {
    SetClass.EXACT_TIE: "an exact tie, which either may win while no tie order is declared",
    SetClass.GROUP_TIE: "the expert groups tie, so every id may change",
    SetClass.TIE_GROUP: "all of them tie, and only 1-for-1 swaps may be ties",
    SetClass.NEAR_TIE: "a near tie",
    SetClass.NOISE_SWAP: "beyond the window, within the declared noise",
    SetClass.FAR_SWAP: "not a near tie",
    SetClass.MULTI_SWAP: "more than one expert changes, which no near tie explains",
}


def set_text(judged: JudgedCase, row: int, kind: SetClass, facts: dict[str, Any]) -> str:
    """Which experts change, how far apart they are, and what that makes it."""
    a, b = judged.baseline, judged.b
    out = ", ".join(f"{e} (slot {_slot(a.ids[row], e)})" for e in facts["dropped"])
    into = ", ".join(f"{e} (slot {_slot(b.ids[row], e)})" for e in facts["added"])
    gap = facts["gap_ulp"]
    distance = "no defined gap" if gap is None else f"{gap} ULP apart"
    if kind == SetClass.GROUP_TIE:
        distance = f"group scores {facts['group_gap_ulp']} ULP apart"
    words = _SET_WORDS[kind]
    if judged.policy.tie_contract == "lower_id" and kind in (
        SetClass.EXACT_TIE,
        SetClass.GROUP_TIE,
    ):
        words = "a tie, which the lower id must win"
    flush = ", subnormals flushed to zero" if judged.policy.flush_to_zero else ""
    baseline = "the reference" if judged.own_reference else "path a"
    return (
        f"{judged.case.leading_axis} {row}: path b picks expert {into} where {baseline} picks "
        f"{out}; {distance} on the reference's biased scores{flush} "
        f"(window {judged.policy.window_ulp}): {words}"
    )


def _slot(ids: npt.NDArray[Any], expert: int) -> int:
    return int(np.flatnonzero(ids == expert)[0])


def weight_text(judged: JudgedCase, row: int, kind: WeightClass, facts: dict[str, Any]) -> str:
    """How far the weights of one set of experts are apart, and what that makes it."""
    steps = facts["max_weight_ulp"]
    distance = "by an undefined distance" if steps is None else f"by up to {steps} FP32 ULP"
    words = {
        WeightClass.NARROWED_BF16: "one path's weights are BF16 values",
        WeightClass.SCALED: f"path b's are path a's times {facts['ratio'] or 0:.7g}",
        WeightClass.MISMATCH: "no single scale or narrowing explains it",
    }[kind]
    return (
        f"{judged.case.leading_axis} {row}: same experts, weights differ {distance} "
        f"(budget {judged.policy.weight_budget_ulp}){_worst_place(judged, row)}; {words}"
    )


def _worst_place(judged: JudgedCase, row: int) -> str:
    """At which slot and expert the weights are farthest apart, and what both sides have there."""
    a, b = judged.baseline, judged.b
    if a.weights is None or b.weights is None:
        return ""
    worst = worst_weight(b.ids[row], b.weights[row], a.ids[row], a.weights[row])
    if worst is None:
        return ""
    baseline = "the reference" if judged.own_reference else "path a"
    return (
        f", most for expert {worst.expert} (slot {worst.slot} of path b): {worst.got} of path b, "
        f"{worst.expected} of {baseline}"
    )
