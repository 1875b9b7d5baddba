"""Rows pasted from a bug report, classified without a bank: what kind of difference, and why."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...banks.errors import printable
from ...kernels.reference import ReferenceError
from ..metrics.findings import DISCLOSED, Finding
from ..metrics.flush import has_subnormals
from ..metrics.weights import WEIGHT_CLASSES
from ..policy import Policy
from .case_causes import add_hypotheses, bias_facts, cause_texts
from .case_explanation import case_explanations, explanation_text
from .case_findings import find
from .case_found import Found
from .case_loading import load_cases
from .case_rows import RowReport, Verdict, report_row, worst
from .cases import Case, ReductionCase
from .explain_reduction import explain_reduction
from .judged_case import JudgedCase, judge_case
from .judged_path import SET_CLASSES

_DEFAULT_POLICY: Final = Policy()


@dataclass(frozen=True, slots=True)
class CaseReport:
    """What is told of one case.

    Attributes:
        id: of the case.
        verdict: pass, disclose, fail or invalid.
        findings: names of the findings, the most specific first.
        reasons: one plain sentence for each thing that is not a plain pass.
        facts: everything else, by the words of the case format; JSON values only.
    """

    id: str
    verdict: Verdict
    findings: tuple[str, ...]
    reasons: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The report by the words of the case format."""
        return {
            "id": self.id,
            "verdict": str(self.verdict),
            "findings": list(self.findings),
            "reasons": list(self.reasons),
            **self.facts,
        }


@dataclass(frozen=True, slots=True)
class ExplainResult:
    """Reports in the order of the cases."""

    cases: tuple[CaseReport, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all cases."""
        return worst(case.verdict for case in self.cases)

    @property
    def exit_status(self) -> int:
        """0 where every case passes or is to be disclosed, else 1."""
        return int(self.verdict in (Verdict.FAIL, Verdict.INVALID))

    def as_dict(self) -> dict[str, Any]:
        """``{"cases": [...]}`` of JSON values; what is not finite is null."""
        strict: dict[str, Any] = _strict({"cases": [case.as_dict() for case in self.cases]})
        return strict

    def to_json(self) -> str:
        """``as_dict`` as text that any JSON parser reads."""
        return json.dumps(self.as_dict(), indent=1, allow_nan=False)

    def text(self) -> str:
        """The reports for a terminal, a paragraph each; an id's second case is called ``ID #2``."""
        paragraphs = []
        seen: Counter[str] = Counter()
        for case in self.cases:
            seen[case.id] += 1
            again = f" #{seen[case.id]}" if seen[case.id] > 1 else ""
            head = f"{printable(case.id)}{again}: {case.verdict.upper()}"
            if case.findings:
                head += f" ({', '.join(case.findings)})"
            reasons = (f"  {printable(reason)}" for reason in case.reasons)
            tables = (
                f"  {printable(line)}"
                for name, found in case.facts.get("explanations", {}).items()
                for line in explanation_text(name, found)
            )
            paragraphs.append("\n".join([head, *reasons, *tables]))
        return "\n\n".join(paragraphs) + "\n"


def explain_rows(
    cases: Path | str | Mapping[str, Any] | Sequence[Any],
    policy: Policy = _DEFAULT_POLICY,
) -> ExplainResult:
    """Return, for each pasted case, what kind of difference it shows and whether it may stand.

    Args:
        cases: a file, JSON text, one case, or a list of cases (see ``tests/data/router_cases.md``).
        policy: window, budget and contracts to judge by.

    Raises:
        InputError: the input is not JSON or breaks the format; it names the case and the field.

    Example:
        >>> tie = {"id": "tie", "logits": [1.0, 1.0], "top_k": 1,
        ...        "scoring": {"function": "sigmoid"}, "a": {"ids": [0]}, "b": {"ids": [1]}}
        >>> explain_rows(tie).cases[0].facts["set_class"]
        'exact_tie'
    """
    return ExplainResult(tuple(_explain(case, policy) for case in load_cases(cases)))


def _explain(case: Case | ReductionCase, policy: Policy) -> CaseReport:
    if isinstance(case, ReductionCase):
        report = explain_reduction(case, policy)
        return CaseReport(case.id, report.verdict, report.findings, report.reasons, report.facts)
    try:
        return _explain_routing(case, policy)
    except ReferenceError as error:
        facts = {"rows": [], "invalid_paths": [], "finding": str(Finding.REFERENCE_INVALID)}
        names = (str(Finding.REFERENCE_INVALID),)
        return CaseReport(case.id, Verdict.FAIL, names, (str(error),), facts)


def _explain_routing(case: Case, policy: Policy) -> CaseReport:
    judged, rows, found = _judge(case, policy)
    verdict = _verdict(rows, found)
    lower_id = _verdict(*_judge(case, _changed(policy, tie_contract="lower_id"))[1:])
    flushed = _verdict(*_judge(case, _changed(policy, flush_to_zero=True))[1:])
    reasons = [f"{one.name}: {one.text}" for one in found]
    reasons += [reason for row in rows for reason in row.reasons]
    row_facts = [_row_json(row, found) for row in rows]
    add_hypotheses(judged, row_facts)
    reasons += cause_texts(case, row_facts)
    if verdict == Verdict.FAIL and flushed in (Verdict.PASS, Verdict.DISCLOSE):
        reasons.append("the difference lies in subnormals that one path flushes to zero")
    names = tuple(dict.fromkeys(str(one.name) for one in found))
    facts = {
        "verdict_if_tie_break_lower_id": str(lower_id),
        "verdict_if_flush_to_zero_declared": str(flushed),
        "finding": names[0] if names else None,
        "finding_details": [_found_json(one) for one in found],
        "invalid_paths": [p.name for p in (judged.a, judged.b) if p.invalid.any()],
        "unknown_keys": list(case.unknown_keys),
        **bias_facts(case),
        **_summary(row_facts),
    }
    for one in found:
        facts.update({k: v for k, v in one.facts.items() if k not in facts})
    explained = case_explanations(judged, row_facts)
    facts["explanations"] = {name: found.as_dict() for name, found in explained}
    facts["rows"] = row_facts
    return CaseReport(case.id, verdict, names, tuple(reasons), facts)


def _changed(policy: Policy, **changes: Any) -> Policy:
    return policy.model_copy(update=changes)


def _judge(case: Case, policy: Policy) -> tuple[JudgedCase, list[RowReport], list[Found]]:
    plain = judge_case(case, _changed(policy, flush_to_zero=False))
    if not policy.flush_to_zero or not _has_subnormals(plain):
        return plain, _report_rows(plain), find(plain)
    judged = judge_case(case, policy)
    pairs = zip(_report_rows(judged), _report_rows(plain), strict=True)
    return judged, [_disclosed(row, of_plain) for row, of_plain in pairs], find(judged)


def _report_rows(judged: JudgedCase) -> list[RowReport]:
    return [report_row(judged, row) for row in range(judged.case.rows)]


def _has_subnormals(plain: JudgedCase) -> bool:
    case = plain.case
    arrays = [case.logits_a, case.logits_b, case.bias, case.a.weights, case.b.weights]
    for path in (plain.a, plain.b):
        arrays += [path.reference.scores32, path.reference.keys]
    return has_subnormals(*arrays)


def _disclosed(row: RowReport, plain: RowReport) -> RowReport:
    """A row that passes only because subnormals may be flushed is disclosed."""
    if row.verdict != Verdict.PASS or plain.verdict == Verdict.PASS:
        return row
    reason = f"row {row.row}: the paths differ only by subnormals flushed to zero"
    return replace(row, verdict=Verdict.DISCLOSE, reasons=(*row.reasons, reason))


def _verdict(rows: Iterable[RowReport], found: Iterable[Found]) -> Verdict:
    of_findings = (Verdict.DISCLOSE if one.name in DISCLOSED else Verdict.FAIL for one in found)
    return worst(iter([*(row.verdict for row in rows), *of_findings]))


def _row_json(row: RowReport, found: list[Found]) -> dict[str, Any]:
    touching = [one for one in found if row.row in one.rows]
    verdict = _verdict([row], touching)
    names = list(dict.fromkeys(str(one.name) for one in touching))
    return {**row.facts, "verdict": str(verdict), "findings": names}


def _found_json(one: Found) -> dict[str, Any]:
    rows = list(one.rows)
    return {"finding": str(one.name), "path": one.path, "rows": rows, "text": one.text, **one.facts}


_WORST_OF: Final = {
    "set_class": [str(kind) for kind in SET_CLASSES],
    "weight_class": [str(kind) for kind in WEIGHT_CLASSES],
}
_ALL_OF: Final = ("set_equal", "order_equal", "a_representable_in_bf16", "b_representable_in_bf16")
_LARGEST_OF: Final = ("gap_ulp", "max_weight_ulp", "n_swapped", "gap_abs")
_UNION_OF: Final = ("flags", "flags_a", "flags_b", "input_flags", "breaches_a", "breaches_b")


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Facts of the case: the row's where there is one, else the worst or the sum of the rows'."""
    bad = [f["row"] for f in rows if f["verdict"] in (Verdict.FAIL, Verdict.INVALID)]
    summary: dict[str, Any] = {
        "bad_rows": bad,
        "first_bad_row": bad[0] if bad else None,
    }
    if len(rows) == 1:
        kept = ("row", "verdict", "findings", "invalid_paths")
        return summary | {k: v for k, v in rows[0].items() if k not in kept}
    for key, order in _WORST_OF.items():
        values = [f[key] for f in rows if f[key] is not None]
        summary[key] = max(values, key=order.index, default=None)
    for key in _ALL_OF:
        if all(key in f for f in rows):
            summary[key] = all(f[key] for f in rows)
    for key in _LARGEST_OF:
        summary[key] = max((f[key] for f in rows if f[key] is not None), default=None)
    for key in _UNION_OF:
        summary[key] = list(dict.fromkeys(name for f in rows for name in f[key]))
    summary["breach"] = next((f["breach"] for f in rows if f["breach"]), None)
    ratios = {f["ratio"] for f in rows if f["ratio"] is not None}
    summary["ratio"] = max(ratios) if ratios else None
    for name in ("a", "b"):
        of_bad = [rows[row][f"hypotheses_{name}"] for row in bad]
        common = [h for h in of_bad[0] if all(h in other for other in of_bad)] if of_bad else []
        summary[f"hypotheses_{name}"] = common
        summary[f"matches_hypothesis_{name}"] = common[0] if common else None
    return summary


def _strict(value: Any) -> Any:
    """JSON values of a nested value: a number that is not finite becomes null."""
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): _strict(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(v) for v in value]
    return value
