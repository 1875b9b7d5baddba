"""The loop behind ``gate``: two selections of a row from its few best experts.

Work whose result is known is left out; what is left is the plain selects' own arithmetic. A screen
(``screen``) proves of most experts that they are in neither side's first K + 1. The others
(some 20 to 30 of 896) get exact keys and are ranked; where only the sets are asked for, cheap keys
of these few decide nearly every row. A row that is not finite, or has too many experts near the
boundary, is left to the plain path.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..contract import F32
from ..select_weights import EngineRule, finish
from .compare import DIFFERENT, PLAIN, order32, row_code, row_weight_ulp
from .prefetch import prefetch_row
from .ranking import LOWEST_32, exact_keys, few_cheap_keys, rank, rank_again
from .reach import find_sums, find_values
from .scratch import CANDIDATES, RowOutputs, Scratch
from .screen import (
    LANES,
    cheap_keys,
    lane_maxima,
    near_threshold,
    tangent,
    tangent_maxima,
    threshold,
)
from .uncounted import uncounted, uncounted_nogil

MOST_SLOTS: Final = 40
"""Largest K: the threshold must be well inside the lanes."""
# Lanes that should reach the tangent's limit, beyond K: enough that it holds, few enough to rank.
_SPARE: Final = 3
_MOST_SPARE: Final = 7
_ROWS_BETWEEN_TANGENTS: Final = 64


@uncounted
def _move_tangent(bias: F32, shifts: F32, state: Any) -> None:
    """Put the tangent at the mean logit of the last rows' boundaries."""
    at = 2.0
    if state[8] > 0.0:
        at = min(max(state[7] / state[8], 0.0), 8.0)
    value, slope, largest = tangent(at, bias, shifts)
    state[0], state[1], state[2], state[3] = value, slope, at, largest
    state[7], state[8] = 0.0, 0.0


@uncounted
def _fits(state: Any) -> bool:
    """The tangent is left alone where it misses most rows."""
    return bool(state[6] <= 16.0 + 0.5 * state[5])


@uncounted
def _by_tangent(logits: F32, count: int, s: Scratch) -> Any:
    """Find the candidates of a row; their number, 0 too many, -1 not finite."""
    state, used = s.state, min(len(logits), LANES)
    if not tangent_maxima(logits, s.shifts, s.highest):
        return -1
    state[5] += 1.0
    state[6] += 1.0
    guess = np.float32(state[4])
    limit = near_threshold(s.highest, used, guess, count + _SPARE, count + _MOST_SPARE)
    if limit != limit:
        return 0
    state[4] = np.float64(limit)
    total = find_sums(logits, s.shifts, limit, s.found)
    return total if total <= CANDIDATES else 0


@uncounted
def _highest_out(state: Any, top_bias: float) -> Any:
    """What no key of an expert that the tangent left out exceeds, up to its rounding."""
    # z of such an expert is below the limit up to two roundings.
    limit = state[4]
    z = limit + 2.0**-22 * (abs(limit) + state[3] + 1.0)
    return max(state[0] + state[1] * (z - state[2]), 0.5 + top_bias)


@uncounted
def _by_cheap_keys(logits: F32, bias: F32, count: int, slack: float, s: Scratch) -> Any:
    """The same from cheap keys of all experts."""
    if not cheap_keys(logits, bias, s.cheap):
        return -1
    lane_maxima(s.cheap, s.highest)
    low = np.float64(threshold(s.highest, min(len(logits), LANES), count + 1)) - 2.0 * slack
    limit = np.float32(low) - np.float32(2.0e-7) * abs(np.float32(low))
    total = find_values(s.cheap, limit, s.found)
    return total if total <= CANDIDATES else 0


@uncounted
def _screened(
    logits: F32, bias: F32, code: int, count: int, slack: float, top_bias: float, s: Scratch
) -> Any:
    """Candidates of a row, scored and ranked by A; 0 or less: the plain path."""
    state = s.state
    total: Any = 0
    if _fits(state):
        total = _by_tangent(logits, count, s)
        if total > 0:
            exact_keys(code, logits, bias, s.found, total, s)
            rank(s.places, s.found, total, s.order)
            above = np.float64(s.keys[s.order[count]]) - _highest_out(state, top_bias)
            if above > 4.0 * slack:
                state[6] -= 1.0
            else:
                total = 0
    if total == 0:
        total = _by_cheap_keys(logits, bias, count, slack, s)
        if total > 0:
            exact_keys(code, logits, bias, s.found, total, s)
            rank(s.places, s.found, total, s.order)
    if total > 0:
        state[7] += np.float64(logits[s.found[s.order[count - 1]]])
        state[8] += 1.0
    return total


@uncounted
def _same_by_cheap_keys(
    logits: F32, bias: F32, count: int, slack: float, top_bias: float, s: Scratch
) -> bool:
    """Whether the candidates' cheap keys alone prove that both sides select one set.

    Each side's key is within ``slack`` of the cheap one, so a gap of more than 2 ``slack`` between
    the cheap keys K and K + 1 leaves no other order to either side.
    """
    state, below = s.state, -np.inf
    total: Any = 0
    if _fits(state):
        total = _by_tangent(logits, count, s)
        # One more slack than for exact keys.
        below = _highest_out(state, top_bias) + 5.0 * slack
    if total == 0:
        total, below = _by_cheap_keys(logits, bias, count, slack, s), -np.inf
    if total <= 0:
        return False
    few_cheap_keys(logits, bias, s.found, total, s)
    rank(s.places, s.found, total, s.order)
    last, after = np.float64(s.keys[s.order[count - 1]]), np.float64(s.keys[s.order[count]])
    if after <= below:
        return False
    if below > -np.inf:
        state[6] -= 1.0
    state[7] += np.float64(logits[s.found[s.order[count - 1]]])
    state[8] += 1.0
    return bool(last - after > 2.0 * slack)


@uncounted_nogil
def gate_rows(
    logits: F32,
    bias: F32,
    rules: tuple[EngineRule, EngineRule],
    slack: float,
    window: float,
    out: RowOutputs,
    bins: Any,
    span: tuple[int, int],
    s: Scratch,
) -> int:
    """Select rows span[0]..span[1] with both rules; return how many needed B's own selection.

    Args:
        logits: [row, expert] float32, what both sides score.
        bias: [expert] float32, finite.
        rules: of A and of B; their scores are elementwise and in ``FAST_FORMS``.
        slack: how far a cheap key, or the exact sigmoid plus bias, may be from either side's key.
        window: where A's keys K and K + 1 are further apart than this, B selects the same set;
            negative where nothing is proven.
        out: arrays to be written; rows of code ``PLAIN`` are left undefined.
        bins: int64 [ULP_BINS], weights by FP32 distance, added to.
        span: first row, and the row after the last.
        s: of ``make_scratch``. Nothing is allocated here, and references are not counted
            (``_nrt=False``): their atomic additions took a third of the time.
    """
    rule_a, rule_b = rules
    experts, count = logits.shape[1], out.ids_a.shape[1]
    order, keys, scores, found = s.order, s.keys, s.scores, s.found
    top_bias = np.float64(bias[0])
    first, chosen, values, sums, marks = s.first, s.chosen, s.values, s.sums, s.marks
    all_a, all_b = s.by_expert[0], s.by_expert[1]
    ids_a, ids_b, w_a, w_b = s.ids[0], s.ids[1], s.weights[0], s.weights[1]
    for expert in range(experts):
        marks[expert] = -1
        top_bias = max(top_bias, np.float64(bias[expert]))
    twice = 0
    for row in range(span[0], span[1]):
        if (row - span[0]) % _ROWS_BETWEEN_TANGENTS == 0:
            _move_tangent(bias, s.shifts, s.state)
        out.code[row] = PLAIN
        line = logits[row]
        if row + 1 < span[1]:
            prefetch_row(logits.ctypes.data, row + 1, 4 * experts)
        total = _screened(line, bias, rule_a.score, count, slack, top_bias, s)
        if total <= 0:
            continue
        for n in range(total):
            first[n] = found[order[n]]
        key_last, key_next = keys[order[count - 1]], keys[order[count]]
        margin = np.float64(key_last) - np.float64(key_next)
        out.margin[row] = margin
        out.margin_steps[row] = order32(key_last) - order32(key_next)
        for n in range(count):
            chosen[n] = first[n]
            all_a[first[n]] = scores[order[n]]
        finish(all_a, chosen, rule_a, values, sums, ids_a, w_a)
        # In A's order: where no swap is possible, B's first K are A's.
        known = margin > window and window >= 0.0
        exact_keys(rule_b.score, line, bias, first, count + 1 if known else total, s)
        move = np.float64(keys[count]) - np.float64(key_next)
        out.shift[row] = move - (np.float64(keys[count - 1]) - np.float64(key_last))
        if known:
            s.places[count] = LOWEST_32
            rank_again(s.places, first, count, order)
        else:
            rank(s.places, first, total, order)
            twice += 1
        for n in range(count):
            chosen[n] = first[order[n]]
            all_b[chosen[n]] = scores[order[n]]
        finish(all_b, chosen, rule_b, values, sums, ids_b, w_b)
        code = row_code(ids_a, ids_b, marks, row)
        ulp = -1
        if code != DIFFERENT:
            ulp = row_weight_ulp(ids_a, w_a, ids_b, w_b, s.weight_of, bins)
            code = PLAIN if ulp < 0 else code
        for n in range(count):
            out.ids_a[row, n], out.weights_a[row, n] = ids_a[n], w_a[n]
            out.ids_b[row, n], out.weights_b[row, n] = ids_b[n], w_b[n]
        out.weight_ulp[row] = ulp
        out.code[row] = code
    return twice


SAME: Final = 0
DIFFERS: Final = 1
UNDECIDED: Final = 2


@uncounted_nogil
def set_rows(
    logits: F32,
    bias: F32,
    rules: tuple[EngineRule, EngineRule],
    slack: float,
    window: float,
    answers: Any,
    span: tuple[int, int],
    s: Scratch,
) -> int:
    """Tell of rows span[0]..span[1] whether both rules select the same set.

    As ``gate_rows`` without weights and margins: first by cheap keys; where these are too close,
    exact keys of A, and where the boundary of A is not wider than the window, those of B.

    Args:
        logits: [row, expert] float32.
        bias: [expert] float32, finite.
        rules: of A and of B, as in ``gate_rows``.
        slack: as in ``gate_rows``.
        window: as in ``gate_rows``.
        answers: int8 [row], written: ``SAME``, ``DIFFERS``, or ``UNDECIDED`` where it takes the
            plain path.
        span: first row, and the row after the last.
        s: of ``make_scratch``.
    """
    rule_a, rule_b = rules
    experts, count = logits.shape[1], len(s.chosen)
    order, keys, found, first = s.order, s.keys, s.found, s.first
    top_bias = np.float64(bias[0])
    for expert in range(experts):
        top_bias = max(top_bias, np.float64(bias[expert]))
    twice = 0
    for row in range(span[0], span[1]):
        if (row - span[0]) % _ROWS_BETWEEN_TANGENTS == 0:
            _move_tangent(bias, s.shifts, s.state)
        line = logits[row]
        if row + 1 < span[1]:
            prefetch_row(logits.ctypes.data, row + 1, 4 * experts)
        answers[row] = SAME
        if _same_by_cheap_keys(line, bias, count, slack, top_bias, s):
            continue
        total = _screened(line, bias, rule_a.score, count, slack, top_bias, s)
        if total <= 0:
            answers[row] = UNDECIDED
            continue
        margin = np.float64(keys[order[count - 1]]) - np.float64(keys[order[count]])
        if margin > window and window >= 0.0:
            continue
        for n in range(total):
            first[n] = found[order[n]]
        exact_keys(rule_b.score, line, bias, first, total, s)
        rank(s.places, first, total, order)
        twice += 1
        for n in range(count):
            if order[n] >= count:
                answers[row] = DIFFERS
    return twice
