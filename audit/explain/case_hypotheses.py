"""Named mistakes in a selection: what each would have selected, to be held against a path's ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...banks.geometry import Geometry, ScoringRule
from ...kernels.contract import BFLOAT16
from ...kernels.reference import ReferenceSelection, reference_select
from .case_reference import case_reference, select_keys
from .cases import F32, Case

I32 = npt.NDArray[np.int32]
Named = Iterator[tuple[str, I32]]

# Subtracted once an expert id to make ties go to the lower one; too large, it reverses real gaps.
_INDEX_EPSILONS: Final = (1e-8, 1e-7, 3e-7, 1e-6, 1e-5, 1e-4)


def selection_hypotheses(case: Case, logits: F32, reference: ReferenceSelection) -> Named:
    """Yield a mistake's name and the ids [row, slot] that it selects, the commonest first.

    Args:
        case: gives bias, geometry and scoring rule.
        logits: [row, expert] that the path saw.
        reference: the right answer for them.
    """
    yield "flush_to_zero", case_reference(case, logits, flush=True).ids
    with np.errstate(all="ignore"):
        yield from _narrowed(case, logits, reference)
        yield from _other_bias(case, logits, reference)
        if case.geometry.groups > 1:
            yield from _groups(case, reference)
        yield from _other_scores(case, logits)
        yield from _order(case, reference)


def _bf16(values: F32) -> F32:
    return values.astype(BFLOAT16).astype(np.float32)


def _scored(case: Case, logits: F32, bias: F32 | None, scoring: ScoringRule | None = None) -> I32:
    return reference_select(logits, bias, case.geometry, scoring or case.scoring).ids


def _keyed(keys: npt.NDArray[Any], geometry: Geometry) -> I32:
    return select_keys(keys.astype(np.float32), geometry).ids


def _narrowed(case: Case, logits: F32, reference: ReferenceSelection) -> Named:
    yield "bf16_logits", _scored(case, _bf16(logits), case.bias)
    if case.bias is not None:
        yield "bf16_bias", _scored(case, logits, _bf16(case.bias))
    scores = _bf16(reference.scores32)
    biased = scores if case.bias is None else scores + case.bias
    yield "bf16_scores", _keyed(biased, case.geometry)
    yield "bf16_keys", _keyed(_bf16(reference.keys), case.geometry)
    half = logits.astype(np.float16).astype(np.float32)
    yield "fp16_logits", _scored(case, half, case.bias)
    yield "fp64_keys", reference.ids64


def _other_bias(case: Case, logits: F32, reference: ReferenceSelection) -> Named:
    if case.bias_b is not None:
        yield "bias_b", _scored(case, logits, case.bias_b)
    if case.bias is not None and case.bias.any():
        yield "no_bias", _scored(case, logits, None)
        yield "bias_subtracted", _keyed(reference.scores32 - case.bias, case.geometry)
        twice = reference.keys + case.bias
        yield "bias_added_twice", _keyed(twice, case.geometry)


def _groups(case: Case, reference: ReferenceSelection) -> Named:
    plain = replace(case.geometry, groups=1, top_groups=1)
    yield "groups_ignored", _keyed(reference.keys, plain)
    if reference.eligible is not None:
        yield "group_mask_zero", _keyed(np.where(reference.eligible, reference.keys, 0.0), plain)
    for name, values, best in (
        ("group_best_only", reference.keys, 1),
        ("group_score_unbiased", reference.scores32, 2),
        ("group_sum_of_all", reference.keys, case.experts),
    ):
        yield name, _with_group_scores(case.geometry, reference.keys, values, best)


def _with_group_scores(geometry: Geometry, keys: F32, values: F32, best: int) -> I32:
    """Ids where a group's score is the sum of its ``best`` largest ``values``."""
    rows = len(keys)
    grouped = np.sort(values.reshape(rows, geometry.groups, -1), axis=2)
    scores = grouped[:, :, -best:].sum(axis=2, dtype=np.float32)
    by_group = Geometry("groups", 1, 0, geometry.groups, geometry.top_groups)
    chosen = np.zeros(scores.shape, np.bool_)
    np.put_along_axis(chosen, select_keys(scores, by_group).ids.astype(np.int64), True, axis=1)
    allowed = np.repeat(chosen, geometry.experts // geometry.groups, axis=1)
    plain = replace(geometry, groups=1, top_groups=1)
    return _keyed(np.where(allowed, keys, np.float32(-np.inf)), plain)


def _other_scores(case: Case, logits: F32) -> Named:
    for function in ("sigmoid", "softmax", "sqrtsoftplus"):
        if function != case.scoring.function:
            rule = replace(case.scoring, function=function)
            yield f"{function}_scores", _scored(case, logits, case.bias, rule)
    if case.scoring.function != "identity":
        yield "topk_on_logits", _keyed(logits, case.geometry)
        if case.bias is not None:
            yield "topk_on_biased_logits", _keyed(logits + case.bias, case.geometry)


def _order(case: Case, reference: ReferenceSelection) -> Named:
    keys, experts = reference.keys, case.experts
    for epsilon in _INDEX_EPSILONS:
        steps = np.arange(experts, dtype=np.float32) * np.float32(epsilon)
        yield f"index_epsilon_{epsilon:g}", _keyed(keys - steps, case.geometry)
    mirrored = np.ascontiguousarray(keys[:, ::-1])
    yield "higher_id_on_ties", (experts - 1 - _keyed(mirrored, case.geometry)).astype(np.int32)
    yield "absolute_keys", _keyed(np.abs(keys), case.geometry)
    yield "nan_as_zero", _keyed(np.where(np.isnan(keys), 0.0, keys), case.geometry)
    yield "nan_wins", _keyed(np.where(np.isnan(keys), np.inf, keys), case.geometry)
    yield "smallest_keys", _keyed(-keys, case.geometry)


def first_candidates(case: Case, reference: ReferenceSelection, highest: int) -> Named:
    """Yield what a kernel selects that keeps only ``capacity`` candidates of the row.

    It keeps the first ids, or the first of those whose key shares the coarse digit of the K-th
    key or is above it (a radix or histogram pass). Where the case tells no capacity, blocks of
    first ids are tried: powers of two with ``pad_to``, else the one that ends at ``highest``, the
    highest id that the path chose. A wider block has more rivals, so it can explain no more.
    """
    experts, top_k = case.experts, case.geometry.top_k
    blocks = [highest + 1]
    if case.capacity is not None:
        blocks = [case.capacity]
    elif case.pad_to is not None:
        blocks = [1 << power for power in range(experts.bit_length(), -1, -1)]
    for block in blocks:
        if top_k <= block < experts:
            kept = np.where(np.arange(experts) < block, reference.keys, np.float32(-np.inf))
            yield f"experts below {block} only", _keyed(kept, case.geometry)
    if case.capacity is not None:
        for dropped in (16, 20, 23):
            yield (
                f"first {case.capacity} at or above a threshold of {32 - dropped} bits",
                _threshold_candidates(case, reference, case.capacity, dropped),
            )


def _threshold_candidates(
    case: Case, reference: ReferenceSelection, capacity: int, dropped: int
) -> I32:
    values = np.ascontiguousarray(reference.keys + np.float32(0.0)).view(np.int32).astype(np.int64)
    line = np.where(values < 0, -(values & 0x7FFFFFFF), values) >> dropped
    last = np.take_along_axis(line, reference.ids[:, -1:].astype(np.int64), axis=1)
    reached = line >= last
    if reference.eligible is not None:
        reached &= reference.eligible
    kept = reached & (np.cumsum(reached, axis=1) <= capacity)
    return _keyed(np.where(kept, reference.keys, np.float32(-np.inf)), case.geometry)
