"""A gate's counts as rows of ``histograms.parquet``, and back.

Besides the metrics of ``audit.histograms`` (lines without a width count all widths of a bank, whose
units may meet in several of them):

- ``margin_ulp``: rows by the margin between slots K and K+1 of A's own keys, in ``steps`` (above
  63: a power of two and up);
- ``margin_exponent``: the same rows by the exponent of the margin;
- ``margin``: whole numbers of ``MarginTally`` by name, in limbs of 62 bits: ``steps`` is the limb;
- ``reference``: sampled rows of one path by set class against the reference;
- ``reference_boundary``: the sampled rows' near ties;
- ``gate``: whole numbers of ``ShardResult`` by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import pyarrow as pa

from ..bank_outcome import BankOutcome
from ..compare import BASELINE, CANDIDATE
from ..counts import Counts, Histograms, read_counts
from ..histograms import Line, histogram_lines, line, lines_table, step_lines, tally_lines
from ..metrics.margins import MarginTally
from ..tally import Tally
from .shard import ShardResult

_LIMB: Final = 62


def gate_histograms(
    outcomes: Sequence[BankOutcome], merged: Mapping[tuple[int, int], ShardResult]
) -> pa.Table:
    """Return the counts of a gate.

    Args:
        outcomes: of the banks, in the plan's order.
        merged: results by (bank number, width).
    """
    lines = histogram_lines(outcomes)
    for number, outcome in enumerate(outcomes):
        whole = ShardResult()
        for (bank, width), result in merged.items():
            if bank == number:
                lines += _result_lines(outcome.bank, width, result)
                whole.merge(result)
        if whole.tally.rows:
            lines += tally_lines(outcome.bank, None, whole.tally, bounds_rate=False)
            lines += _result_lines(outcome.bank, None, whole)
    return lines_table(lines)


def source_lines(names: Sequence[str], merged: Mapping[tuple[int, int], ShardResult]) -> list[Line]:
    """Return what an audit keeps of its gate beside the counts that every bank has.

    Args:
        names: of the gate's banks, in the plan's order.
        merged: results by (bank number, width).
    """
    return [
        found
        for (bank, width), result in merged.items()
        for found in _result_lines(names[bank], width, result)
    ]


def read_result(histograms: Histograms, bank: str, width: int | None) -> ShardResult | None:
    """Return the result of one place without its certificates; None where no row was run."""
    counts = read_counts(histograms, bank, width)
    if counts is None:
        return None
    whole: Any = histograms.named(bank, width, "gate")
    return ShardResult(
        tally=StoredTally.of(counts),
        margins=_margins(histograms, bank, width),
        boundary=histograms.named(bank, width, "reference_boundary"),
        reference={
            role: histograms.named(bank, width, "reference", role) for role in (BASELINE, CANDIDATE)
        },
        bits_equal=dict(counts.bits_equal),
        **{name: whole[name] for name in _whole_numbers(ShardResult())},
    )


def read_pooled(
    histograms: Histograms, banks: Sequence[str], widths: Sequence[int | None]
) -> ShardResult:
    """Return the results of some banks at some widths as one.

    Several widths of one bank may be given only where each of its rows is a unit of its own;
    None has the counts of all its widths, whatever its units are.
    """
    found = [read_result(histograms, bank, width) for bank in banks for width in widths]
    total, *rest = [result for result in found if result is not None] or [ShardResult()]
    for result in rest:
        total.merge(result)
    return total


@dataclass
class StoredTally(Tally):
    """A tally that was read back: of its units it knows the numbers, not which they are.

    It merges with tallies of other banks only, whose units are others.
    """

    stored_units: int = 0
    stored_events: int = 0

    @classmethod
    def of(cls, counts: Counts) -> StoredTally:
        """Return the tally that has these counts."""
        return cls(
            rows=counts.rows,
            unique_rows=counts.unique_rows,
            counts=counts.counts,
            weight_classes=counts.weight_classes,
            weight_ulp=counts.weight_ulp,
            worst_weight=counts.worst_weight,
            flags=counts.flags,
            breaches=counts.breaches,
            input_flags=counts.input_flags,
            stored_units=counts.units,
            stored_events=counts.differing_units,
        )

    def merge(self, other: Tally) -> None:
        """Add another bank's tally."""
        super().merge(other)
        self.stored_units += other.units
        self.stored_events += other.events

    @property
    def units(self) -> int:
        """Independent samples that a rate may count."""
        return self.stored_units

    @property
    def events(self) -> int:
        """Units that differ."""
        return self.stored_events


def _result_lines(bank: str, width: int | None, result: ShardResult) -> Iterator[Line]:
    yield from step_lines(bank, width, "margin_ulp", result.margins.steps)
    for key, count in result.margins.exponents.items():
        yield line(bank, width, "margin_exponent", count, key=key)
    for name, value in _whole_numbers(result.margins).items():
        for limb in range(max(1, -(-value.bit_length() // _LIMB))):
            part = value >> (limb * _LIMB) & ((1 << _LIMB) - 1)
            yield line(bank, width, "margin", part, key=name, steps=limb)
    for role, counts in result.reference.items():
        for key, count in counts.items():
            yield line(bank, width, "reference", count, path=role, key=str(key))
    for key, count in result.boundary.items():
        yield line(bank, width, "reference_boundary", count, key=key)
    for name, value in _whole_numbers(result).items():
        yield line(bank, width, "gate", value, key=name)


def _margins(histograms: Histograms, bank: str, width: int | None) -> MarginTally:
    tally = MarginTally(
        steps=histograms.steps(bank, width, "margin_ulp"),
        exponents=histograms.named(bank, width, "margin_exponent"),
    )
    sums: Counter[str] = Counter()
    for item in histograms.lines(bank, width, "margin"):
        sums[item["key"]] += item["count"] << (_LIMB * item["steps"])
    for name in _whole_numbers(tally):
        setattr(tally, name, sums[name])
    return tally


def _whole_numbers(record: MarginTally | ShardResult) -> dict[str, int]:
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return {name: value for name, value in values.items() if isinstance(value, int)}
