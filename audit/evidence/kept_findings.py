"""Which batch findings of stored evidence an audit under other limits would make too.

A finding is searched for in the rows that the limits call wrong. A smaller window, perturbation or
weight budget only adds to those rows; which of the searches are sure to end alike is said here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from ..counts import Histograms
from ..metrics.findings import Finding
from ..observed import BatchFinding
from ..policy import Policy

_WHATEVER_THE_LIMITS: Final = frozenset(
    {
        Finding.RANK_DISAGREEMENT,
        Finding.NEVER_SELECTED,
        Finding.ALWAYS_SELECTED,
        Finding.NONDETERMINISTIC,
        Finding.WIDTH_DEPENDENT,
        Finding.REFERENCE_INVALID,
        Finding.NONFINITE_OUTPUT,
        Finding.WRONG_LOGITS,
        Finding.COLUMNS_DROPPED,
        Finding.SCHEDULE_MISMATCH,
    }
)
"""Made of outputs' bits, counts of ids, logits or latents; no limit has a part in them."""
_MADE: Final = frozenset(Finding)
"""Every other name is that of an explanation of the failing rows."""


@dataclass(frozen=True, slots=True)
class Change:
    """How other limits call rows wrong.

    Attributes:
        window: window and perturbation; ``narrower`` where neither is wider, ``same`` where no row
            lies between the two.
        budget: the weight budget.
        contract: whether another tie contract judges some row otherwise.
    """

    window: Literal["same", "narrower", "wider"] = "same"
    budget: Literal["same", "smaller", "larger"] = "same"
    contract: bool = False


def split(
    findings: Iterable[BatchFinding], change: Change, histograms: Histograms, policy: Policy
) -> tuple[list[BatchFinding], list[BatchFinding]]:
    """Return the findings that hold under the policy's limits, and those that may not."""
    held: list[BatchFinding] = []
    doubtful: list[BatchFinding] = []
    for finding in findings:
        (held if _holds(finding, change, histograms, policy) else doubtful).append(finding)
    return held, doubtful


def _holds(finding: BatchFinding, change: Change, histograms: Histograms, policy: Policy) -> bool:
    """Whether an audit under the policy is sure to make the finding, on as many rows or more."""
    name = finding.name
    if name in _WHATEVER_THE_LIMITS:
        return True
    if change.contract and name not in _MADE:
        return False
    if change.window != "same" and not (
        # The rows are those with a weight beyond the budget.
        name == Finding.WEIGHTS_IN_OTHER_SLOTS
        # Two paths that agree on a wrong set: wrong sets are still wrong under a narrower window.
        or (name == Finding.ORACLE_ECHO and change.window == "narrower")
    ):
        return False
    return change.budget == "same" or (
        # The map is read off the rows whose sets are far apart.
        name == Finding.ID_PERMUTATION
        # Agreement includes the weights, and the largest distance of any is stored.
        or (
            name == Finding.ORACLE_ECHO
            and change.budget == "smaller"
            and largest_weight(histograms, finding.bank, finding.width) <= policy.weight_budget_ulp
        )
    )


def largest_weight(histograms: Histograms, bank: str, width: int | None) -> int:
    """Return the largest distance of one expert's weight on rows with equal sets, FP32 ULP."""
    lines = histograms.lines(bank, width, "worst_weight")
    return max((int(line["steps"]) for line in lines), default=0)


def doubt_text(doubtful: Iterable[BatchFinding], recorded: str, wanted: str) -> list[str]:
    """Return what is said of findings that other limits may not make; nothing without any."""
    names = ", ".join(sorted({finding.name for finding in doubtful}))
    if not names:
        return []
    return [f"{names} was found under {recorded}: a new audit is needed to tell under {wanted}"]
