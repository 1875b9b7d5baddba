"""Squared errors of both paths by group of independence units, as whole numbers for a table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from .compare import BASELINE, CANDIDATE
from .metrics.closeness import PairedErrors, paired_errors
from .metrics.exact_sum import ExactSum

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

GROUPS: Final = 32
"""Groups of independence units whose errors are kept, each a draw of the bootstrap."""
PARTS: Final = 1 << 62
"""Both paths' squared errors over all groups of a bank and tensor are this many parts."""
ROUNDED_PARTS: Final = 2 * GROUPS * ((1 << 10) + 1)
"""They add up to ``PARTS`` but for so many: each is an FP64 quotient, rounded down."""
METRIC: Final = "row_error_group"
"""Of the lines that keep them: key ``TENSOR/GROUP``, ``steps`` parts, ``count`` rows."""


def group_of_units(units: I64) -> I64:
    """Return the group [row] of each row, from the numbers of their independence units [row].

    A unit's group is its number modulo ``GROUPS``: numbers that share a factor with it fill fewer
    groups, and the interval made from them is wider.
    """
    return np.asarray(units % GROUPS, np.int64)


UnitOf = Callable[[I64], I64]
"""From a bank's row numbers [row] to their independence units [row]."""


@dataclass(frozen=True, eq=False)
class RowErrors:
    """Squared errors of one path.

    Attributes:
        rows: [row] int64, the bank's row numbers.
        squares: [row] float64, NaN where the row has none.
    """

    rows: I64
    squares: F64


@dataclass
class GroupSums:
    """Squared errors by group of independence units: exact sums, whatever the order of rows."""

    _rows: I64 = field(default_factory=lambda: np.zeros(GROUPS, np.int64))
    _sums: dict[tuple[str, int], ExactSum] = field(default_factory=dict)

    def add(self, candidate: F64, baseline: F64, units: I64) -> None:
        """Add both paths' squared errors [row] of rows with these independence units [row].

        Rows without an error on both sides count nowhere.
        """
        known = ~(np.isnan(candidate) | np.isnan(baseline))
        groups = group_of_units(units[known])
        self._rows += np.bincount(groups, minlength=GROUPS)
        for path, errors in ((CANDIDATE, candidate[known]), (BASELINE, baseline[known])):
            for group in np.unique(groups).tolist():
                self._sums.setdefault((path, group), ExactSum()).add(errors[groups == group])

    def merge(self, other: GroupSums) -> None:
        """Add other rows."""
        self._rows += other._rows
        for key, found in other._sums.items():
            self._sums.setdefault(key, ExactSum()).merge(found)

    def parts(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield (path, group, parts, rows); nothing where no error is above 0.

        The parts are rounded, so they add up to ``PARTS`` but for ``ROUNDED_PARTS``, and equal
        errors are equal parts.
        """
        sums = {key: found.value() for key, found in self._sums.items()}
        total = math.fsum(sums.values())
        if not 0.0 < total < math.inf:
            return
        for path in (CANDIDATE, BASELINE):
            for group in np.flatnonzero(self._rows).tolist():
                parts = int(sums[path, group] / total * PARTS)
                yield path, group, parts, int(self._rows[group])


@dataclass
class ErrorTally:
    """Both paths' errors on the same rows: which is smaller, and how large by group of units."""

    _paired: PairedErrors = field(default_factory=lambda: PairedErrors(0, 0, 0, 0))
    _rows: Counter[str] = field(default_factory=Counter)
    _apart: bool = False
    _groups: GroupSums = field(default_factory=GroupSums)

    def add(self, candidate: RowErrors, baseline: RowErrors, units: UnitOf) -> None:
        """Add rows; the paths must hold the same ones, or nothing is paired."""
        self._rows[CANDIDATE] += len(candidate.rows)
        self._rows[BASELINE] += len(baseline.rows)
        if not np.array_equal(candidate.rows, baseline.rows):
            self._apart = True
            return
        self._paired += paired_errors(candidate.squares, baseline.squares)
        self._groups.add(candidate.squares, baseline.squares, units(candidate.rows))

    def merge(self, other: ErrorTally) -> None:
        """Add other rows of the same bank, width and tensor."""
        self._paired += other._paired
        self._rows.update(other._rows)
        self._apart |= other._apart
        self._groups.merge(other._groups)

    def copy(self) -> ErrorTally:
        """Return the same counts, on their own."""
        result = ErrorTally()
        result.merge(self)
        return result

    def paired(self) -> PairedErrors | None:
        """Rows by which error is smaller; None where the paths hold different rows."""
        return None if self._apart else self._paired

    def rows(self) -> int:
        """Rows of the path that holds more of them."""
        return max(self._rows.values(), default=0)

    def groups(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield the lines of ``GroupSums.parts``; none where the paths hold different rows."""
        if not self._apart:
            yield from self._groups.parts()
