"""The mutation score: how many planted faults were caught, how many rightly named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .cells import CellResult, Outcome


@dataclass(frozen=True)
class Score:
    """What one self-test found.

    Attributes:
        results: of every cell, in the order of the catalogue, then of the clean pairs.
        widths, ranks: what was asked for.
        seconds: wall time.
    """

    results: tuple[CellResult, ...]
    widths: tuple[int, ...]
    ranks: tuple[int, ...]
    seconds: float

    @property
    def faults(self) -> dict[str, list[CellResult]]:
        """Cells by the name of their fault."""
        found: dict[str, list[CellResult]] = {}
        for result in self.results:
            if result.cell.fault is not None:
                found.setdefault(result.cell.fault, []).append(result)
        return found

    @property
    def clean(self) -> list[CellResult]:
        """Cells of clean pairs."""
        return [result for result in self.results if result.cell.fault is None]

    @property
    def false_alarms(self) -> list[CellResult]:
        """Clean pairs that fail."""
        return [result for result in self.clean if result.false_alarm]

    def count(self, outcome: Outcome) -> int:
        """Number of cells with an outcome."""
        return count(self.results, outcome)

    @property
    def applicable(self) -> int:
        """Cells in which a fault can show."""
        return sum(map(self.count, (Outcome.NAMED, Outcome.MISNAMED, Outcome.MISSED)))

    @property
    def caught(self) -> int:
        """Cells whose audit failed."""
        return self.count(Outcome.NAMED) + self.count(Outcome.MISNAMED)

    @property
    def named_alone(self) -> int:
        """Cells whose audit named the fault, and no other cause beside it."""
        return sum(
            result.outcome is Outcome.NAMED and not result.misleading for result in self.results
        )

    @property
    def exit_status(self) -> int:
        """1 where a fault was missed, a clean pair alarmed, or nothing was planted; else 0."""
        return int(self.caught < self.applicable or bool(self.false_alarms) or not self.applicable)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "widths": list(self.widths),
            "ranks": list(self.ranks),
            "applicable": self.applicable,
            **{str(outcome).replace(" ", "_"): self.count(outcome) for outcome in Outcome},
            "named_alone": self.named_alone,
            "clean_audits": len(self.clean),
            "false_alarms": len(self.false_alarms),
            "seconds": round(self.seconds, 1),
            "faults": {name: list(map(_record, cells)) for name, cells in self.faults.items()},
            "clean": list(map(_record, self.clean)),
        }


def count(results: Sequence[CellResult], outcome: Outcome) -> int:
    """Number of results with an outcome."""
    return sum(result.outcome is outcome for result in results)


def _record(result: CellResult) -> dict[str, Any]:
    record = asdict(result)
    where = record.pop("cell")
    del where["fault"]
    return {**where, **record}
