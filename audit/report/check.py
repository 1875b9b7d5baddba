"""One check of a record, and how reasons become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..verdict import State


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        width: rows per launch; None where the check is of all widths.
        bank: name, or ``all banks``.
        metric: what was checked, such as ``set_classes`` or ``verdict``.
        state: what the check comes to; its reasons are in ``text``.
    """

    width: int | None
    bank: str
    metric: str
    state: State
    text: str = ""


def findings_at(record: Mapping[str, Any], bank: str, width: int) -> list[Mapping[str, Any]]:
    """Return the findings of one place of a record."""
    return [f for f in record["findings"] if f["bank"] == bank and f["width"] == width]


def finding_reasons(findings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return state and text of findings, as ``check_of`` takes them."""
    return [
        {
            "state": State.FAIL if f["fails"] else State.PASS_WITH_LIMITATIONS,
            "text": f"{f['name']}: {f['path']}: {f['text']}",
        }
        for f in findings
    ]


def check_of(
    width: int | None,
    bank: str,
    metric: str,
    reasons: Sequence[Mapping[str, Any]],
    figures: str = "",
) -> Check:
    """Return a check with the gravest of its reasons' states; that reason comes first.

    Args:
        width: as the check's.
        bank: as the check's.
        metric: as the check's.
        reasons: ``state`` and ``text`` of each; without one the check passes.
        figures: what is told in any case.
    """
    order = list(State)
    ranked = sorted(reasons, key=lambda reason: order.index(State(reason["state"])))
    state = State(ranked[0]["state"]) if ranked else State.PASS
    lines = [*(reason["text"] for reason in ranked), *([figures] if figures else [])]
    return Check(width, bank, metric, state, "\n".join(lines))
