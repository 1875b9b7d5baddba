"""The relative RMS triangle as checks: each tensor of the front against what its paths declare.

The latent is held against the declared schedules, the logits against what an FP32 sum in any order
can be. Both were judged row by row when the audit ran; a check fails where its findings say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..metrics.findings import Finding
from ..record import AuditRecord
from ..value_table import PAIRS
from ..verdict import State
from .check import Check, check_of, finding_reasons, findings_at
from .figures import schedule_line

TRIANGLE_METRICS: Final = {"triangle_latent": "latent", "triangle_logits": "logits"}
"""Tensors by the metric of their check. The weights' own check is ``weight_budget``."""

# Findings that say a tensor's values are not what was declared.
_FINDINGS: Final = {
    "latent": (Finding.SCHEDULE_MISMATCH,),
    "logits": (Finding.WRONG_LOGITS, Finding.COLUMNS_DROPPED),
}
_WORDS: Final = {
    "candidate_reference": "candidate - FP64",
    "baseline_reference": "baseline - FP64",
    "candidate_baseline": "apart",
}

Sides = Mapping[str, float | None]


def triangle_checks(result: AuditRecord) -> dict[tuple[str, int], list[Check]]:
    """Return the checks of each (bank, width) that was asked for.

    Sources of the gate that an audit started have none: a gate compares no values before the
    select.
    """
    record, sides = result.record, _sides(result)
    stages = {bank["name"]: bank["stage"] for bank in record["banks"]}
    return {
        (item["bank"], item["width"]): list(_checks(record, item, stages[item["bank"]], sides))
        for item in record["coverage"]
        if item["bank"] in stages
    }


def _sides(result: AuditRecord) -> dict[tuple[str, int, str], dict[str, float | None]]:
    """By (bank, width, tensor): the relative RMS of each pair, over all ranks."""
    sides: dict[tuple[str, int, str], dict[str, float | None]] = {}
    for line in result.values.to_pylist():
        if line["rank"] is None:
            place = line["bank"], line["width"], line["tensor"]
            sides.setdefault(place, {})[line["pair"]] = line["relative_rms"]
    return sides


def _checks(
    record: Mapping[str, Any],
    item: Mapping[str, Any],
    stage: str,
    sides: Mapping[tuple[str, int, str], Sides],
) -> Iterator[Check]:
    bank, width = item["bank"], item["width"]
    for metric, tensor in TRIANGLE_METRICS.items():
        if not item["ran"]:
            yield Check(width, bank, metric, State.NOT_RUN, item["reason"])
            continue
        found = sides.get((bank, width, tensor))
        figures = "" if found is None else _rms_text(found)
        wrong = [f for f in findings_at(record, bank, width) if _is_about(f, tensor)]
        why = None if wrong else _not_judged(record, stage, tensor, found is not None)
        if why is None:
            reasons = finding_reasons(wrong) or _undecided(record, tensor)
            yield check_of(width, bank, metric, reasons, figures)
        else:
            text = "\n".join(text for text in (why, figures) if text)
            yield Check(width, bank, metric, State.NOT_RUN, text)


def _is_about(finding: Mapping[str, Any], tensor: str) -> bool:
    """Whether a finding speaks of a tensor's values; one of several tensors begins with its."""
    nonfinite = finding["name"] == Finding.NONFINITE_OUTPUT and finding["text"].startswith(tensor)
    return nonfinite or finding["name"] in _FINDINGS[tensor]


def _not_judged(record: Mapping[str, Any], stage: str, tensor: str, compared: bool) -> str | None:
    """Why a tensor was held against nothing, where no reason of the verdict says so."""
    if stage != "hidden":
        # What a path declares is run on the hidden state alone.
        told = "was held against nothing" if compared else "was not compared"
        return f"{tensor} {told}: the rows of this bank start at {stage}"
    if _undecided(record, tensor):
        return None
    if not compared:
        return f"neither path shows its {tensor}"
    fit = record["schedule"]
    if tensor == "latent" and (fit is None or fit["fits"] is None):
        return schedule_line(record) or "no schedule was predicted"
    return None


def _undecided(record: Mapping[str, Any], tensor: str) -> list[Mapping[str, Any]]:
    """The reasons, of all banks, why the verdict says nothing of a tensor."""
    return [
        reason
        for reason in record["verdict"]["reasons"]
        if (reason["code"] == "not_compared" and reason["text"].startswith(tensor))
        or (reason["code"] == "no_schedule" and tensor == "latent")
    ]


def _rms_text(sides: Sides) -> str:
    shown = (
        f"{_WORDS[pair]} {'no number' if sides[pair] is None else f'{sides[pair]:.3e}'}"
        for pair in PAIRS
        if pair in sides
    )
    return f"relative RMS over all ranks: {', '.join(shown)}"
