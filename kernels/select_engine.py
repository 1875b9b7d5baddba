"""The one selection loop that every named select runs through, driven by small integer codes."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, Final

import numba
import numpy as np

from .contract import F32, I32
from .scores import fill_scores, fill_scores64
from .select_weights import LANES, EngineRule, finish

NAN_KEYS: Final = ("minus_inf", "lowest", "highest")

# Below the order of every key: an expert outside the chosen groups, and an unfilled slot.
_EXCLUDED: Final = np.iinfo(np.int64).min
_ROWS_PER_THREAD: Final = 64


@numba.njit(error_model="numpy", cache=True)
def _order32(key: Any, nan_order: int) -> Any:
    """An integer in the order of float32 keys; -0 equals +0."""
    bits: Any = np.int64(np.float32(key).view(np.int32))
    if bits < 0:
        bits = -(bits & 0x7FFFFFFF)
    if key != key:
        bits = nan_order
    return bits


@numba.njit(error_model="numpy", cache=True)
def _order64(key: Any, nan_order: int) -> Any:
    """An integer in the order of float64 keys; -0 equals +0."""
    bits: Any = np.float64(key).view(np.int64)
    if bits < 0:
        bits = -(bits & 0x7FFFFFFFFFFFFFFF)
    if key != key:
        bits = nan_order
    return bits


@numba.njit(error_model="numpy", cache=True)
def _nan_order(code: int, precise: bool) -> Any:
    if code == 0:
        return _order64(-np.inf, 0) if precise else _order32(np.float32(-np.inf), 0)
    return _EXCLUDED + 1 if code == 1 else np.int64(0x7FFFFFFFFFFFFFFF)


# x - x is 0 for a finite x and NaN otherwise, and the compiler can test it in vectors.
@numba.njit(error_model="numpy", cache=True)
def _keys32(logits: F32, bias: F32, rule: EngineRule, scores: F32, keys: F32) -> None:
    for i in range(len(logits)):
        score = scores[i]
        if rule.zero_score and score - score != np.float32(0.0):
            score = np.float32(0.0)
        key = score + bias[i]
        masked = rule.mask_logit and logits[i] - logits[i] != np.float32(0.0)
        masked |= rule.mask_bias and bias[i] - bias[i] != np.float32(0.0)
        if masked:
            score = np.float32(0.0)
            key = np.float32(-np.inf)
        scores[i] = score
        keys[i] = key


@numba.njit(error_model="numpy", cache=True)
def _orders32(keys: F32, nan_order: int, orders: Any) -> None:
    for i in range(len(keys)):
        orders[i] = _order32(keys[i], nan_order)


@numba.njit(error_model="numpy", cache=True)
def _orders64(keys: Any, nan_order: int, orders: Any) -> None:
    for i in range(len(keys)):
        orders[i] = _order64(keys[i], nan_order)


@numba.njit(error_model="numpy", cache=True)
def _top(orders: Any, count: int, best: Any, ids: Any) -> None:
    """Write the ``count`` largest orders, descending, and their positions; lower ones first."""
    for slot in range(count):
        best[slot] = _EXCLUDED
        ids[slot] = -1
    total = len(orders)
    for start in range(0, total, 32):
        stop = min(start + 32, total)
        highest = orders[start]
        for i in range(start + 1, stop):
            highest = max(highest, orders[i])
        if highest <= best[count - 1]:
            continue
        for i in range(start, stop):
            order = orders[i]
            if order <= best[count - 1]:
                continue
            slot = count - 1
            while slot > 0 and best[slot - 1] < order:
                best[slot] = best[slot - 1]
                ids[slot] = ids[slot - 1]
                slot -= 1
            best[slot] = order
            ids[slot] = i


@numba.njit(error_model="numpy", cache=True)
def _exclude_groups(keys: Any, orders: Any, rule: EngineRule, nan_order: int) -> None:
    """Exclude experts outside the best groups: by the sum of a group's two best keys."""
    size = len(keys) // rule.groups
    pair = min(2, size)
    best = np.empty(max(2, rule.top_groups), np.int64)
    ids = np.empty(max(2, rule.top_groups), np.int32)
    group_orders = np.empty(rule.groups, np.int64)
    for group in range(rule.groups):
        first = group * size
        _top(orders[first : first + size], pair, best, ids)
        total = keys[first + ids[0]]
        if pair == 2:
            total += keys[first + ids[1]]
        if rule.precise:
            group_orders[group] = _order64(np.float64(total), nan_order)
        else:
            group_orders[group] = _order32(np.float32(total), nan_order)
    _top(group_orders, rule.top_groups, best, ids)
    chosen = np.zeros(rule.groups, np.bool_)
    for slot in range(rule.top_groups):
        chosen[ids[slot]] = True
    for group in range(rule.groups):
        if not chosen[group]:
            for i in range(group * size, (group + 1) * size):
                orders[i] = _EXCLUDED


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _block32(
    logits: F32, bias: F32, rule: EngineRule, ids: I32, weights: F32, start: int, stop: int
) -> None:
    experts, count = logits.shape[1], ids.shape[1]
    nan_order = _nan_order(rule.nan_key, False)
    empty = _order32(np.float32(-np.inf), 0)
    scores, keys = np.empty(experts, np.float32), np.empty(experts, np.float32)
    orders, best = np.empty(experts, np.int64), np.empty(count, np.int64)
    chosen = np.empty(count, np.int32)
    values, lanes = np.empty(count, np.float32), np.empty(max(2 * count, LANES), np.float32)
    for row in range(start, stop):
        fill_scores(rule.score, logits[row], scores)
        _keys32(logits[row], bias, rule, scores, keys)
        _orders32(keys, nan_order, orders)
        if rule.groups > 1:
            _exclude_groups(keys, orders, rule, nan_order)
        _top(orders, count, best, chosen)
        if rule.uniform_if_none and best[0] <= empty:
            for slot in range(count):
                ids[row, slot] = slot
                weights[row, slot] = np.float32(1.0) / np.float32(count)
            continue
        finish(scores, chosen, rule, values, lanes, ids[row], weights[row])


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _block64(
    logits: F32, bias: F32, rule: EngineRule, ids: I32, weights: F32, start: int, stop: int
) -> None:
    experts, count = logits.shape[1], ids.shape[1]
    nan_order = _nan_order(rule.nan_key, True)
    scores, keys = np.empty(experts, np.float64), np.empty(experts, np.float64)
    orders, best = np.empty(experts, np.int64), np.empty(count, np.int64)
    chosen = np.empty(count, np.int32)
    values, lanes = np.empty(count, np.float64), np.empty(max(2 * count, LANES), np.float64)
    for row in range(start, stop):
        fill_scores64(rule.score, logits[row], scores)
        for i in range(experts):
            keys[i] = scores[i] + np.float64(bias[i])
        _orders64(keys, nan_order, orders)
        if rule.groups > 1:
            _exclude_groups(keys, orders, rule, nan_order)
        _top(orders, count, best, chosen)
        finish(scores, chosen, rule, values, lanes, ids[row], weights[row])


def select_rows(logits: F32, bias: F32, rule: EngineRule, ids: I32, weights: F32) -> None:
    """Select logits [row, expert] with bias [expert] into ids and weights [row, slot].

    ``rule.precise`` scores, keys and sums in FP64 and rounds weights once; otherwise each step
    rounds to FP32. Rows share nothing, so threads (the loops leave the interpreter lock) cannot
    change a bit; for a few rows they would cost more than they save.
    """
    block = _block64 if rule.precise else _block32
    rows = len(logits)
    workers = min(os.cpu_count() or 1, rows // _ROWS_PER_THREAD)
    if workers <= 1:
        block(logits, bias, rule, ids, weights, 0, rows)
        return
    cuts = [rows * worker // workers for worker in range(workers + 1)]
    with ThreadPoolExecutor(workers) as pool:
        parts = [
            pool.submit(block, logits, bias, rule, ids, weights, start, stop)
            for start, stop in pairwise(cuts)
        ]
        for part in parts:
            part.result()


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _score_rows64(code: int, logits: F32, out: Any) -> None:
    for row in range(len(logits)):
        fill_scores64(code, logits[row], out[row])


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _pick_block(keys: Any, rule: EngineRule, ids: I32, none: Any) -> None:
    experts, count = keys.shape[1], ids.shape[1]
    nan_order = _nan_order(rule.nan_key, rule.precise)
    empty = _order32(np.float32(-np.inf), 0)
    orders, best = np.empty(experts, np.int64), np.empty(count, np.int64)
    for row in range(len(keys)):
        if rule.precise:
            _orders64(keys[row], nan_order, orders)
        else:
            _orders32(keys[row], nan_order, orders)
        if rule.groups > 1:
            _exclude_groups(keys[row], orders, rule, nan_order)
        _top(orders, count, best, ids[row])
        none[row] = rule.uniform_if_none and best[0] <= empty


@numba.njit(error_model="numpy", cache=True, nogil=True)
def _finish_block(scores: Any, chosen: I32, none: Any, rule: EngineRule, ids: I32, w: F32) -> None:
    count = chosen.shape[1]
    values, lanes = np.empty(count, scores.dtype), np.empty(max(2 * count, LANES), scores.dtype)
    for row in range(len(scores)):
        if rule.uniform_if_none and none[row]:
            for slot in range(count):
                ids[row, slot] = slot
                w[row, slot] = np.float32(1.0) / np.float32(count)
            continue
        finish(scores[row], chosen[row].copy(), rule, values, lanes, ids[row], w[row])


def score_rows64(code: int, logits: F32) -> Any:
    """Return the FP64 scores [row, expert] of a form, by its code."""
    out = np.empty(logits.shape)
    _score_rows64(code, logits, out)
    return out


def pick_rows(keys: Any, rule: EngineRule, ids: I32, none: Any) -> None:
    """Select from keys [row, expert]: a part of ``select_rows``.

    Args:
        keys: float64 where ``rule.precise``, else float32.
        rule: the select.
        ids: [row, slot], written in selection order.
        none: [row] bool, written: whether ``uniform_if_none`` applies.
    """
    _pick_block(keys, rule, ids, none)


def finish_rows(
    scores: Any, chosen: I32, none: Any, rule: EngineRule, ids: I32, weights: F32
) -> None:
    """Write ids and weights [row, slot] of what ``pick_rows`` chose: the rest of ``select_rows``.

    Args:
        scores: [row, expert], of the type of the keys.
        chosen: [row, slot] in selection order.
        none: [row] bool, from ``pick_rows``.
        rule: the select.
        ids: [row, slot], written in the rule's slot order.
        weights: [row, slot], written.
    """
    _finish_block(scores, chosen, none, rule, ids, weights)
