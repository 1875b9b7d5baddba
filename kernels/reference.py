"""The reference that judges both paths. It shares no code with them and checks its own answer."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..banks.errors import InputError
from ..banks.geometry import Geometry, ScoringRule
from .contract import F32, F64, I32
from .reference_product import reference_product as reference_product
from .reference_scores import ordered, round_scores, scores

_Bool = npt.NDArray[np.bool_]
_Int = npt.NDArray[Any]
# A chunk's temporaries (512 KiB each) stay near the core, and numpy's own overhead is small.
_CHUNK_ELEMENTS = 1 << 16


class ReferenceError(RuntimeError):
    """The reference's own answer failed its check; nothing may be judged by it."""


@dataclass(frozen=True, eq=False)
class ReferenceSelection:
    """What exact arithmetic selects, and the keys that differences are measured on.

    Attributes:
        scores: [row, expert] float64.
        scores32: [row, expert] float32, the correctly rounded true scores.
        keys: [row, expert] float32, FP32(scores32 + bias); excluded experts keep theirs.
        keys64: [row, expert] float64, scores + bias.
        eligible: [row, expert] whether the expert's group was chosen; None without groups.
        group_keys: [row, group] float32, sum of the group's two best ``keys``; None without.
        ids: [row, slot] int32 by ``keys`` descending, then lower id; NaN last.
        weights: [row, slot] float64, from the unbiased FP64 scores of ``ids``.
        ids64: [row, slot] int32, the same by ``keys64`` (groups chosen by FP64 sums too).
        boundary_ulp: [row] int64, FP32 steps between the K-th and the next eligible key; -1
            where one of them is not finite or there is no next.
    """

    scores: F64
    scores32: F32
    keys: F32
    keys64: F64
    eligible: _Bool | None
    group_keys: F32 | None
    ids: I32
    weights: F64
    ids64: I32
    boundary_ulp: npt.NDArray[np.int64]


def _largest(order: _Int, count: int) -> tuple[I32, _Int]:
    """Columns [row, count] of the largest integers, then lower column; and the next value [row].

    The next value is the row's (count + 1)-th largest; the lowest integer where there is none.
    """
    rows, columns = order.shape
    first = max(columns - count - 1, 0)
    top = np.partition(order, first, axis=1)[:, first:]
    if columns > count:
        after = top[:, 0]
        limit = top[:, 1:].min(axis=1)
    else:
        after = np.full(rows, np.iinfo(order.dtype).min, order.dtype)
        limit = top.min(axis=1)
    chosen = order >= limit[:, None]
    for row in np.flatnonzero(np.count_nonzero(chosen, axis=1) > count):
        equal = np.flatnonzero(order[row] == limit[row])
        above = int(np.count_nonzero(order[row] > limit[row]))
        chosen[row, equal[count - above :]] = False
    ids = np.flatnonzero(chosen).reshape(rows, count) % columns
    picked = np.take_along_axis(order, ids, axis=1)
    # Ids ascend here, so a stable sort of the reversed integers (~x = -x - 1) keeps lower first.
    slots = np.argsort(~picked, axis=1, kind="stable")
    return np.take_along_axis(ids, slots, axis=1).astype(np.int32), after


def _group_keys(keys: npt.NDArray[Any], groups: int) -> npt.NDArray[Any]:
    """Sum [row, group] of each group's two best keys, or its best where there is one; NaN last."""
    rows, experts = keys.shape
    size = experts // groups
    grouped = keys.reshape(rows * groups, size)
    order = ordered(grouped)
    best, _ = _largest(order, min(2, size))
    values = np.take_along_axis(grouped, best.astype(np.int64), axis=1)
    total = values[:, 0] if size == 1 else values[:, 0] + values[:, 1]
    return np.ascontiguousarray(total).reshape(rows, groups)


def _eligible(group_keys: npt.NDArray[Any], geometry: Geometry) -> _Bool:
    """Whether each expert [row, expert] lies in one of the best ``top_groups`` groups."""
    chosen, _ = _largest(ordered(group_keys), geometry.top_groups)
    groups = np.zeros(group_keys.shape, np.bool_)
    np.put_along_axis(groups, chosen.astype(np.int64), True, axis=1)
    return np.repeat(groups, geometry.experts // geometry.groups, axis=1)


def _select(keys: npt.NDArray[Any], eligible: _Bool | None, top_k: int) -> tuple[I32, _Int]:
    """Ids [row, slot] by key, and the steps [row] from the K-th key to the next (-1: undefined)."""
    order = ordered(keys)
    lowest = np.iinfo(order.dtype).min
    if eligible is not None:
        order[~eligible] = lowest
    ids, after = _largest(order, top_k)
    last_id = ids[:, -1:].astype(np.int64)
    last = np.take_along_axis(order, last_id, axis=1)[:, 0]
    infinity = ordered(np.array([np.inf], keys.dtype))[0]
    defined = (after > -infinity) & (last < infinity)
    steps = np.where(defined, last.astype(np.int64) - np.where(defined, after, last), -1)
    return ids, steps


def _weights(values: F64, ids: I32, scoring: ScoringRule) -> F64:
    """Weights [row, slot] of the selected scores, summed in slot order."""
    selected = np.take_along_axis(values, ids.astype(np.int64), axis=1)
    if not scoring.renormalize:
        return selected * scoring.scale
    total = np.zeros(len(ids))
    for slot in range(ids.shape[1]):
        total = total + selected[:, slot]
    return selected / (total + scoring.epsilon)[:, None] * scoring.scale


def _row_is_right(keys: F32, eligible: _Bool, ids: I32) -> bool:
    """Whether one row's ids are the K largest keys in order, told without any sort."""
    if len(set(ids.tolist())) != len(ids) or not eligible[ids].all():
        return False
    others = [i for i in np.flatnonzero(eligible).tolist() if i not in set(ids.tolist())]

    def before(i: int, j: int) -> bool:
        a, b = float(keys[i]), float(keys[j])
        if a != a or b != b:
            return b != b and (a == a or i < j)
        return a > b or (a == b and i < j)

    chain = all(before(i, j) for i, j in zip(ids[:-1].tolist(), ids[1:].tolist(), strict=True))
    return chain and all(before(int(ids[-1]), j) for j in others)


def _check(keys: F32, eligible: _Bool | None, ids: I32, first_row: int) -> None:
    """Refuse an answer that is not the K largest keys, value first and lower id next.

    A row passes quickly where its slots descend strictly and exactly K eligible keys reach the
    last slot's key; ties and NaN are looked at one by one.

    Raises:
        ReferenceError: a row fails.
    """
    if ids.size and not (ids.min() >= 0 and ids.max() < keys.shape[1]):
        raise ReferenceError(f"reference ids leave 0..{keys.shape[1] - 1} near row {first_row}")
    picked = np.take_along_axis(keys, ids.astype(np.int64), axis=1)
    reach = keys >= picked[:, -1:]
    if eligible is not None:
        reach &= eligible
        inside = np.take_along_axis(eligible, ids.astype(np.int64), axis=1).all(axis=1)
    else:
        inside = np.ones(len(ids), np.bool_)
    quick = inside & (np.count_nonzero(reach, axis=1) == ids.shape[1])
    quick &= (picked[:, :-1] > picked[:, 1:]).all(axis=1)
    # A NaN key fails ">=" and could hide; the slow look knows where NaN belongs.
    quick &= ~np.isnan(picked).any(axis=1)
    everyone = np.ones(keys.shape[1], np.bool_)
    for row in np.flatnonzero(~quick):
        allowed = everyone if eligible is None else eligible[row]
        if not _row_is_right(keys[row], allowed, ids[row]):
            raise ReferenceError(
                f"reference ids={ids[row].tolist()}, but should be the {ids.shape[1]} largest "
                f"keys, lower id first on equal keys [row {first_row + int(row)}]"
            )


def _chunk(
    logits: F64, bias: F32 | None, geometry: Geometry, scoring: ScoringRule
) -> tuple[Any, ...]:
    """One chunk's fields of ``ReferenceSelection`` in their order."""
    values = scores(scoring.function, logits)
    rounded = round_scores(scoring.function, logits, values)
    keys = rounded if bias is None else rounded + bias
    keys64 = values if bias is None else values + bias.astype(np.float64)
    eligible = eligible64 = group_keys = None
    if geometry.groups > 1:
        group_keys = _group_keys(keys, geometry.groups)
        eligible = _eligible(group_keys, geometry)
        eligible64 = _eligible(_group_keys(keys64, geometry.groups), geometry)
    ids, steps = _select(keys, eligible, geometry.top_k)
    ids64, _ = _select(keys64, eligible64, geometry.top_k)
    weights = _weights(values, ids, scoring)
    return values, rounded, keys, keys64, eligible, group_keys, ids, weights, ids64, steps


def _checked_inputs(logits: npt.NDArray[Any], bias: F32 | None, geometry: Geometry) -> None:
    where = "reference_select"
    if logits.ndim != 2 or logits.shape[1] != geometry.experts:
        raise InputError("logits.shape", logits.shape, f"(rows, {geometry.experts})", where)
    if logits.dtype not in (np.float32, np.float64):
        raise InputError("logits.dtype", logits.dtype, "float32 or float64", where)
    if bias is not None and (bias.shape != (geometry.experts,) or bias.dtype != np.float32):
        got = f"{bias.dtype}{list(bias.shape)}"
        raise InputError("bias", got, f"float32[{geometry.experts}]", where)


def _empty(rows: int, geometry: Geometry) -> ReferenceSelection:
    """Arrays to be filled chunk by chunk."""
    full = (rows, geometry.experts)
    slots = (rows, geometry.top_k)
    grouped = geometry.groups > 1
    return ReferenceSelection(
        scores=np.empty(full),
        scores32=np.empty(full, np.float32),
        keys=np.empty(full, np.float32),
        keys64=np.empty(full),
        eligible=np.empty(full, np.bool_) if grouped else None,
        group_keys=np.empty((rows, geometry.groups), np.float32) if grouped else None,
        ids=np.empty(slots, np.int32),
        weights=np.empty(slots),
        ids64=np.empty(slots, np.int32),
        boundary_ulp=np.empty(rows, np.int64),
    )


def reference_select(
    logits: npt.NDArray[Any],
    bias: F32 | None,
    geometry: Geometry,
    scoring: ScoringRule,
) -> ReferenceSelection:
    """The experts and weights that exact arithmetic gives for logits [row, expert].

    Key = FP32(correctly rounded score + bias), ordered by value, then lower id, NaN last; -0
    equals +0. With groups, the group's key is the FP32 sum of its two best keys.

    Args:
        logits: [row, expert] float64 or float32.
        bias: [expert] float32, or None.
        geometry: experts, top_k, groups and top_groups are used.
        scoring: score function and how weights follow from the selected scores.

    Raises:
        InputError: a shape or dtype that does not fit.
        ReferenceError: the answer fails its own check.
    """
    _checked_inputs(logits, bias, geometry)
    rows = len(logits)
    result = _empty(rows, geometry)
    step = max(1, _CHUNK_ELEMENTS // geometry.experts)
    names = list(ReferenceSelection.__dataclass_fields__)

    def fill(start: int) -> None:
        # A signalling NaN, such as an element that nobody wrote, warns when it is widened.
        with np.errstate(all="ignore"):
            part = logits[start : start + step].astype(np.float64)
            fields = dict(zip(names, _chunk(part, bias, geometry, scoring), strict=True))
            _check(fields["keys"], fields["eligible"], fields["ids"], start)
        for name, values in fields.items():
            if values is not None:
                getattr(result, name)[start : start + step] = values

    # Chunks share nothing, so threads (numpy leaves the interpreter lock) cannot change a bit.
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as workers:
        list(workers.map(fill, range(0, rows, step)))
    return result
