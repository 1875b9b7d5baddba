"""Answer why two paths differ: the one call behind ``neartie why``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ...banks.bank import Bank
from ...kernels import contract
from ..compare import BASELINE, CANDIDATE
from ..evidence.load import Evidence
from .asked import DEFAULT_ROWS, Asked, asked
from .evidence_section import evidence_sections
from .exchange_section import exchange_sections
from .pair_sections import pair_sections
from .schedule_section import schedule_sections
from .section import NotRun, Section, WhyReport


def refused_sections(asked: Asked) -> Iterator[Section]:
    """Yield a section for each path of the evidence that cannot be made here."""
    for role, reason in asked.refused.items():
        yield NotRun(f"The {role} {asked.names[role]}", reason)


SECTIONS: Final[tuple[Callable[[Asked], Iterable[Section]], ...]] = (
    evidence_sections,
    refused_sections,
    schedule_sections,
    pair_sections,
    exchange_sections,
)
"""What is answered, in the order of the text. The place to add a section."""


def why(
    target: str | Bank | Evidence,
    *,
    baseline: str | contract.Path | None = None,
    candidate: str | contract.Path | None = None,
    ranks: int | None = None,
    width: int | None = None,
    rows: int = DEFAULT_ROWS,
    device: str | None = None,
) -> WhyReport:
    """Return which schedule, which order and which stage two paths' differences come from.

    Args:
        target: a bank, or a spec of banks as ``run_audit`` takes; or evidence, or its directory:
            paths, ranks and width are then those of the audit, and its banks are run again.
        baseline: the path that exists; None is the evidence's, or ``general``.
        candidate: the path that would replace it; None is the evidence's, or ``route``.
        ranks: tensor-parallel ranks; None is the evidence's or the bank's, or 8.
        width: rows per launch; None is the evidence's first width, or 9.
        rows: rows of each bank, the first ones.
        device: ``cpu`` or ``cuda``; None is the evidence's, or the CPU.

    Raises:
        InputError: a bank, path or number that is refused. Nothing was run.
    """
    question = asked(
        target,
        baseline=baseline,
        candidate=candidate,
        ranks=ranks,
        width=width,
        rows=rows,
        device=device,
    )
    return WhyReport(
        target=question.target,
        baseline=question.names[BASELINE],
        candidate=question.names[CANDIDATE],
        ranks=question.ranks,
        width=question.width,
        sections=tuple(section for make in SECTIONS for section in make(question)),
    )
