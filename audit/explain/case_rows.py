"""One row of a judged case: its classes, flags and gaps as plain values, and its own verdict."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ...kernels.contract import BFLOAT16
from ..metrics.flags import FAILING, Breach, RowFlag, names
from ..metrics.swaps import SetClass
from ..metrics.ulp import ulp_distance
from ..metrics.weights import WEIGHT_CLASSES, WeightClass, classify_weights
from .cases import F32
from .judged_case import JudgedCase
from .judged_path import JudgedPath
from .row_text import set_text, weight_text


class Verdict(enum.StrEnum):
    """Verdict of a row or a case, each worse than the one before."""

    PASS = "pass"
    DISCLOSE = "disclose"
    FAIL = "fail"
    INVALID = "invalid"


_VERDICTS: Final = tuple(Verdict)
_HARMLESS_WEIGHTS: Final = (WeightClass.EQUAL, WeightClass.DRIFT)


def worst(verdicts: Iterator[Verdict]) -> Verdict:
    """The worst of several verdicts; pass where there is none."""
    return max(verdicts, key=_VERDICTS.index, default=Verdict.PASS)


@dataclass(frozen=True, slots=True)
class RowReport:
    """A row's verdict before any finding, why, and its facts by the words of the case format."""

    row: int
    verdict: Verdict
    reasons: tuple[str, ...]
    facts: dict[str, Any] = field(default_factory=dict)


def report_row(judged: JudgedCase, row: int) -> RowReport:
    """Return what can be told of one row."""
    facts: dict[str, Any] = {"row": row}
    facts.update(_contract_facts(judged, row))
    facts.update(_set_facts(judged, row))
    facts.update(_weight_facts(judged, row))
    facts.update(_reference_facts(judged, row))
    judgements = list(_judge(judged, row, facts))
    verdict = worst(v for v, _ in judgements)
    return RowReport(row, verdict, tuple(text for _, text in judgements), facts)


def breach_names(breach: int) -> list[str]:
    """Names of a row's breaches, the value left behind or lost first and duplicates last."""
    return names(Breach(breach))[::-1]


def _contract_facts(judged: JudgedCase, row: int) -> Iterator[tuple[str, Any]]:
    paths = (judged.a, judged.b)
    broken = Breach(0)
    for path in paths:
        broken |= Breach(int(path.breach[row]))
        yield f"breaches_{path.name}", breach_names(int(path.breach[row]))
    yield "breach", _main_breach(broken)
    yield "invalid_paths", [path.name for path in paths if path.invalid[row]]
    flags = [names(RowFlag(int(path.flags[row]) & int(FAILING))) for path in paths]
    inputs = names(RowFlag(int(judged.input_flags[row])))
    yield "flags", list(dict.fromkeys([*flags[0], *flags[1], *inputs]))
    yield "flags_a", flags[0]
    yield "flags_b", flags[1]
    yield "input_flags", inputs


def _main_breach(broken: Breach) -> str | None:
    """The breach that names the bug best: poison explains the others, an id says more than NaN."""
    order = (
        Breach.POISON_SURVIVES,
        Breach.ID_OUT_OF_RANGE,
        Breach.DUPLICATE_ID,
        Breach.NONFINITE_WEIGHT,
    )
    return next((str(bit.name).lower() for bit in order if bit in broken), None)


def _set_facts(judged: JudgedCase, row: int) -> dict[str, Any]:
    sets, a, b = judged.sets, judged.baseline, judged.b
    facts: dict[str, Any] = {
        "set_class": str(judged.set_class(row)),
        "set_equal": bool(judged.set_equal[row]),
        "order_equal": bool((a.ids[row] == b.ids[row]).all()),
        "dropped": [],
        "added": [],
        "n_swapped": 0,
        "gap_ulp": None,
        "gap_abs": None,
    }
    if facts["set_class"] == SetClass.IDENTICAL and not facts["order_equal"]:
        # Shared slots stand elsewhere.
        facts["set_class"] = str(SetClass.REORDERED)
    if judged.uneven[row]:
        facts["set_class"] = str(SetClass.MULTI_SWAP)
        facts["dropped"] = sorted(set(a.ids[row].tolist()) - set(b.ids[row].tolist()))
        facts["added"] = sorted(set(b.ids[row].tolist()) - set(a.ids[row].tolist()))
        facts["n_swapped"] = max(len(facts["dropped"]), len(facts["added"]))
    at = np.flatnonzero(sets.rows == row)
    if not len(at) or judged.uneven[row]:
        return facts
    i = int(at[0])
    dropped = sorted(e for e in sets.dropped[i].tolist() if e >= 0)
    added = sorted(e for e in sets.added[i].tolist() if e >= 0)
    gap, group_gap = int(sets.gap_ulp[i]), int(sets.group_gap_ulp[i])
    facts.update(
        dropped=dropped,
        added=added,
        n_swapped=int(sets.n_swapped[i]),
        gap_ulp=gap if gap >= 0 else None,
        gap_abs=float(sets.gap_abs[i]),
        gap_ulp_max_pair=gap if gap >= 0 else None,
        group_gap_ulp=group_gap if group_gap >= 0 else None,
    )
    facts.update(_other_gaps(a, row, dropped, added))
    return facts


def _other_gaps(a: JudgedPath, row: int, dropped: list[int], added: list[int]) -> dict[str, Any]:
    """Gaps on other grids than the biased FP32 score, between the best of either side."""
    keys = a.reference.keys[row]
    out = max(dropped, key=lambda e: float(keys[e]))
    into = max(added, key=lambda e: float(keys[e]))
    pair = np.array([out, into])
    logits, scores = a.logits[row, pair], a.reference.scores[row, pair]
    narrow = logits.astype(BFLOAT16)
    naive = keys[pair].view(np.int32).astype(np.int64)
    with np.errstate(invalid="ignore"):
        return {
            "logit_gap": float(np.abs(logits[0].astype(np.float64) - logits[1])),
            "unbiased_gap": float(np.abs(scores[0] - scores[1])),
            "gap_logit_ulp": ulp_distance(logits[:1], logits[1:]).max(),
            "gap_bf16_logit_ulp": ulp_distance(narrow[:1], narrow[1:]).max(),
            # What a comparison of raw bits would call the distance.
            "naive_bit_ulp": int(abs(naive[0] - naive[1])),
        }


def _weight_facts(judged: JudgedCase, row: int) -> dict[str, Any]:
    a, b = judged.baseline, judged.b
    facts: dict[str, Any] = {"weight_class": None, "max_weight_ulp": None, "ratio": None}
    if a.weights is None or b.weights is None:
        return facts
    if judged.weights_compared[row]:
        found = judged.weights
        kind = WEIGHT_CLASSES[int(found.weight_class[row])]
        ratio, steps = float(found.ratio[row]), int(found.max_ulp[row])
    else:
        left, right = paired_weights(a, b, row)
        pasted = classify_weights(left, right, judged.policy.weight_budget_ulp)
        kind = WEIGHT_CLASSES[int(pasted.weight_class[0])]
        ratio, steps = float("nan"), int(pasted.max_ulp[0])
    if judged.weights_compared[row] or (not judged.invalid[row] and kind in _HARMLESS_WEIGHTS):
        facts["weight_class"] = str(kind)
    facts["max_weight_ulp"] = steps if steps >= 0 else None
    facts["ratio"] = None if np.isnan(ratio) else ratio
    for path in (a, b):
        if path.weights is not None:
            low = path.weights[row].view(np.uint32) & np.uint32(0xFFFF)
            facts[f"{path.name}_representable_in_bf16"] = bool((low == 0).all())
    return facts


def paired_weights(a: JudgedPath, b: JudgedPath, row: int) -> tuple[F32, F32]:
    """Weights [1, slot] of a row whose sets differ, put side by side.

    Common experts meet each other; the rest meets in order of size. A row that is invalid is
    compared slot by slot.
    """
    assert a.weights is not None
    assert b.weights is not None
    if a.invalid[row] or b.invalid[row]:
        return a.weights[row : row + 1], b.weights[row : row + 1]
    common = np.intersect1d(a.ids[row], b.ids[row])
    sides = []
    for path, weights in ((a, a.weights), (b, b.weights)):
        ids = path.ids[row]
        shared = np.isin(ids, common)
        of_common = weights[row][shared][np.argsort(ids[shared])]
        sides.append(np.concatenate([of_common, np.sort(weights[row][~shared])])[None])
    return sides[0], sides[1]


def _reference_facts(judged: JudgedCase, row: int) -> dict[str, Any]:
    reference = judged.b.reference
    boundary = int(reference.boundary_ulp[row])
    return {
        "reference_ids": reference.ids[row].tolist(),
        "fp64_top_ids": reference.ids64[row].tolist(),
        "boundary_ulp": boundary if boundary >= 0 else None,
        "a_matches_reference": not bool(judged.a.differs[row] or judged.a.wrong[row]),
        "b_matches_reference": not bool(judged.b.differs[row] or judged.b.wrong[row]),
    }


def _judge(judged: JudgedCase, row: int, facts: dict[str, Any]) -> Iterator[tuple[Verdict, str]]:
    """Yield each reason that the row is not a plain pass."""
    axis = judged.case.leading_axis
    for path in (judged.a, judged.b):
        if path.invalid[row]:
            broken = ", ".join(facts[f"breaches_{path.name}"])
            ids = path.ids[row].tolist()
            yield (
                Verdict.INVALID,
                f"{axis} {row}: path {path.name} returns ids {ids}: {broken}; "
                "its sets cannot be compared",
            )
        if facts[f"flags_{path.name}"]:
            flags = ", ".join(facts[f"flags_{path.name}"])
            yield Verdict.FAIL, f"{axis} {row}: path {path.name} fails by {flags}"
    if judged.invalid[row]:
        return
    if judged.uneven[row]:
        yield (
            Verdict.FAIL,
            f"{axis} {row}: a path does not hold {judged.case.n_shared} shared expert ids, "
            f"which start at {judged.case.experts}",
        )
        return
    if judged.own_reference and judged.a.set_wrong[row]:
        ids = judged.a.ids[row].tolist()
        yield Verdict.FAIL, f"{axis} {row}: path a returns ids {ids}, the reference other ones"
    yield from _judge_sets(judged, row, facts)
    if facts["weight_class"] is not None and facts["set_equal"]:
        kind = WeightClass(facts["weight_class"])
        if kind not in _HARMLESS_WEIGHTS:
            yield Verdict.FAIL, weight_text(judged, row, kind, facts)


def _judge_sets(
    judged: JudgedCase, row: int, facts: dict[str, Any]
) -> Iterator[tuple[Verdict, str]]:
    policy, kind = judged.policy, SetClass(facts["set_class"])
    lower_id = policy.tie_contract == "lower_id"
    verdicts = {
        SetClass.EXACT_TIE: Verdict.FAIL if lower_id else Verdict.DISCLOSE,
        SetClass.GROUP_TIE: Verdict.FAIL if lower_id else Verdict.DISCLOSE,
        SetClass.TIE_GROUP: Verdict.FAIL if policy.one_for_one or lower_id else Verdict.DISCLOSE,
        SetClass.NEAR_TIE: Verdict.DISCLOSE,
        SetClass.NOISE_SWAP: Verdict.DISCLOSE,
        SetClass.FAR_SWAP: Verdict.FAIL,
        SetClass.MULTI_SWAP: Verdict.FAIL,
    }
    if kind in verdicts:
        yield verdicts[kind], set_text(judged, row, kind, facts)
