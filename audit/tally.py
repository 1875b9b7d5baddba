"""Exact counts of compared rows: integers that merge in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..banks.bank import NO_UNIT
from .compare import BASELINE, CANDIDATE, RowComparison
from .metrics.flags import Breach, RowFlag, names
from .metrics.swaps import SET_CLASSES, SET_CODE, SetClass
from .metrics.weights import WEIGHT_CLASSES, WeightClass


@dataclass(frozen=True, slots=True)
class Witness:
    """The row that holds a largest value; ties go to the first row added."""

    bank: str
    row: int
    rank: int
    value: int


@dataclass
class Tally:
    """Counts of one (bank, width).

    ``counts``, ``flags`` and ``breaches`` are over (row, rank) pairs; ``unique_rows`` counts a row
    once however many ranks hold it. Units are the independent samples: a unit differs when any of
    its rows does, on any rank.
    """

    rows: int = 0
    unique_rows: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    weight_classes: Counter[str] = field(default_factory=Counter)
    weight_ulp: Counter[int] = field(default_factory=Counter)
    worst_weight: Witness | None = None
    flags: dict[str, Counter[str]] = field(default_factory=lambda: _per_path())
    breaches: dict[str, Counter[str]] = field(default_factory=lambda: _per_path())
    input_flags: Counter[str] = field(default_factory=Counter)
    row_units: int = 0
    row_units_differing: int = 0
    row_units_invalid: int = 0
    cluster_units: set[int] = field(default_factory=set)
    differing_units: set[int] = field(default_factory=set)
    invalid_units: set[int] = field(default_factory=set)

    def add(
        self, bank: str, comparison: RowComparison, keys: UnitKeys, rank: int, replicas: int
    ) -> None:
        """Count one rank's rows; ``replicas`` ranks hold the same bits as this one."""
        rows = len(comparison.sets.set_class)
        self.rows += rows * replicas
        self.unique_rows += rows if rank == 0 else 0
        for name, count in _count(comparison.sets.set_class, SET_CLASSES).items():
            self.counts[name] += count * replicas
        self.weight_classes.update(_count(comparison.weight_class, WEIGHT_CLASSES))
        self.weight_ulp.update(comparison.weight_histogram)
        self._largest_weight(bank, comparison, keys, rank)
        for path in (BASELINE, CANDIDATE):
            _count_flags(self.breaches[path], comparison.breach[path], Breach, replicas)
            _count_flags(self.flags[path], comparison.flags[path], RowFlag, replicas)
        _count_flags(self.input_flags, comparison.input_flags, RowFlag, 1)
        self._add_units(comparison, keys, rank)

    def add_alike(self, bank: str, alike: AlikeRows, keys: UnitKeys, rank: int = 0) -> None:
        """Count valid rows of one rank whose sets are equal and whose weights are in the budget."""
        rows = len(alike.reordered)
        reordered = int(np.count_nonzero(alike.reordered))
        drift = int(np.count_nonzero(alike.weight_ulp))
        self.rows += rows
        self.unique_rows += rows if rank == 0 else 0
        self.counts[SetClass.IDENTICAL] += rows - reordered
        self.counts[SetClass.REORDERED] += reordered
        self.weight_classes[WeightClass.EQUAL] += rows - drift
        self.weight_classes[WeightClass.DRIFT] += drift
        self.weight_ulp.update(alike.histogram)
        self._add_unit_keys(keys, rank)
        if rows:
            worst = int(np.argmax(alike.weight_ulp))
            row, value = int(keys.row[worst]), int(alike.weight_ulp[worst])
            self._keep_worst(Witness(bank, row, rank, value))

    def merge(self, other: Tally) -> None:
        """Add another tally of the same width."""
        self.rows += other.rows
        self.unique_rows += other.unique_rows
        for mine, theirs in (
            (self.counts, other.counts),
            (self.weight_classes, other.weight_classes),
            (self.input_flags, other.input_flags),
        ):
            mine.update(theirs)
        self.weight_ulp.update(other.weight_ulp)
        for path in (BASELINE, CANDIDATE):
            self.flags[path].update(other.flags[path])
            self.breaches[path].update(other.breaches[path])
        self.row_units += other.row_units
        self.row_units_differing += other.row_units_differing
        self.row_units_invalid += other.row_units_invalid
        self.cluster_units |= other.cluster_units
        self.differing_units |= other.differing_units
        self.invalid_units |= other.invalid_units
        theirs_worst = other.worst_weight
        if theirs_worst is not None:
            self._keep_worst(theirs_worst)

    def settle_rows(self) -> None:
        """Keep how many units differ or are invalid, and not which.

        For units that are rows which no other tally of the merge has: memory then does not grow
        with the rows.
        """
        self.row_units_differing += len(self.differing_units - self.invalid_units)
        self.row_units_invalid += len(self.invalid_units)
        self.differing_units.clear()
        self.invalid_units.clear()

    def with_units_from(self, first: int) -> Tally:
        """Return the same counts with every unit's number moved up by ``first``."""
        return replace(
            self,
            cluster_units={unit + first for unit in self.cluster_units},
            differing_units={unit + first for unit in self.differing_units},
            invalid_units={unit + first for unit in self.invalid_units},
        )

    @property
    def invalid(self) -> int:
        """(row, rank) pairs that left every rate's denominator."""
        return self.counts[SetClass.INVALID]

    @property
    def units(self) -> int:
        """Independent samples that a rate may count: those without an invalid row."""
        valid_rows = self.row_units - self.row_units_invalid
        return valid_rows + len(self.cluster_units) - len(self.invalid_units)

    @property
    def events(self) -> int:
        """Units that differ, of those that a rate may count."""
        return self.row_units_differing + len(self.differing_units - self.invalid_units)

    def _add_units(self, comparison: RowComparison, keys: UnitKeys, rank: int) -> None:
        unit = keys.unit
        invalid = comparison.sets.set_class == SET_CODE[SetClass.INVALID]
        if keys.kind == NO_UNIT:
            return
        self._add_unit_keys(keys, rank)
        self.differing_units.update(unit[comparison.sets.rows].tolist())
        self.invalid_units.update(unit[invalid].tolist())

    def _add_unit_keys(self, keys: UnitKeys, rank: int) -> None:
        if keys.kind not in ("row", NO_UNIT):
            self.cluster_units.update(keys.unit.tolist())
        elif keys.kind == "row" and rank == 0:
            self.row_units += len(keys.unit)

    def _largest_weight(
        self, bank: str, comparison: RowComparison, keys: UnitKeys, rank: int
    ) -> None:
        if not len(comparison.weight_ulp):
            return
        row = int(np.argmax(comparison.weight_ulp))
        value = int(comparison.weight_ulp[row])
        if value >= 0:
            self._keep_worst(Witness(bank, int(keys.row[row]), rank, value))

    def _keep_worst(self, witness: Witness) -> None:
        if self.worst_weight is None or witness.value > self.worst_weight.value:
            self.worst_weight = witness


@dataclass(frozen=True, eq=False)
class AlikeRows:
    """Rows on which both paths select one set, with weights within the budget.

    Attributes:
        reordered: [row] bool, in another order.
        weight_ulp: [row] int64, largest FP32 distance of a weight.
        histogram: their weights by FP32 distance.
    """

    reordered: npt.NDArray[np.bool_]
    weight_ulp: npt.NDArray[np.int64]
    histogram: Mapping[int, int]


@dataclass(frozen=True, eq=False)
class UnitKeys:
    """Per row: the bank's row number and its independence unit, int64 [row].

    Units of different banks must differ: the caller adds an offset per bank.
    """

    row: npt.NDArray[np.int64]
    unit: npt.NDArray[np.int64]
    kind: str
    """The bank's independence unit: ``row``, a key that rows may share, or ``none``."""


def _per_path() -> dict[str, Counter[str]]:
    return {BASELINE: Counter(), CANDIDATE: Counter()}


def _count(codes: npt.NDArray[np.int8], classes: tuple[Any, ...]) -> dict[str, int]:
    """Count class codes; -1 means not compared."""
    found = np.bincount(codes[codes >= 0].astype(np.int64), minlength=len(classes))
    return {str(name): int(count) for name, count in zip(classes, found, strict=True) if count}


def _count_flags(
    counter: Counter[str], flags: npt.NDArray[Any], kind: type[Breach] | type[RowFlag], times: int
) -> None:
    if not flags.any():
        return
    for value, count in zip(*np.unique(flags, return_counts=True), strict=True):
        for name in names(kind(int(value))):
            counter[name] += int(count) * times
