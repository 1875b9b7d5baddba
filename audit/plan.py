"""How many rows certify a set rate, and which rate a number of rows can certify."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..banks.errors import InputError
from .metrics.rates import (
    MOST_ROWS,
    allowed_events,
    layers_rate,
    rows_needed,
    smallest_rate,
    upper_bound,
)
from .number_words import percent

_SHOWN_EVENTS = (0, 1, 2, 5, 10)


@dataclass(frozen=True)
class Plan:
    """Rows and rates that belong together.

    Attributes:
        confidence: of the one-sided Clopper-Pearson bound, over all widths together.
        widths: widths tested together; each is held to 1 - (1 - confidence) / widths (Holm's
            strictest step).
        rate: the set rate that is to be certified, or the smallest that ``rows`` can.
        rows: independent rows needed for each width, or given.
        events: differing rows allowed, or seen.
        table: (events, rows) for a given rate, or (events, smallest rate) for given rows.
        tokens_touched: share of tokens with a changed set in some of ``layers`` MoE layers.
    """

    confidence: float
    widths: int
    rate: float
    rows: int
    events: int
    layers: int
    given: str
    table: tuple[tuple[int, float], ...]
    allowed: int
    tokens_touched: float

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)

    def text(self) -> str:
        """Return what a person reads."""
        held = percent(self.confidence)
        if self.widths > 1:
            held += f" over {self.widths} widths"
        if self.given == "rate":
            lines = [f"To certify a set rate of {self.rate:g} at {held}, for each width:"]
            lines += [
                f"  {count:>3} differing: {int(rows):>12,} rows" for count, rows in self.table
            ]
        else:
            lines = [f"{self.rows:,} rows for each width certify at {held}:"]
            lines += [f"  {count:>3} differing: at most {rate:.3e}" for count, rate in self.table]
        lines.append(
            f"A rate of {self.rate:.3g} in each of {self.layers} layers touches "
            f"{self.tokens_touched:.2%} of tokens."
        )
        lines.append("Rows must be independent: ranks that hold the same logits are replicas.")
        return "\n".join(lines)


def plan_rows(
    *,
    rate: float | None = None,
    rows: int | None = None,
    confidence: float = 0.95,
    events: int = 0,
    widths: int = 1,
    layers: int = 92,
) -> Plan:
    """Return the plan for a rate or for a number of rows.

    Raises:
        InputError: neither or both of ``rate`` and ``rows`` are given, or a figure is out of range.
    """
    if (rate is None) == (rows is None):
        got = "neither" if rate is None else "both"
        raise InputError("--rate and --rows", got, "exactly one of them", "plan")
    if widths < 1:
        raise InputError("widths", widths, "at least 1", "plan")
    if not 0 < confidence < 1:
        raise InputError("confidence", confidence, "between 0 and 1", "plan")
    if rows is not None and not 1 <= rows <= MOST_ROWS:
        raise InputError("rows", rows, f"1..{MOST_ROWS}", "plan")
    most = MOST_ROWS if rows is None else rows
    if not 0 <= events <= most:
        raise InputError("events", events, f"0..{most}", "plan")
    if layers < 0:
        raise InputError("layers", layers, "at least 0", "plan")
    each = 1 - (1 - confidence) / widths
    if each == 1:
        expected = f"a smaller one: over {widths} widths, it rounds to 1"
        raise InputError("confidence", confidence, expected, "plan")
    counts = sorted({*_SHOWN_EVENTS, events})
    table: tuple[tuple[int, float], ...]
    if rate is not None:
        needed = rows_needed(rate, each, events)
        table = tuple((count, rows_needed(rate, each, count)) for count in counts)
        given, total, certified = "rate", needed, rate
    else:
        assert rows is not None
        certified = smallest_rate(rows, each, events)
        table = tuple((n, upper_bound(n, rows, each)) for n in counts if n <= rows)
        given, total = "rows", rows
    return Plan(
        confidence,
        widths,
        certified,
        total,
        events,
        layers,
        given,
        table,
        allowed_events(total, certified, each) if certified < 1 else total,
        layers_rate(certified, layers),
    )
