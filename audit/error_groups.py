"""Squared errors of both paths by group of independence units, as whole numbers for a table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from .compare import BASELINE, CANDIDATE

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


def group_of_rows(units: I64) -> I64:
    """Return the group [row] of each of a bank's rows: its unit's place among the units, mod 32."""
    _, place = np.unique(units, return_inverse=True)
    return np.asarray(place % GROUPS, np.int64)


def error_groups(candidate: F64, baseline: F64, groups: I64) -> Iterator[tuple[str, int, int, int]]:
    """Yield (path, group, parts, rows) of squared errors [row]; nothing where none is above 0.

    Rows without an error on both sides count nowhere. The parts are rounded, so they add up to
    ``PARTS`` but for ``ROUNDED_PARTS``, and equal errors are equal parts.
    """
    known = ~(np.isnan(candidate) | np.isnan(baseline))
    rows = np.bincount(groups[known], minlength=GROUPS)
    sums = {
        CANDIDATE: np.bincount(groups[known], candidate[known], GROUPS),
        BASELINE: np.bincount(groups[known], baseline[known], GROUPS),
    }
    errors = np.concatenate(list(sums.values()))
    total = math.fsum(errors)
    if not 0.0 < total < math.inf:
        return
    parts = [int(error / total * PARTS) for error in errors]
    for number, path in enumerate(sums):
        for group in np.flatnonzero(rows).tolist():
            yield path, group, parts[number * GROUPS + group], int(rows[group])
