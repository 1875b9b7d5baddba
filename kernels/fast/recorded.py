"""Recorded outputs of two paths, compared row by row in one pass."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from ..contract import F32, I32
from .compare import DIFFERENT, PLAIN, ULP_BINS, row_code, row_weight_ulp
from .gate import PairedRows


@numba.njit(cache=True, error_model="numpy")
def _sound(ids: Any, weights: Any, marks: Any, mark: int) -> bool:
    """Whether ids are distinct and in range, and weights finite."""
    for slot in range(len(ids)):
        expert = ids[slot]
        if expert < 0 or expert >= len(marks) or marks[expert] == mark:
            return False
        marks[expert] = mark
        if weights[slot] - weights[slot] != np.float32(0.0):
            return False
    return True


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _compare(
    ids_a: Any, w_a: Any, ids_b: Any, w_b: Any, experts: int, code: Any, ulp: Any, bins: Any
) -> None:
    marks, scratch = np.full(experts, -1, np.int64), np.empty(experts, np.float32)
    for row in range(len(ids_a)):
        code[row] = PLAIN
        ulp[row] = -1
        if not _sound(ids_a[row], w_a[row], marks, 3 * row):
            continue
        if not _sound(ids_b[row], w_b[row], marks, 3 * row + 1):
            continue
        code[row] = row_code(ids_a[row], ids_b[row], marks, 3 * row + 2)
        if code[row] != DIFFERENT:
            ulp[row] = row_weight_ulp(ids_a[row], w_a[row], ids_b[row], w_b[row], scratch, bins)


Outputs = tuple[I32, F32]
"""Ids and weights [row, slot] of one path."""


def compare_recorded(sides: tuple[Outputs, Outputs], experts: int) -> PairedRows:
    """Return how two recorded paths compare; a row with a breach has code ``PLAIN``.

    Margins and shifts need the logits and are undefined here.
    """
    (ids_a, w_a), (ids_b, w_b) = sides
    rows = len(ids_a)
    code, ulp = np.empty(rows, np.int8), np.empty(rows, np.int64)
    bins = np.zeros(ULP_BINS, np.int64)
    _compare(ids_a, w_a, ids_b, w_b, experts, code, ulp, bins)
    none = np.full(rows, np.nan)
    steps, plain = np.full(rows, -1, np.int64), np.zeros(rows, np.bool_)
    return PairedRows(ids_a, w_a, ids_b, w_b, code, steps, none, none, ulp, bins, plain, 0)
