"""Set rates, weights and triangle of two runs, width by width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..metrics.rate_change import RateChange, mcnemar_p, rate_change
from ..metrics.rates import holm
from .diff_certificates import Certified
from .view import RecordView, WidthView

BEYOND_TIES = ("tie_group", "noise_swap", "far_swap", "multi_swap", "invalid")
"""Set classes that no tie excuses."""


@dataclass(frozen=True)
class WidthDiff:
    """One width of two runs; figures are (first, second).

    Attributes:
        width: rows per launch.
        rate: of units that differ, with intervals and Fisher's p-value.
        paired_p: exact McNemar p-value of "the second run differs on more rows"; None where rows
            are not paired.
        rate_grew: whether the p-value (paired where there is one) holds by Holm over the widths.
        max_weight_ulp: FP32 ULP; None where no weights were compared.
        beyond_ties: (row, rank) pairs of each class in ``BEYOND_TIES``, where it occurs.
        triangle: per tensor and pair, the relative RMS.
    """

    width: int
    rate: RateChange
    paired_p: float | None
    rate_grew: bool
    max_weight_ulp: tuple[int | None, int | None]
    beyond_ties: Mapping[str, tuple[int, int]]
    triangle: Mapping[str, Mapping[str, tuple[float | None, float | None]]]

    @property
    def p_value(self) -> float:
        """The p-value that decides."""
        return self.rate.fisher_p if self.paired_p is None else self.paired_p


@dataclass(frozen=True, eq=False)
class Side:
    """One run as the comparison needs it."""

    view: RecordView
    certified: Certified

    @property
    def widths(self) -> dict[int, WidthView]:
        """Its widths by their rows per launch."""
        return {width.width: width for width in self.view.widths}


def diff_widths(first: Side, second: Side, same_rows: bool) -> list[WidthDiff]:
    """Compare the widths that both runs have, in the order of the second.

    The confidence is that of the first run's policy: a looser one of the second must hide nothing.
    """
    confidence = first.view.limits.confidence
    shared = [width for width in second.widths if width in first.widths]
    changes = {w: _change(first.widths[w], second.widths[w], confidence) for w in shared}
    paired = {w: _paired_p(first, second, w) if same_rows else None for w in shared}
    p_values = [changes[w].fisher_p if (exact := paired[w]) is None else exact for w in shared]
    grew = holm(p_values, 1 - confidence) if shared else []
    return [
        _width_diff(first.widths[w], second.widths[w], changes[w], paired[w], bool(held))
        for w, held in zip(shared, grew, strict=True)
    ]


def _change(first: WidthView, second: WidthView, confidence: float) -> RateChange:
    samples = [(width.differing_units, width.units) for width in (first, second)]
    return rate_change(samples[0], samples[1], confidence)


def _paired_p(first: Side, second: Side, width: int) -> float | None:
    """McNemar's p-value, where each unit is a row and each differing unit has its certificate."""
    rows = []
    for side in (first, second):
        counts = side.widths[width]
        found = side.certified.rows_at(width)
        by_row = all(bank.independence_unit == "row" for bank in side.view.banks)
        if not by_row or len(found) != counts.differing_units:
            return None
        rows.append(found)
    if first.widths[width].units != second.widths[width].units:
        return None
    return mcnemar_p(len(rows[0] - rows[1]), len(rows[1] - rows[0]))


def _width_diff(
    first: WidthView, second: WidthView, change: RateChange, paired: float | None, grew: bool
) -> WidthDiff:
    beyond = {name: (first.counts.get(name, 0), second.counts.get(name, 0)) for name in BEYOND_TIES}
    return WidthDiff(
        second.width,
        change,
        paired,
        grew,
        (first.max_weight_ulp, second.max_weight_ulp),
        {name: counts for name, counts in beyond.items() if any(counts)},
        _triangle(first, second),
    )


def _triangle(
    first: WidthView, second: WidthView
) -> dict[str, dict[str, tuple[float | None, float | None]]]:
    sides: Sequence[str] = ("candidate_reference", "baseline_reference", "candidate_baseline")
    return {
        tensor: {
            side: (getattr(first.triangle[tensor], side), getattr(second.triangle[tensor], side))
            for side in sides
        }
        for tensor in second.triangle
        if tensor in first.triangle
    }
