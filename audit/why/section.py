"""One part of the answer to "why": a title, lines to read, figures to keep."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ...banks.errors import printable
from ..number_words import number_of


class Section(Protocol):
    """What ``neartie why`` prints and stores, one after another."""

    @property
    def title(self) -> str:
        """Heading of one line."""
        ...

    def lines(self) -> Sequence[str]:
        """Return the text below the heading."""
        ...

    def figures(self) -> dict[str, Any]:
        """Return the same as JSON values."""
        ...


@runtime_checkable
class Judged(Section, Protocol):
    """A section that has a say in the exit status; any other leaves it at 0."""

    @property
    def exit_status(self) -> int:
        """0 nothing speaks against a declaration, 1 something does, 3 not run."""
        ...


def status_of(section: Section) -> int:
    """Return a section's exit status; 0 where it has no say."""
    return section.exit_status if isinstance(section, Judged) else 0


@dataclass(frozen=True, slots=True)
class NotRun:
    """A section that could not be made, and why."""

    title: str
    reason: str
    exit_status: int = 3

    def lines(self) -> Sequence[str]:
        """Return the reason."""
        return [f"not run: {self.reason}"]

    def figures(self) -> dict[str, Any]:
        """Return the reason as a JSON value."""
        return {"not_run": self.reason}


@dataclass(frozen=True, slots=True)
class WhyReport:
    """All sections, with what was asked.

    Attributes:
        target: the bank or evidence directory.
        baseline, candidate: names of the paths.
        ranks, width: of the launches.
        sections: in the order of the text.
    """

    target: str
    baseline: str
    candidate: str
    ranks: int
    width: int
    sections: tuple[Section, ...]

    @property
    def exit_status(self) -> int:
        """1 where a declaration is contradicted, else 3 where something was not run, else 0."""
        found = {status_of(section) for section in self.sections}
        return 1 if 1 in found else 3 if 3 in found else 0

    def text(self) -> str:
        """Return the report for a terminal."""
        pair = f"{self.baseline} against {self.candidate}"
        launch = f"{number_of(self.ranks, 'rank')}, width {self.width}"
        head = f"{printable(self.target)}: {pair}, {launch}"
        blocks = [head]
        for section in self.sections:
            blocks.append("\n".join([section.title, *(f"  {line}" for line in section.lines())]))
        return "\n\n".join(blocks)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values; the words of each section are in its figures, not its lines."""
        return {
            "target": self.target,
            "baseline": self.baseline,
            "candidate": self.candidate,
            "ranks": self.ranks,
            "width": self.width,
            "exit_status": self.exit_status,
            "sections": [
                {"title": section.title, "exit_status": status_of(section), **section.figures()}
                for section in self.sections
            ],
        }

    def to_json(self) -> str:
        """Return one JSON document; what is no finite number is refused, never printed as NaN."""
        return json.dumps(self.as_dict(), indent=1, allow_nan=False)
