"""What an output shows of the schedule that made it, as records, and what contradicts a claim."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from ...kernels.reduce import LIBRARY_ORDERS
from ..number_words import number_of

GATHER: Final = "gather"
"""The full sum rounded once, and copied."""
Answer = Literal["identified", "one of", "none fits"]


@dataclass(frozen=True, slots=True)
class ScheduleMatch:
    """How one schedule, run on the same partials, compares with what was observed.

    Attributes:
        schedule: its name; ``two_level:4`` with its islands.
        equal: elements [rank, row, latent] with the same bits.
        equal_rows: rows whose every element, on every rank, has the same bits.
        apart: relative RMS of observed minus this schedule's result.
        predicted: its triangle: result to reference, result to the full sum rounded once (what the
            route path has).
        off: largest |ln| of a side of ``predicted`` against the observed one; None where that has
            no bound (one of the two is 0 or no number).
        fits: whether ``off`` is within four standard errors.
    """

    schedule: str
    equal: int
    equal_rows: int
    apart: float | None
    predicted: tuple[float, float]
    off: float | None
    fits: bool


@dataclass(frozen=True, slots=True)
class Attribution:
    """Which schedule an output shows.

    Attributes:
        answer: ``identified``, ``one of`` (several have its bits here) or ``none fits``.
        names: the schedules that have all its bits; empty for ``none fits``.
        nearest: the schedule with the most equal elements; of several, with the least ``apart``.
        always_equal: groups of schedules that are the same arithmetic for this number of ranks.
        equal_here: groups that differ in general, and whose results have the same bits on these
            partials and these ranks.
        notes: what would tell them apart; what was not tried and why.
        ranks: number of partials.
        seen: the ranks whose output was given.
        rows, elements: what was compared, over all of them.
        observed: the observed triangle, as ``ScheduleMatch.predicted``.
        tolerance: of ``off``.
        matches: by schedule, the nearest first.
    """

    answer: Answer
    names: tuple[str, ...]
    nearest: str
    always_equal: tuple[tuple[str, ...], ...]
    equal_here: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    ranks: int
    seen: tuple[int, ...]
    rows: int
    elements: int
    observed: tuple[float, float]
    tolerance: float
    matches: tuple[ScheduleMatch, ...]

    def match(self, schedule: str) -> ScheduleMatch:
        """Return one schedule's line.

        Raises:
            KeyError: it was not tried.
        """
        return {one.schedule: one for one in self.matches}[full_name(schedule)]

    def text(self) -> str:
        """Return the answer in one line."""
        best = self.matches[0]
        if self.answer == "identified":
            return f"identified {self.names[0]}: all {self.elements:,} elements, bit for bit"
        if self.answer == "one of":
            named = ", ".join(self.names)
            return f"one of {{{named}}}: each has all {self.elements:,} elements, bit for bit"
        fit = "its triangle fits" if best.fits else "its triangle does not fit either"
        return (
            f"none fits bit for bit; nearest {best.schedule}: {best.equal:,} of "
            f"{self.elements:,} elements, {fit}"
        )

    def lines(self) -> list[str]:
        """Return one line a schedule, then which are the same, and what would tell them apart."""
        observed, once = (_figure(side) for side in self.observed)
        lines = [
            f"{number_of(self.rows, 'row')}, ranks {_span(self.seen)} of {self.ranks}; off the "
            f"reference {observed}, off the sum rounded once {once}"
        ]
        name, count = max(len(m.schedule) for m in self.matches), len(f"{self.elements:,}")
        for one in self.matches:
            sides = " and ".join(_figure(side) for side in one.predicted)
            off = "any factor" if one.off is None else f"{one.off:.3g}"
            lines.append(
                f"{one.schedule:<{name}}  {one.equal:>{count},} of {self.elements:,} equal, "
                f"{_figure(one.apart)} apart; predicts {sides}, off by {off}: "
                f"{'fits' if one.fits else 'does not fit'}"
            )
        for group in self.always_equal:
            lines.append(f"the same arithmetic for {self.ranks} ranks: {', '.join(group)}")
        for group in self.equal_here:
            lines.append(f"the same bits on these rows: {', '.join(group)}")
        return [*lines, *self.notes]

    def figures(self) -> dict[str, Any]:
        """Return JSON values; a figure that is no number is null."""
        figures = asdict(self)
        figures["observed"] = [_number(side) for side in self.observed]
        for one in figures["matches"]:
            one["predicted"] = [_number(side) for side in one["predicted"]]
        return figures


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _figure(value: float | None) -> str:
    return "no number" if value is None or not math.isfinite(value) else f"{value:.3g}"


def _span(ranks: tuple[int, ...]) -> str:
    if len(ranks) > 2 and ranks == tuple(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}..{ranks[-1]}"
    return ", ".join(map(str, ranks))


def full_name(schedule: str) -> str:
    """Return the name with its islands: ``two_level`` alone is ``two_level:2``."""
    return "two_level:2" if schedule == "two_level" else schedule


def contradiction(declared: str | None, found: Attribution, exact_bits: bool = True) -> str:
    """Return how an output contradicts the schedule that its path declares; empty if it does not.

    A schedule that was not tried is not contradicted; ``Attribution.notes`` says why it was not.

    Args:
        declared: ``Declared.latent_schedule``.
        found: what the output shows.
        exact_bits: whether the path's products are the partials' bits (not ``machine_dependent``).
            Otherwise agreement is judged by the triangle alone.
    """
    if declared is None or declared in LIBRARY_ORDERS:
        return ""
    name = full_name(declared)
    if name in found.names or name not in {one.schedule for one in found.matches}:
        return ""
    mine = found.match(name)
    share = f"{mine.equal:,} of {found.elements:,} elements agree"
    if found.names:
        return f"declares {declared} ({share}), and has the bits of {' and '.join(found.names)}"
    if exact_bits:
        return f"declares {declared}, and does not have its bits ({share})"
    if not mine.fits:
        off = "no number" if mine.off is None else f"{mine.off:.2g}"
        return (
            f"declares {declared}, whose triangle is off by {off} (allowed {found.tolerance:.2g}); "
            f"{share}"
        )
    return ""
