"""Named mistakes in a selection: what each would have selected, to be held against a path's ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ...banks.geometry import Geometry
from ...kernels.reference import ReferenceSelection
from .case_reference import select_keys
from .cases import F32, Case
from .mistakes import set_mistakes
from .select_steps import EXACT, Seen, Selects

I32 = npt.NDArray[np.int32]
Named = Iterator[tuple[str, I32]]


def selection_hypotheses(case: Case, logits: F32, reference: ReferenceSelection) -> Named:
    """Yield a mistake's name and the ids [row, slot] that it selects, the commonest first.

    Args:
        case: gives bias, geometry and scoring rule.
        logits: [row, expert] that the path saw.
        reference: the right answer for them.
    """
    bias = np.zeros(case.experts, np.float32) if case.bias is None else case.bias
    ids = reference.ids.astype(np.int64)
    selects = Selects(Seen(case.geometry, case.scoring, logits, bias, ids, None))
    with np.errstate(all="ignore"):
        for mistake in set_mistakes(case.geometry, case.scoring, bias, case.bias_b):
            yield mistake.name, selects.ids(mistake, EXACT).astype(np.int32)


def _keyed(keys: npt.NDArray[Any], geometry: Geometry) -> I32:
    return select_keys(keys.astype(np.float32), geometry).ids


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
