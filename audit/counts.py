"""Read ``histograms.parquet`` and ``values.parquet`` back as counts: what a verdict is made of."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from .compare import BASELINE, CANDIDATE
from .histograms import PAIRED, UNPAIRED
from .metrics.closeness import PairedErrors
from .metrics.values import relative_rms, rho
from .tally import Witness
from .value_table import PAIRS, TENSORS

Place = tuple[str, int | None]


class Histograms:
    """Lines of ``histograms.parquet`` by bank and width (None: of no width), in their order."""

    def __init__(self, table: pa.Table) -> None:
        self._lines: dict[tuple[str, int | None, str, str | None], list[dict[str, Any]]] = {}
        self._places: dict[Place, None] = {}
        for line in table.to_pylist():
            where = (line["bank"], line["width"], line["metric"], line["path"])
            self._lines.setdefault(where, []).append(line)
            self._places[line["bank"], line["width"]] = None

    def places(self) -> list[Place]:
        """Return every (bank, width) that has a line."""
        return list(self._places)

    def units(self) -> dict[str, str]:
        """Return the independence unit of every bank that was run."""
        return {
            bank: found["key"]
            for bank, width in self._places
            if width is None
            for found in self.lines(bank, None, "independence_unit")
        }

    def lines(
        self, bank: str, width: int | None, metric: str, path: str | None = None
    ) -> list[dict[str, Any]]:
        """Return the lines of one metric."""
        return self._lines.get((bank, width, metric, path), [])

    def named(
        self, bank: str, width: int | None, metric: str, path: str | None = None
    ) -> Counter[str]:
        """Return the counts of a metric with named bins."""
        found: Counter[str] = Counter()
        for line in self.lines(bank, width, metric, path):
            if line["key"] is not None:
                found[line["key"]] += line["count"]
        return found

    def steps(
        self, bank: str, width: int | None, metric: str, path: str | None = None
    ) -> Counter[int]:
        """Return the counts of a metric whose bins are distances."""
        found: Counter[int] = Counter()
        for line in self.lines(bank, width, metric, path):
            if line["steps"] is not None:
                found[line["steps"]] += line["count"]
        return found


@dataclass
class Counts:
    """Counts of one (bank, width), or of several pooled; names as in ``Tally``.

    ``rate_units`` and ``rate_differing`` are of the rows that may bound the set rate. ``paired`` is
    by tensor; None where the two paths hold different rows.
    """

    rows: int = 0
    unique_rows: int = 0
    units: int = 0
    differing_units: int = 0
    rate_units: int = 0
    rate_differing: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    weight_classes: Counter[str] = field(default_factory=Counter)
    weight_ulp: Counter[int] = field(default_factory=Counter)
    worst_weight: Witness | None = None
    flags: dict[str, Counter[str]] = field(default_factory=lambda: _per_path())
    breaches: dict[str, Counter[str]] = field(default_factory=lambda: _per_path())
    input_flags: Counter[str] = field(default_factory=Counter)
    bits_equal: dict[str, bool] = field(default_factory=dict)
    paired: dict[str, PairedErrors | None] = field(default_factory=dict)

    def merge(self, other: Counts) -> None:
        """Add the counts of another bank, or of other rows of the same one."""
        for name in ("rows", "unique_rows", "units", "differing_units"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.rate_units += other.rate_units
        self.rate_differing += other.rate_differing
        self.counts.update(other.counts)
        self.weight_classes.update(other.weight_classes)
        self.weight_ulp.update(other.weight_ulp)
        self.input_flags.update(other.input_flags)
        for path in (BASELINE, CANDIDATE):
            self.flags[path].update(other.flags[path])
            self.breaches[path].update(other.breaches[path])
        mine, theirs = self.worst_weight, other.worst_weight
        if theirs is not None and (mine is None or theirs.value > mine.value):
            self.worst_weight = theirs
        for name, same in other.bits_equal.items():
            self.bits_equal[name] = self.bits_equal.get(name, True) and same
        for tensor, pairs in other.paired.items():
            known = self.paired.get(tensor, PairedErrors(0, 0, 0, 0))
            self.paired[tensor] = _added(known, pairs)

    @property
    def max_weight_ulp(self) -> int | None:
        """Largest FP32 distance of a weight."""
        return None if self.worst_weight is None else self.worst_weight.value


def read_counts(histograms: Histograms, bank: str, width: int | None) -> Counts | None:
    """Return the counts of one place; None where nothing was compared there."""
    sample = histograms.named(bank, width, "sample")
    if not sample:
        return None
    rate = histograms.named(bank, width, "rate_sample")
    errors = histograms.named(bank, width, "row_error")
    return Counts(
        rows=sample["rows"],
        unique_rows=sample["unique_rows"],
        units=sample["units"],
        differing_units=sample["differing_units"],
        rate_units=rate["units"],
        rate_differing=rate["differing_units"],
        counts=histograms.named(bank, width, "set_class"),
        weight_classes=histograms.named(bank, width, "weight_class"),
        weight_ulp=histograms.steps(bank, width, "weight_ulp"),
        worst_weight=_witness(histograms, bank, width),
        flags={p: histograms.named(bank, width, "flag", p) for p in (BASELINE, CANDIDATE)},
        breaches={p: histograms.named(bank, width, "breach", p) for p in (BASELINE, CANDIDATE)},
        input_flags=histograms.named(bank, width, "input_flag"),
        bits_equal={k: bool(v) for k, v in histograms.named(bank, width, "bits_equal").items()},
        paired={t: p for t in TENSORS for p in _paired(errors, t)},
    )


def pooled_counts(
    histograms: Histograms,
    width: int | None,
    *,
    unit: str | None = None,
    without: Collection[str] = (),
) -> Counts:
    """Return the counts of one width over the banks; units of two banks are never the same.

    Args:
        histograms: the lines.
        width: rows per launch.
        unit: independence unit of the banks whose rows bound a rate; None: whatever it is.
        without: banks that are left out.
    """
    total, units = Counts(), histograms.units()
    for bank, at in histograms.places():
        wanted = at == width and bank not in without
        found = read_counts(histograms, bank, width) if wanted else None
        if found is None:
            continue
        if unit is not None and units.get(bank) != unit:
            found.rate_units = found.rate_differing = 0
        total.merge(found)
    return total


def pooled_triangles(values: pa.Table) -> dict[int, dict[str, dict[str, Any]]]:
    """Return the error triangle by width and tensor: three relative RMS, pooled, and rho.

    Args:
        values: rows of ``VALUES_SCHEMA``; those without a rank are pooled over the banks by an
            exactly rounded sum of their squares.
    """
    squares: dict[tuple[int, str, str], list[tuple[float, float]]] = {}
    for row in values.to_pylist():
        if row["rank"] is None:
            place = (row["width"], row["tensor"], row["pair"])
            squares.setdefault(place, []).append((row["error_square"], row["reference_square"]))
    found: dict[int, dict[str, dict[str, Any]]] = {}
    for width, tensor in sorted({(w, TENSORS.index(t)) for w, t, _ in squares if t in TENSORS}):
        name = TENSORS[tensor]
        sides: dict[str, Any] = {
            pair: _pooled(squares.get((width, name, pair), [])) for pair in PAIRS
        }
        sides["rho"] = rho(
            sides["baseline_reference"], sides["candidate_reference"], sides["candidate_baseline"]
        )
        found.setdefault(width, {})[name] = sides
    return found


def _pooled(squares: Sequence[tuple[float, float]]) -> float | None:
    errors, norms = (
        (math.fsum(column) for column in zip(*squares, strict=True))
        if squares
        else (
            0.0,
            0.0,
        )
    )
    return relative_rms(errors, norms)


def _witness(histograms: Histograms, bank: str, width: int | None) -> Witness | None:
    worst: Witness | None = None
    for line in histograms.lines(bank, width, "worst_weight"):
        row, _, rank = str(line["key"]).partition("/")
        if not (row.isdecimal() and rank.isdecimal()) or line["steps"] is None:
            continue
        if worst is None or line["steps"] > worst.value:
            worst = Witness(bank, int(row), int(rank), line["steps"])
    return worst


def _paired(errors: Counter[str], tensor: str) -> list[PairedErrors | None]:
    """No or one element: nothing where the tensor has no rows on both sides."""
    if f"{tensor}/{UNPAIRED}" in errors:
        return [None]
    if f"{tensor}/{PAIRED[0]}" not in errors:
        return []
    return [PairedErrors(*(errors[f"{tensor}/{name}"] for name in PAIRED))]


def _added(a: PairedErrors | None, b: PairedErrors | None) -> PairedErrors | None:
    if a is None or b is None:
        return None
    return PairedErrors(
        a.wins + b.wins, a.losses + b.losses, a.ties + b.ties, a.undefined + b.undefined
    )


def _per_path() -> dict[str, Counter[str]]:
    return {BASELINE: Counter(), CANDIDATE: Counter()}
