"""The plain path of ``gate``: two whole selections, and the same figures about them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...banks.geometry import Geometry, ScoringRule
from ..contract import F32
from ..scores import score
from ..select import SelectArithmetic, engine_rule, select, select_bias, select_logits
from .compare import DIFFERENT, IDENTICAL, REORDERED, ULP_BINS
from .scratch import RowOutputs

_CHUNK_ROWS: Final = 4096


def fill_plain(
    rules: tuple[SelectArithmetic, SelectArithmetic],
    logits: F32,
    bias: F32,
    geometry: Geometry,
    scoring: ScoringRule,
    rows: npt.NDArray[np.int64],
    out: RowOutputs,
    bins: npt.NDArray[np.int64],
) -> None:
    """Write the outputs of ``rows``, each side selected by ``select``.

    Args:
        rules: of A and of B.
        logits: [row, expert] float32.
        bias: [expert] float32.
        geometry: of the front.
        scoring: of the front.
        rows: [n] which rows of ``logits`` and ``out``.
        out: arrays to be written; see ``gate.PairedRows``.
        bins: int64 [ULP_BINS], added to.
    """
    for start in range(0, len(rows), _CHUNK_ROWS):
        part = rows[start : start + _CHUNK_ROWS]
        some = logits[part]
        ids_a, w_a = select(rules[0], some, bias, geometry, scoring)
        ids_b, w_b = select(rules[1], some, bias, geometry, scoring)
        out.ids_a[part], out.weights_a[part] = ids_a, w_a
        out.ids_b[part], out.weights_b[part] = ids_b, w_b
        code, ulp = compare_pairs(ids_a, w_a, ids_b, w_b, bins)
        out.code[part], out.weight_ulp[part] = code, ulp
        steps, margin, shift = _margins(rules, some, bias, geometry, scoring)
        out.margin_steps[part], out.margin[part], out.shift[part] = steps, margin, shift


def _order(values: F32) -> npt.NDArray[np.int64]:
    bits = np.ascontiguousarray(values).view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def compare_pairs(
    ids_a: Any, w_a: F32, ids_b: Any, w_b: F32, bins: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int64]]:
    """The code [row] and the largest weight distance [row]; weights of equal sets go into bins."""
    by_a, by_b = np.argsort(ids_a, axis=1), np.argsort(ids_b, axis=1)
    other = np.take_along_axis(ids_a, by_a, axis=1) != np.take_along_axis(ids_b, by_b, axis=1)
    code = np.where((ids_a == ids_b).all(axis=1), IDENTICAL, REORDERED).astype(np.int8)
    code[other.any(axis=1)] = DIFFERENT
    x, y = np.take_along_axis(w_a, by_a, axis=1), np.take_along_axis(w_b, by_b, axis=1)
    defined = np.isfinite(x) & np.isfinite(y)
    steps = np.abs(_order(x) - _order(y))
    equal = code != DIFFERENT
    counted = steps[equal[:, None] & defined]
    place = counted.copy()
    wide = counted > 256
    place[wide] = 256 + np.frexp(counted[wide].astype(np.float64))[1]
    bins += np.bincount(place, minlength=ULP_BINS)
    known = equal & defined.all(axis=1)
    return code, np.where(known, steps.max(axis=1), -1)


def _keys(
    rule: SelectArithmetic, logits: F32, bias: F32, geometry: Geometry, scoring: ScoringRule
) -> F32 | None:
    """FP32 keys [row, expert] of rows without anything non-finite; None where there are none."""
    if geometry.groups > 1 or rule.precise or geometry.top_k == geometry.experts:
        return None
    form = scoring.function if rule.score == "rule" else rule.score
    assert not engine_rule(rule, geometry, scoring).precise
    return score(form, select_logits(rule, logits)) + select_bias(rule, bias)


def boundary_margins(
    rule: SelectArithmetic, logits: F32, bias: F32, geometry: Geometry, scoring: ScoringRule
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Steps [row] (-1: undefined) and margin [row] (NaN) between the rule's keys K and K + 1."""
    steps, margin, _ = _margins((rule, None), logits, bias, geometry, scoring)
    return steps, margin


def _margins(
    rules: tuple[SelectArithmetic, SelectArithmetic | None],
    logits: F32,
    bias: F32,
    geometry: Geometry,
    scoring: ScoringRule,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Steps (-1: undefined), margin and shift (NaN) of each row, on A's keys K and K + 1."""
    rows, count = len(logits), geometry.top_k
    steps, margin, shift = np.full(rows, -1), np.full(rows, np.nan), np.full(rows, np.nan)
    with np.errstate(all="ignore"):
        keys_a = _keys(rules[0], logits, bias, geometry, scoring)
        other = rules[1]
        keys_b = None if other is None else _keys(other, logits, bias, geometry, scoring)
    if keys_a is None:
        return steps, margin, shift
    finite = np.isfinite(logits).all(axis=1) & np.isfinite(keys_a).all(axis=1)
    usable = np.flatnonzero(finite)
    ranked = (_order(keys_a[usable]) << 20) - np.arange(geometry.experts)
    last = geometry.experts - count
    pair = np.argpartition(ranked, (last - 1, last), axis=1)[:, [last - 1, last]]
    edge = np.take_along_axis(keys_a[usable], pair, axis=1)
    wide = edge.astype(np.float64)
    steps[usable] = _order(edge)[:, 1] - _order(edge)[:, 0]
    margin[usable] = wide[:, 1] - wide[:, 0]
    if keys_b is not None:
        moved = np.take_along_axis(keys_b[usable], pair, axis=1).astype(np.float64)
        with np.errstate(invalid="ignore"):
            move = (moved[:, 0] - wide[:, 0]) - (moved[:, 1] - wide[:, 1])
        shift[usable] = np.where(np.isfinite(move), move, np.nan)
    return steps, margin, shift
