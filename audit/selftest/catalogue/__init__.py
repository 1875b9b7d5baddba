"""Every fault that ``neartie selftest`` plants, by the stage that has it."""

from __future__ import annotations

from typing import Final

from ..fault import Fault
from . import batch, exchange, project, score, select, weights

STAGES: Final[dict[str, tuple[Fault, ...]]] = {
    "project": project.FAULTS,
    "exchange": exchange.FAULTS,
    "score": score.FAULTS,
    "select": select.FAULTS,
    "weights": weights.FAULTS,
    "batch": batch.FAULTS,
}
"""Faults by stage; those of ``batch`` need several rows, launches, runs, ranks or widths."""

CATALOGUE: Final[tuple[Fault, ...]] = tuple(fault for faults in STAGES.values() for fault in faults)
"""All of them; names are unique."""
