"""The plain gate: both selections of a row in full, for rows that the screen leaves undecided.

One warp per row evaluates both forms on every expert, ranks them by (key, lower id) in one int64
each and takes the largest K times. This is also what the fast gate is tested against.
"""

from __future__ import annotations

from .lang import tl, triton
from .scores_triton import score
from .weights_triton import ulp_bin, weights_of


@triton.jit
def ruled(x: tl.tensor, bias: tl.tensor, FORM: tl.constexpr, RULE: tl.constexpr) -> tl.tuple:
    """Score and key of each logit under the bits of ``DeviceSelect.rule``."""
    s = score(x, FORM)
    if RULE & 4:
        s = tl.where(s - s != 0.0, 0.0, s)
    key = s + bias
    if RULE & 1:
        unusable = x - x != 0.0
        s = tl.where(unusable, 0.0, s)
        key = tl.where(unusable, float("-inf"), key)
    if RULE & 2:
        unusable = bias - bias != 0.0
        s = tl.where(unusable, 0.0, s)
        key = tl.where(unusable, float("-inf"), key)
    return s, key


@triton.jit
def packed_keys(key: tl.tensor, at: tl.tensor, inside: tl.tensor, RULE: tl.constexpr) -> tl.tensor:
    """Key and id in one int64: larger keys first, then lower ids; int64's least outside."""
    bits = key.to(tl.int32, bitcast=True)
    order = tl.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    if RULE // 16 == 0:
        order = tl.where(key != key, -0x7F800000, order)
    elif RULE // 16 == 1:
        order = tl.where(key != key, -0x7FFFFFFF, order)
    else:
        order = tl.where(key != key, 0x7FFFFFFF, order)
    packed = (order.to(tl.int64) << 32) | (0x7FFFFFFF - at).to(tl.int64)
    return tl.where(inside, packed, -0x8000000000000000)


@triton.jit
def chosen_experts(
    packed: tl.tensor, at: tl.tensor, lane: tl.tensor, K: tl.constexpr, RULE: tl.constexpr
) -> tl.tuple:
    """Ids by slot [32], which experts are chosen, and whether the row had no key above -inf."""
    ids = tl.zeros_like(lane)
    left = packed
    best = tl.max(packed, 0)
    for slot in range(K):
        top = tl.max(left, 0)
        ids = tl.where(lane == slot, (0x7FFFFFFF - (top & 0x7FFFFFFF)).to(tl.int32), ids)
        left = tl.where(left == top, -0x8000000000000000, left)
    chosen = left != packed
    empty = best != best
    if RULE & 8:
        # order of -inf in the upper half, any id below it
        empty = (best >> 32) <= -0x7F800000
        ids = tl.where(empty, tl.where(lane < K, lane, 0), ids)
        chosen = tl.where(empty, at < K, chosen)
    return ids, chosen, empty


@triton.jit
def slot_weights(
    row: tl.tensor,
    bias: tl.tensor,
    ids: tl.tensor,
    empty: tl.tensor,
    lane: tl.tensor,
    epsilon: tl.tensor,
    scale: tl.tensor,
    K: tl.constexpr,
    FORM: tl.constexpr,
    RULE: tl.constexpr,
    SUM: tl.constexpr,
    NORMALISE: tl.constexpr,
) -> tl.tensor:
    """The weights [32] of a row by slot; 1/K each where the row had no key above -inf."""
    s, _ = ruled(tl.load(row + ids), tl.load(bias + ids), FORM, RULE)
    weights = weights_of(s, lane, epsilon, scale, K, SUM, NORMALISE)
    return tl.where(empty, 1.0 / K, weights)


@triton.jit
def _tally(
    ids_a: tl.tensor,
    ids_b: tl.tensor,
    weights_a: tl.tensor,
    weights_b: tl.tensor,
    lane: tl.tensor,
    row: tl.tensor,
    histogram: tl.tensor,
    worst: tl.tensor,
    K: tl.constexpr,
) -> None:
    """Add the ULP between weights of the same id to the histogram and the worst row."""
    aligned = weights_b
    for slot in tl.static_range(K):
        same = ids_a == tl.gather(ids_b, lane * 0 + slot, 0)
        aligned = tl.where(same, tl.gather(weights_b, lane * 0 + slot, 0), aligned)
    apart = ulp_bin(weights_a, aligned)
    place = tl.where(apart < 0, 255, tl.minimum(apart, 254))
    tl.atomic_add(histogram + place, tl.full([32], 1, tl.int64), mask=lane < K)
    packed = (apart << 32) | (0x7FFFFFFF - row)
    tl.atomic_max(worst, tl.max(tl.where(lane < K, packed, -1), 0))


@triton.jit
def exact_kernel(
    logits: tl.tensor,
    bias: tl.tensor,
    listed: tl.tensor,
    counters: tl.tensor,
    rows_out: tl.tensor,
    ids_out: tl.tensor,
    histogram: tl.tensor,
    worst: tl.tensor,
    rows: tl.tensor,
    capacity: tl.tensor,
    epsilon_a: tl.tensor,
    epsilon_b: tl.tensor,
    scale: tl.tensor,
    E: tl.constexpr,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    ALL: tl.constexpr,
    WEIGHTS: tl.constexpr,
    FORM_A: tl.constexpr,
    RULE_A: tl.constexpr,
    SUM_A: tl.constexpr,
    NORMALISE_A: tl.constexpr,
    FORM_B: tl.constexpr,
    RULE_B: tl.constexpr,
    SUM_B: tl.constexpr,
    NORMALISE_B: tl.constexpr,
) -> None:
    """Decide the listed rows, or all rows with ALL; append those that differ to ``rows_out``.

    counters [2] int32: rows listed, rows that differ. ids_out [capacity, 2, K] int32.
    """
    lane = tl.arange(0, 32)
    at = tl.arange(0, BLOCK)
    inside = at < E
    b = tl.load(bias + at, mask=inside, other=0.0)
    count = rows if ALL else tl.minimum(tl.load(counters), rows)
    for place in range(tl.program_id(0), count, tl.num_programs(0)):
        row = place if ALL else tl.load(listed + place)
        start = logits + tl.cast(row, tl.int64) * E
        x = tl.load(start + at, mask=inside, other=0.0)
        _, key = ruled(x, b, FORM_A, RULE_A)
        ids_a, chosen_a, empty_a = chosen_experts(
            packed_keys(key, at, inside, RULE_A), at, lane, K, RULE_A
        )
        _, key = ruled(x, b, FORM_B, RULE_B)
        ids_b, chosen_b, empty_b = chosen_experts(
            packed_keys(key, at, inside, RULE_B), at, lane, K, RULE_B
        )
        differ = tl.sum((chosen_a != chosen_b).to(tl.int32), 0) > 0
        if differ:
            slot = tl.atomic_add(counters + 1, 1)
            if slot < capacity:
                tl.store(rows_out + slot, row)
                out = ids_out + slot.to(tl.int64) * (2 * K) + lane
                tl.store(out, ids_a, mask=lane < K)
                tl.store(out + K, ids_b, mask=lane < K)
        elif WEIGHTS:
            weights_a = slot_weights(
                start, bias, ids_a, empty_a, lane, epsilon_a, scale,
                K, FORM_A, RULE_A, SUM_A, NORMALISE_A,
            )  # fmt: skip
            weights_b = slot_weights(
                start, bias, ids_b, empty_b, lane, epsilon_b, scale,
                K, FORM_B, RULE_B, SUM_B, NORMALISE_B,
            )  # fmt: skip
            _tally(
                ids_a,
                ids_b,
                weights_a,
                weights_b,
                lane,
                tl.cast(row, tl.int64),
                histogram,
                worst,
                K,
            )
