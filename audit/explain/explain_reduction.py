"""A reduction case: which order of summation gives each path's sum, and whether it is right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..metrics.findings import DISCLOSED, Finding
from ..metrics.ulp import ulp_distance
from ..metrics.weights import WeightClass
from ..policy import Policy
from .case_rows import Verdict, worst
from .cases import ReductionCase
from .reduction_orders import (
    DTYPES,
    error_bound,
    exact_sum,
    matching_orders,
    same_sum,
    wrong_sum_hypotheses,
)


@dataclass(frozen=True, slots=True)
class ReductionReport:
    """Verdict, findings, reasons and facts of a reduction case, as ``CaseReport`` has them."""

    verdict: Verdict
    findings: tuple[str, ...]
    reasons: tuple[str, ...]
    facts: dict[str, Any]


def explain_reduction(case: ReductionCase, policy: Policy) -> ReductionReport:
    """Return what can be told of two paths' sums of the same partial sums.

    Two sums that differ are both right where each is the sum in some order or lies within the
    error that the declared accumulation may make in any order: ``reduction_order``, disclosed.
    """
    rows = [_row(case, row) for row in range(len(case.partials))]
    verdicts: list[Verdict] = []
    findings: list[Finding] = []
    reasons: list[str] = []
    for facts in rows:
        for verdict, finding, text in _judge(facts, case.accumulate):
            verdicts.append(verdict)
            reasons.append(text)
            facts["verdict"] = str(worst(iter([Verdict(facts["verdict"]), verdict])))
            if finding is not None:
                findings.append(finding)
                facts["findings"].append(str(finding))
    for finding, text, touched in _across(case):
        findings.insert(0, finding)
        reasons.insert(0, f"{finding}: {text}")
        verdicts.append(Verdict.DISCLOSE if finding in DISCLOSED else Verdict.FAIL)
        for row in touched:
            rows[row]["verdict"] = str(Verdict.FAIL)
            rows[row]["findings"].insert(0, str(finding))
    names = tuple(dict.fromkeys(str(finding) for finding in findings))
    verdict = worst(iter(verdicts))
    return ReductionReport(verdict, names, tuple(reasons), _facts(case, rows, names, verdict))


def _facts(
    case: ReductionCase, rows: list[dict[str, Any]], names: tuple[str, ...], verdict: Verdict
) -> dict[str, Any]:
    bad = [f["row"] for f in rows if f["verdict"] in (Verdict.FAIL, Verdict.INVALID)]
    facts: dict[str, Any] = {
        "verdict_if_tie_break_lower_id": str(verdict),
        "verdict_if_flush_to_zero_declared": str(verdict),
        "finding": names[0] if names else None,
        "invalid_paths": [
            name
            for name, sums in (("a", case.sums_a), ("b", case.sums_b))
            if not np.isfinite(sums).all() and np.isfinite(case.partials).all()
        ],
        "unknown_keys": list(case.unknown_keys),
        "accumulate": case.accumulate,
        "bad_rows": bad,
        "first_bad_row": bad[0] if bad else None,
        "max_weight_ulp": max(
            (f["max_weight_ulp"] for f in rows if f["max_weight_ulp"] is not None), default=None
        ),
    }
    if len(rows) == 1:
        kept = ("row", "verdict", "findings")
        facts.update({k: v for k, v in rows[0].items() if k not in kept})
    facts["rows"] = rows
    return facts


def _row(case: ReductionCase, row: int) -> dict[str, Any]:
    terms = case.partials[row].tolist()
    exact = exact_sum(terms)
    bound = error_bound(terms, case.accumulate)
    a, b = float(case.sums_a[row]), float(case.sums_b[row])
    facts: dict[str, Any] = {
        "row": row,
        "verdict": str(Verdict.PASS),
        "findings": [],
        "set_class": None,
        "dropped": [],
        "added": [],
        "exact_sum": exact,
        "error_bound": bound,
        "flags": [],
        "breaches_a": [],
        "breaches_b": [],
    }
    for name, got in (("a", a), ("b", b)):
        orders, narrowed = _orders(terms, got, case.accumulate)
        # The pasted decimals may be off by their last digit.
        inside = abs(got - exact) <= bound + abs(exact) * 2.0**-24
        facts[f"sum_{name}"] = got
        facts[f"orders_{name}"] = orders
        facts[f"matches_hypothesis_{name}"] = orders[0] if orders else None
        facts[f"within_bound_{name}"] = bool(inside)
        facts[f"right_{name}"] = bool(orders) or bool(inside)
        facts[f"output_{name}"] = narrowed or case.accumulate
        if not facts[f"right_{name}"]:
            wrong = wrong_sum_hypotheses(terms, got, case.accumulate)
            facts[f"hypotheses_{name}"] = wrong
            facts[f"matches_hypothesis_{name}"] = wrong[0] if wrong else None
        # An order that overflows explains an infinite sum and does not excuse it.
        undefined = np.isnan(got) and not facts[f"right_{name}"]
        if undefined or (np.isfinite(exact) and not np.isfinite(got)):
            facts[f"breaches_{name}"] = ["nonfinite_weight"]
            facts[f"right_{name}"] = False
    equal = same_sum(a, b, "fp32") or a == b
    with np.errstate(over="ignore"):
        distance = ulp_distance(np.array([a], np.float32), np.array([b], np.float32)).max()
    kind = WeightClass.MISMATCH
    if facts["right_a"] and facts["right_b"]:
        same_output = facts["output_a"] == facts["output_b"]
        kind = WeightClass.DRIFT if same_output else WeightClass.NARROWED_BF16
    facts["weight_class"] = str(WeightClass.EQUAL if equal else kind)
    facts["max_weight_ulp"] = distance
    facts["gap_ulp"] = _steps(a, b, case.accumulate)
    facts["bits_equal"] = bool(equal)
    return facts


def _orders(terms: list[float], got: float, dtype: str) -> tuple[list[str], str | None]:
    """Names of the orders that give a sum, and the dtype it was narrowed to behind them."""
    orders = matching_orders(terms, got, dtype)
    if not orders and dtype == "fp32":
        orders = matching_orders(terms, got, dtype, "bf16")
        if orders:
            return [f"{name}_then_bf16" for name in orders], "bf16"
    return orders, None


def _steps(a: float, b: float, dtype: str) -> int | None:
    """Distance of two sums in steps of the accumulation dtype."""
    with np.errstate(over="ignore"):
        one, other = (np.array([v], np.float32).astype(DTYPES[dtype]) for v in (a, b))
    if dtype == "fp64":
        one, other = np.array([a]), np.array([b])
    return ulp_distance(one, other).max()


def _judge(facts: dict[str, Any], accumulate: str) -> Iterator[tuple[Verdict, Finding | None, str]]:
    row = facts["row"]
    for name in ("a", "b"):
        if facts[f"breaches_{name}"]:
            text = f"row {row}: path {name}'s sum is not finite though every partial sum is"
            yield Verdict.INVALID, None, text
        elif not facts[f"right_{name}"]:
            named = facts[f"hypotheses_{name}"]
            cause = f"; it is {named[0]}" if named else ""
            yield (
                Verdict.FAIL,
                None,
                f"row {row}: path {name}'s sum {facts[f'sum_{name}']:.9g} is no {accumulate} sum "
                f"of the partials in any order and further than {facts['error_bound']:.3g} from "
                f"the exact {facts['exact_sum']:.9g}{cause}",
            )
    right = facts["right_a"], facts["right_b"]
    if facts["bits_equal"] and not any(right):
        yield Verdict.FAIL, Finding.ORACLE_ECHO, f"row {row}: both paths hold one wrong sum"
    if facts["weight_class"] == WeightClass.NARROWED_BF16:
        outputs = facts["output_a"], facts["output_b"]
        text = f"row {row}: path a's sum is {outputs[0]}, path b's {outputs[1]}"
        yield Verdict.FAIL, None, text
    elif not facts["bits_equal"] and all(right):
        orders = [facts[f"matches_hypothesis_{n}"] or "an order not named" for n in ("a", "b")]
        yield (
            Verdict.DISCLOSE,
            Finding.REDUCTION_ORDER,
            f"row {row}: both sums are right in {accumulate}, added in other orders "
            f"(a: {orders[0]}, b: {orders[1]}), {facts['max_weight_ulp']} FP32 ULP apart",
        )


def _across(case: ReductionCase) -> Iterator[tuple[Finding, str, list[int]]]:
    """Yield findings between ranks or steps that add the same partial sums."""
    if case.leading_axis == "row":
        return
    name = Finding.RANK_DISAGREEMENT if case.leading_axis == "rank" else Finding.NONDETERMINISTIC
    if len(case.partials) == 1:
        if not same_sum(float(case.sums_a[0]), float(case.sums_b[0]), "fp32"):
            text = f"two {case.leading_axis}s end with different sums of the same partials"
            yield name, text, [0]
        return
    for path, sums in (("a", case.sums_a), ("b", case.sums_b)):
        differs = []
        for row in range(1, len(sums)):
            same = case.partials[row].tobytes() == case.partials[0].tobytes()
            # Ranks hold copies of one row; steps may have other inputs.
            if (same or case.leading_axis == "rank") and not same_sum(
                float(sums[row]), float(sums[0]), "fp32"
            ):
                differs.append(row)
        if differs:
            text = f"path {path}: {case.leading_axis} {differs[0]} ends with another sum than 0"
            yield name, text, differs
