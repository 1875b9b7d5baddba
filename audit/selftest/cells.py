"""One cell of the self-test: one fault, or one clean pair, at one width and rank count."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from ...kernels.contract import Path
from ...kernels.registry import make_path
from ..run import run_audit
from ..verdict import State
from .fault import Fault, FaultyPath
from .scenes import Scene


class Outcome(StrEnum):
    """What became of a planted fault, the best first."""

    NAMED = "caught and named"
    MISNAMED = "caught but misnamed"
    MISSED = "missed"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Cell:
    """One audit of the self-test. ``fault`` None: the clean pair of the scene.

    Attributes:
        scene: name of the scene.
        fault: name of the fault, or None.
        width, ranks: what the audit runs at.
    """

    scene: str
    fault: str | None
    width: int
    ranks: int


@dataclass(frozen=True)
class CellResult:
    """What one audit said.

    Attributes:
        cell: which one.
        outcome: of a fault; None for a clean pair.
        reason: why it is not applicable; None where it is.
        state: the verdict's state; None where nothing was run.
        failing: codes of the reasons that fail.
        other: codes of the other reasons.
        misleading: codes among them of causes that the fault is not.
    """

    cell: Cell
    outcome: Outcome | None
    reason: str | None = None
    state: str | None = None
    failing: tuple[str, ...] = ()
    other: tuple[str, ...] = ()
    misleading: tuple[str, ...] = ()

    @property
    def false_alarm(self) -> bool:
        """Whether a clean pair fails."""
        return self.outcome is None and bool(self.failing)


def run_fault(fault: Fault, scene: Scene, width: int, ranks: int) -> CellResult:
    """Plant the fault in the candidate (or in both paths) and audit the pair."""
    cell = Cell(scene.name, fault.name, width, ranks)
    reason = fault.cannot_show(width, ranks)
    if reason is not None:
        return CellResult(cell, Outcome.NOT_APPLICABLE, reason)
    baseline, candidate = (_path(spec) for spec in (scene.baseline, scene.candidate))
    planted: tuple[Path, Path] = (
        FaultyPath(baseline, fault.make()) if fault.in_both else baseline,
        FaultyPath(candidate, fault.make()),
    )
    state, failing, other = _verdict(scene, planted, fault.widths(width), ranks)
    named = any(fault.is_named_by(code) for code in (*failing, *other))
    outcome = Outcome.MISSED
    if failing:
        outcome = Outcome.NAMED if named else Outcome.MISNAMED
    misleading = tuple(code for code in (*failing, *other) if fault.is_misled_by(code))
    return CellResult(cell, outcome, None, state, failing, other, misleading)


def run_clean(scene: Scene, width: int, ranks: int) -> CellResult:
    """Audit the scene's clean pair; whatever fails there is a false alarm."""
    pair = (_path(scene.baseline), _path(scene.candidate))
    state, failing, other = _verdict(scene, pair, (width,), ranks)
    return CellResult(Cell(scene.name, None, width, ranks), None, None, state, failing, other)


def _verdict(
    scene: Scene, pair: tuple[Path, Path], widths: tuple[int, ...], ranks: int
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """State, failing codes and other codes of one audit, without a gate: it adds no detector."""
    result = run_audit(
        scene.make(max(widths), ranks),
        baseline=pair[0],
        candidate=pair[1],
        rows=widths,
        ranks=ranks,
        policy=scene.policy,
        gate=False,
        command="neartie selftest",
    )
    reasons = result.verdict.reasons
    failing = dict.fromkeys(str(r.code) for r in reasons if r.state is State.FAIL)
    other = dict.fromkeys(str(r.code) for r in reasons if r.state is not State.FAIL)
    return str(result.verdict.state), tuple(failing), tuple(other)


@cache
def _path(spec: str) -> Path:
    return make_path(spec)
