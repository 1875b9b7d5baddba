"""The loop behind ``fast_gate``: two selections of a row from its few best experts.

Work whose result is known is left out; what is left is the plain selects' own arithmetic. A cheap
key (``fast_score``) of every expert, within ``slack`` of each side's FP32 key, gives a threshold
that K + 1 experts reach; an expert more than 2 ``slack`` below it is in neither side's first K + 1.
The others (some 20 of 896) get exact keys and are ranked. A row that is not finite, or has too
many experts near the threshold, is left to the plain path.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numba
import numpy as np

from .contract import F32
from .fast_score import cheap_sigmoid
from .scores import fill_scores
from .select_weights import LANES as WARP
from .select_weights import EngineRule, finish

IDENTICAL: Final = 0
REORDERED: Final = 1
DIFFERENT: Final = 2
PLAIN: Final = 3
"""Codes of a row; ``PLAIN`` asks for the plain path."""

LANES: Final = 128
"""Experts i, i + 128, ... share a lane; the lanes' maxima give the threshold."""
MOST_SLOTS: Final = 40
"""Largest K: the threshold must be well inside the lanes."""
_CANDIDATES: Final = 64
_PIECE: Final = 32
_LOWEST: Final = np.iinfo(np.int64).min
_TINY: Final = np.float32(-3.0e38)
_BISECTIONS: Final = 20
ULP_BINS: Final = 320
"""Bins 0..256 are FP32 steps, bin 257 + p is 2^p steps and up, below 2^(p + 1)."""


class RowOutputs(NamedTuple):
    """What the loop writes, [row] or [row, slot]; see ``fast_gate.PairedRows``."""

    ids_a: Any
    weights_a: Any
    ids_b: Any
    weights_b: Any
    code: Any
    margin_steps: Any
    margin: Any
    shift: Any
    weight_ulp: Any


@numba.njit(cache=True, error_model="numpy")
def order32(key: Any) -> Any:
    """An integer in the order of finite float32 keys; -0 equals +0."""
    bits = np.int64(np.float32(key).view(np.int32))
    return bits if bits >= 0 else -(bits & 0x7FFFFFFF)


@numba.njit(cache=True, error_model="numpy")
def _cheap_keys(logits: F32, bias: F32, keys: F32) -> bool:
    """Write cheap keys [expert]; False where a logit is not finite."""
    worst = np.uint32(0)
    for i in range(len(logits)):
        worst = max(worst, np.float32(logits[i]).view(np.uint32) & np.uint32(0x7FFFFFFF))
        keys[i] = cheap_sigmoid(logits[i]) + bias[i]
    return bool(worst < np.uint32(0x7F800000))


@numba.njit(cache=True, error_model="numpy")
def _lane_maxima(keys: F32, highest: F32) -> None:
    """Write the largest of keys lane, lane + LANES, ...; four lines a pass save stores."""
    lines = keys.reshape(-1, LANES)
    for lane in range(LANES):
        highest[lane] = _TINY
    for line in range(0, len(lines), 4):
        p, q, r, s = lines[line], lines[line + 1], lines[line + 2], lines[line + 3]
        for lane in range(LANES):
            left = p[lane] if p[lane] > q[lane] else q[lane]
            right = r[lane] if r[lane] > s[lane] else s[lane]
            both = left if left > right else right
            highest[lane] = both if both > highest[lane] else highest[lane]


@numba.njit(cache=True, error_model="numpy")
def _threshold(highest: F32, count: int) -> Any:
    """A value that at least ``count`` of the lanes' maxima reach, and few more."""
    low, high = highest[0], highest[0]
    for lane in range(len(highest)):
        low = min(low, highest[lane])
        high = max(high, highest[lane])
    for _ in range(_BISECTIONS):
        middle = np.float32(np.float32(0.5) * (low + high))
        reached = np.int32(0)
        for lane in range(len(highest)):
            reached += np.int32(highest[lane] >= middle)
        if reached >= count:
            low = middle
            if reached <= count + 1:
                break
        else:
            high = middle
    return low


@numba.njit(cache=True, error_model="numpy")
def _candidates(keys: F32, highest: F32, threshold: Any, lanes: Any, found: Any) -> Any:
    """Write the experts whose cheap key reaches the threshold; return how many."""
    used: Any = 0
    for lane in range(len(highest)):
        lanes[used] = lane
        used += np.int64(highest[lane] >= threshold)
    count: Any = 0
    lines = len(keys) // LANES
    for n in range(used):
        i = lanes[n]
        for _ in range(lines):
            found[count] = i
            count += np.int64(keys[i] >= threshold)
            i += np.uint32(LANES)
    return count


@numba.njit(cache=True, error_model="numpy")
def _exact(code: int, logits: F32, bias: F32, ids: Any, count: int, side: Any) -> None:
    """Write the exact scores and keys of ``ids[:count]``, the plain select's arithmetic."""
    inputs, scores, keys, ranked = side
    pieces = (count + _PIECE - 1) // _PIECE * _PIECE
    for n in range(pieces):
        inputs[n] = logits[ids[n]] if n < count else np.float32(0.0)
    for start in range(0, pieces, _PIECE):
        fill_scores(code, inputs[start : start + _PIECE], scores[start : start + _PIECE])
    for n in range(count):
        keys[n] = scores[n] + bias[ids[n]]
    for n in range(pieces):
        # One integer that orders by key, then by the lower id; ids are below 2^20.
        ranked[n] = (order32(keys[n]) << 20) - np.int64(ids[n]) if n < count else _LOWEST


@numba.njit(cache=True, error_model="numpy")
def _rank(ranked: Any, count: int, order: Any) -> None:
    """Write into ``order`` the positions of the ``count`` distinct integers, largest first."""
    pieces = (count + _PIECE - 1) // _PIECE * _PIECE
    for n in range(count):
        value = ranked[n]
        above: Any = 0
        for other in range(pieces):
            above += np.int64(ranked[other] > value)
        order[above] = n


@numba.njit(cache=True, error_model="numpy")
def _bin(steps: int) -> int:
    """The bin of a distance, see ``ULP_BINS``."""
    if steps <= 256:
        return steps
    power = 0
    while steps >> (power + 1):
        power += 1
    return 257 + power


@numba.njit(cache=True, error_model="numpy")
def row_weight_ulp(ids_a: Any, w_a: Any, ids_b: Any, w_b: Any, scratch: Any, bins: Any) -> int:
    """The largest FP32 distance of two weights of one expert, counted into ``bins``; -1: none."""
    largest = 0
    for slot in range(len(ids_a)):
        if w_a[slot] - w_a[slot] != np.float32(0.0) or w_b[slot] - w_b[slot] != np.float32(0.0):
            return -1
    for slot in range(len(ids_a)):
        scratch[ids_a[slot]] = w_a[slot]
    for slot in range(len(ids_b)):
        steps = abs(order32(w_b[slot]) - order32(scratch[ids_b[slot]]))
        bins[_bin(steps)] += 1
        largest = max(largest, steps)
    return largest


@numba.njit(cache=True, error_model="numpy")
def row_code(ids_a: Any, ids_b: Any, marks: Any, mark: int) -> int:
    """The code of two rows of distinct ids."""
    count = len(ids_a)
    alike: Any = 0
    for slot in range(count):
        alike += np.int64(ids_a[slot] == ids_b[slot])
    if alike == count:
        return IDENTICAL
    for slot in range(count):
        marks[ids_a[slot]] = mark
    found: Any = 0
    for slot in range(count):
        found += np.int64(marks[ids_b[slot]] == mark)
    return REORDERED if found == count else DIFFERENT


@numba.njit(cache=True, error_model="numpy")
def _side() -> Any:
    return (
        np.zeros(_CANDIDATES, np.float32),
        np.zeros(_CANDIDATES, np.float32),
        np.zeros(_CANDIDATES, np.float32),
        np.zeros(_CANDIDATES, np.int64),
    )


@numba.njit(cache=True, error_model="numpy", nogil=True)
def gate_rows(
    logits: F32,
    bias: F32,
    rules: tuple[EngineRule, EngineRule],
    slack: float,
    window: float,
    out: RowOutputs,
    bins: Any,
    span: tuple[int, int],
) -> int:
    """Select rows span[0]..span[1] with both rules; return how many needed B's own selection.

    Args:
        logits: [row, expert] float32, what both sides score.
        bias: [expert] float32, finite.
        rules: of A and of B; their scores are elementwise and in ``FAST_FORMS``.
        slack: how far a cheap key may be from either side's key.
        window: where A's keys K and K + 1 are further apart than this, B selects the same set;
            negative where nothing is proven.
        out: arrays to be written; rows of code ``PLAIN`` are left undefined.
        bins: int64 [ULP_BINS], weights by FP32 distance, added to.
        span: first row, and the row after the last.
    """
    rule_a, rule_b = rules
    experts, count = logits.shape[1], out.ids_a.shape[1]
    lines = (experts + LANES - 1) // LANES
    # The padding is far below every key.
    keys, maxima = np.full((lines + 3) // 4 * 4 * LANES, _TINY), np.empty(LANES, np.float32)
    highest, some = maxima[: min(experts, LANES)], keys[: lines * LANES]
    lanes, found = np.empty(LANES + 1, np.uint32), np.zeros(len(keys) + 1, np.uint32)
    order, first = np.empty(_CANDIDATES, np.int64), np.empty(_CANDIDATES, np.uint32)
    side_a, side_b = _side(), _side()
    all_a, all_b = np.zeros(experts, np.float32), np.zeros(experts, np.float32)
    chosen = np.empty(count, np.int32)
    marks, scratch = np.full(experts, -1, np.int64), np.empty(experts, np.float32)
    values, sums = np.empty(count, np.float32), np.empty(max(2 * count, WARP), np.float32)
    twice = 0
    for row in range(span[0], span[1]):
        out.code[row] = PLAIN
        if not _cheap_keys(logits[row], bias, keys):
            continue
        _lane_maxima(keys, maxima)
        low = np.float64(_threshold(highest, count + 1)) - 2.0 * slack
        limit = np.float32(low) - np.float32(2.0e-7) * abs(np.float32(low))
        total = _candidates(some, highest, limit, lanes, found)
        if total > _CANDIDATES:
            continue
        _exact(rule_a.score, logits[row], bias, found, total, side_a)
        _rank(side_a[3], total, order)
        for n in range(total):
            first[n] = found[order[n]]
        key_last, key_next = side_a[2][order[count - 1]], side_a[2][order[count]]
        margin = np.float64(key_last) - np.float64(key_next)
        out.margin[row] = margin
        out.margin_steps[row] = order32(key_last) - order32(key_next)
        for n in range(count):
            chosen[n] = first[n]
            all_a[first[n]] = side_a[1][order[n]]
        finish(all_a, chosen, rule_a, values, sums, out.ids_a[row], out.weights_a[row])
        # In A's order: where no swap is possible, B's first K are A's.
        known = margin > window and window >= 0.0
        _exact(rule_b.score, logits[row], bias, first, count + 1 if known else total, side_b)
        move = np.float64(side_b[2][count]) - np.float64(key_next)
        out.shift[row] = move - (np.float64(side_b[2][count - 1]) - np.float64(key_last))
        side_b[3][count] = _LOWEST if known else side_b[3][count]
        _rank(side_b[3], count if known else total, order)
        twice += 0 if known else 1
        for n in range(count):
            chosen[n] = first[order[n]]
            all_b[chosen[n]] = side_b[1][order[n]]
        finish(all_b, chosen, rule_b, values, sums, out.ids_b[row], out.weights_b[row])
        code = row_code(out.ids_a[row], out.ids_b[row], marks, row)
        out.weight_ulp[row] = -1
        if code != DIFFERENT:
            ids_a, ids_b = out.ids_a[row], out.ids_b[row]
            w_a, w_b = out.weights_a[row], out.weights_b[row]
            out.weight_ulp[row] = row_weight_ulp(ids_a, w_a, ids_b, w_b, scratch, bins)
            code = PLAIN if out.weight_ulp[row] < 0 else code
        out.code[row] = code
    return twice
