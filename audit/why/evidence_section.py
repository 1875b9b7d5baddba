"""What an evidence directory's own tables tell of the schedule, without its banks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...kernels.predict import predicted_triangle
from ...kernels.reduce import LIBRARY_ORDERS
from ..compare import BASELINE, CANDIDATE
from ..evidence.check_files import check_files
from ..report.figures import schedule_line
from .asked import Asked
from .attribution import GATHER
from .schedules import candidates
from .section import NotRun, Section

_TITLE: Final = "Reduction schedule by the evidence's own tables"
_SIDES: Final = ("candidate_reference", "baseline_reference", "candidate_baseline")


@dataclass(frozen=True, slots=True)
class StoredTriangle:
    """The pooled latent triangle of a bank, and how far the Gaussian law is off.

    Attributes:
        bank: whose.
        widths: all rows per launch that show these very figures.
        sides: candidate to reference, baseline to reference, candidate to baseline.
        off: largest |ln| of a side against each schedule's prediction for Gaussian partials, the
            nearest first; empty where the candidate does not declare ``gather``.
    """

    bank: str
    widths: tuple[int, ...]
    sides: tuple[float | None, ...]
    off: tuple[tuple[str, float], ...]

    def line(self) -> str:
        """Return the triangle and the distances in one line."""
        sides = " ".join("-" if side is None else f"{side:.4g}" for side in self.sides)
        alike: dict[float, list[str]] = {}
        for name, value in self.off:
            alike.setdefault(value, []).append(name)
        far = "; ".join(f"{', '.join(names)} {value:.2g}" for value, names in alike.items())
        law = f"; off the Gaussian law of {far}" if far else ""
        return f"{self.bank}, width {', '.join(map(str, self.widths))}: triangle {sides}{law}"


@dataclass(frozen=True, slots=True)
class EvidenceSection:
    """The record's own answer, and the stored triangles.

    ``paths``: the audit's baseline and candidate, whatever other paths were asked for.
    """

    paths: tuple[str, str]
    answer: str
    triangles: tuple[StoredTriangle, ...]
    missing: tuple[str, ...]

    @property
    def title(self) -> str:
        """Heading of one line."""
        return f"{_TITLE}: {' against '.join(self.paths)}"

    @property
    def exit_status(self) -> int:
        """3 where banks of the evidence were not found, else 0."""
        return 3 if self.missing else 0

    def lines(self) -> list[str]:
        """Return the record's answer, one line a bank and width, and the banks not found."""
        stored = [one.line() for one in self.triangles]
        return [self.answer, *stored, *(f"not run: {reason}" for reason in self.missing)]

    def figures(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            **dict(zip((BASELINE, CANDIDATE), self.paths, strict=True)),
            "answer": self.answer,
            "triangles": [
                {
                    "bank": one.bank,
                    "widths": list(one.widths),
                    **dict(zip(_SIDES, one.sides, strict=True)),
                    "off": dict(one.off),
                }
                for one in self.triangles
            ],
            "missing": list(self.missing),
        }


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """Files of the evidence that are not those that were written, each with what is wrong."""

    problems: tuple[str, ...]
    title: str = "Files of the evidence that are not as they were written"
    exit_status: int = 1

    def lines(self) -> list[str]:
        """Return one line a file."""
        return list(self.problems)

    def figures(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"problems": list(self.problems)}


def evidence_sections(asked: Asked) -> Iterator[Section]:
    """Yield what is wrong with an evidence directory, and what its tables tell."""
    evidence = asked.evidence
    if evidence is None:
        return
    _, problems = check_files(evidence.directory)
    if problems:
        yield ChangedFiles(tuple(f"{one.where}: {one.text}" for one in problems))
    record, answer = evidence.record, schedule_line(evidence.record)
    missing = tuple(f"bank {bank.name}: {bank.reason}" for bank in asked.missing)
    if answer is None or "values" not in evidence.tables:
        reason = "the audit compared no latent" if answer is None else "no values.parquet is there"
        yield NotRun(_TITLE, "; ".join([reason, *missing]))
        return
    names = (str(record[BASELINE]["name"]), str(record[CANDIDATE]["name"]))
    triangles = tuple(_triangles(record, evidence.tables))
    yield EvidenceSection(names, answer, triangles, missing)


def _triangles(record: Mapping[str, Any], tables: Mapping[str, Any]) -> Iterator[StoredTriangle]:
    sides: dict[tuple[str, int], dict[str, float | None]] = {}
    for row in tables["values"].to_pylist():
        if row["tensor"] == "latent" and row["rank"] is None:
            sides.setdefault((row["bank"], row["width"]), {})[row["pair"]] = row["relative_rms"]
    schedules = {
        role: record[role]["declared"]["latent_schedule"] for role in ("baseline", "candidate")
    }
    lawful = schedules["candidate"] == GATHER and schedules["baseline"] != GATHER
    alike: dict[tuple[str, tuple[float | None, ...]], list[int]] = {}
    for (bank, width), found in sides.items():
        alike.setdefault((bank, tuple(found.get(side) for side in _SIDES)), []).append(width)
    for (bank, triangle), widths in alike.items():
        off = _distances(triangle, record["ranks"]) if lawful else ()
        yield StoredTriangle(bank, tuple(widths), triangle, off)


def _distances(triangle: tuple[float | None, ...], ranks: int) -> tuple[tuple[str, float], ...]:
    """Each schedule's largest |ln| of a side, the nearest first; empty where a side is none."""
    if any(side is None or side <= 0 for side in triangle):
        return ()
    found = []
    for name in candidates(ranks):
        schedule, _, islands = name.partition(":")
        if schedule in LIBRARY_ORDERS:
            continue
        law = predicted_triangle(schedule, ranks, islands=int(islands or 2))
        sides = zip(triangle, law[:3], strict=True)
        found.append((name, max(abs(math.log(a / b)) for a, b in sides if a is not None)))
    return tuple(sorted(found, key=lambda item: item[1]))
