"""The screen: rows whose two sets are equal by a proven bound, decided by one cheap form.

A row is decided where a cheap form of the score (one ex2 and one reciprocal instruction an expert)
separates its K-th from its next key by more than twice the proven distance between that form's
keys and the keys of both selects: no select can then swap anything. All other rows, and all rows
with a logit that is not finite, are listed for ``exact_triton``. Nothing is approximated.

Keys are FP32 (PACKED = 0), or 22 bits of a fixed-point key over 10 bits that name the expert
(PACKED = 1): ``fma(score, scale, shifted bias)`` lies in [1, 2), so its mantissa is the key.

One warp a program. Cost by instruction count on sm_90 (800,000 rows of 896): about 570 of the 915
issue slots a row has while its logits arrive, half of them at half rate.
"""

from __future__ import annotations

from typing import Final

from .lang import tl, triton
from .network_triton import keep_top4, sort4, sort16, split4, warp_top16
from .scores_triton import score
from .weights_triton import weights_of

NO_BUDGET: Final = 0x7FFFFFFF
"""A budget that no distance exceeds."""


@triton.jit
def _load(
    start: tl.tensor, at: tl.tensor, chunk: tl.constexpr, E: tl.constexpr, pad: tl.constexpr
) -> tl.tensor:
    """A [32, 4] tile of one row: lane l holds experts 128 * chunk + 4 * l .. + 3."""
    if (chunk + 1) * 128 <= E:
        return tl.load(start + at + chunk * 128)
    return tl.load(start + at + chunk * 128, mask=at + chunk * 128 < E, other=pad)


@triton.jit
def _keys(
    start: tl.tensor, shifts: tl.tensor, stretch: tl.tensor, at: tl.tensor, finite: tl.tensor,
    chunk: tl.constexpr, E: tl.constexpr, PACKED: tl.constexpr, SCREEN: tl.constexpr,
) -> tl.tuple:  # fmt: skip
    """Screen keys of a tile as four [32] values, and ``finite`` plus 0 times each logit."""
    x = _load(start, at, chunk, E, -1e30)
    shift = _load(shifts, at, chunk, E, 1.0 if PACKED else float("-inf"))
    s = score(x, SCREEN)
    if PACKED:
        bits = tl.fma(s, stretch, shift).to(tl.uint32, bitcast=True)
        a, b, c, d = split4((bits << 9) & 0xFFFFFC00)
        # The low ten bits: 31 - (4 * chunk + column), then the lane, which callers add.
        a = a | ((31 - 4 * chunk) * 32)
        b = b | ((30 - 4 * chunk) * 32)
        c = c | ((29 - 4 * chunk) * 32)
        d = d | ((28 - 4 * chunk) * 32)
    else:
        a, b, c, d = split4(s + shift)
    return a, b, c, d, tl.fma(x, tl.zeros_like(x), finite)


@triton.jit
def _lane_tops(
    start: tl.tensor, shifts: tl.tensor, stretch: tl.tensor, at: tl.tensor,
    E: tl.constexpr, PACKED: tl.constexpr, SCREEN: tl.constexpr,
) -> tl.tuple:  # fmt: skip
    """The four largest keys of each lane, descending, and NaN where a logit was not finite."""
    finite = tl.zeros([32, 4], tl.float32)
    a, b, c, d, finite = _keys(start, shifts, stretch, at, finite, 0, E, PACKED, SCREEN)
    a, b, c, d = sort4(a, b, c, d)
    for chunk in tl.static_range(1, (E + 127) // 128):
        e, f, g, h, finite = _keys(start, shifts, stretch, at, finite, chunk, E, PACKED, SCREEN)
        e, f, g, h = sort4(e, f, g, h)
        a, b, c, d = keep_top4(a, b, c, d, e, f, g, h)
    return a, b, c, d, finite


@triton.jit
def _count_above(
    start: tl.tensor, shifts: tl.tensor, stretch: tl.tensor, at: tl.tensor, lane: tl.tensor,
    limit: tl.tensor, E: tl.constexpr, PACKED: tl.constexpr, SCREEN: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """How many keys of the row are above ``limit``."""
    above = tl.zeros([32], tl.int32)
    unused = tl.zeros([32, 4], tl.float32)
    for chunk in tl.static_range((E + 127) // 128):
        e, f, g, h, unused = _keys(start, shifts, stretch, at, unused, chunk, E, PACKED, SCREEN)
        if PACKED:
            # [32] uint32
            e, f, g, h = e | lane, f | lane, g | lane, h | lane
        above += (e > limit).to(tl.int32) + (f > limit).to(tl.int32)
        above += (g > limit).to(tl.int32) + (h > limit).to(tl.int32)
    return tl.sum(above, 0)


@triton.jit
def _boundary(
    a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor, dropped: tl.tensor, lane: tl.tensor,
    lowest: tl.tensor, K: tl.constexpr,
) -> tl.tuple:  # fmt: skip
    """The K-th largest key and the next one, from ``warp_top16`` (sorted where K < 16)."""
    if K == 16:
        last = tl.min(tl.minimum(tl.minimum(a, b), tl.minimum(c, d)), 0)
        following = tl.max(dropped, 0)
    else:
        place = (lane & 3) * 4
        rest = tl.maximum(dropped, tl.where(place >= K, a, lowest))
        rest = tl.maximum(rest, tl.where(place + 1 >= K, b, lowest))
        rest = tl.maximum(rest, tl.where(place + 2 >= K, c, lowest))
        rest = tl.maximum(rest, tl.where(place + 3 >= K, d, lowest))
        following = tl.max(rest, 0)
        if K % 4 == 1:
            kth = a
        elif K % 4 == 2:
            kth = b
        elif K % 4 == 3:
            kth = c
        else:
            kth = d
        last = tl.max(tl.where(lane == (K - 1) // 4, kth, lowest), 0)
    return last, following


@triton.jit
def _screen_row(
    start: tl.tensor, shifts: tl.tensor, stretch: tl.tensor, gap: tl.tensor, at: tl.tensor,
    lane: tl.tensor, E: tl.constexpr, K: tl.constexpr, PACKED: tl.constexpr,
    SCREEN: tl.constexpr, SORTED: tl.constexpr,
) -> tl.tuple:  # fmt: skip
    """Whether the row is decided, and its 16 largest keys over each four lanes."""
    a, b, c, d, finite = _lane_tops(start, shifts, stretch, at, E, PACKED, SCREEN)
    if PACKED:
        name = lane.to(tl.uint32)
        a, b, c, d = a | name, b | name, c | name, d | name
        dropped = tl.zeros([32], tl.uint32)
    else:
        name = lane
        dropped = tl.full([32], float("-inf"), tl.float32)
    lowest = dropped
    fourth = d
    a, b, c, d, dropped = warp_top16(a, b, c, d, dropped, lane)
    if SORTED or K < 16:
        a, b, c, d = sort16(a, b, c, d, lane)
    last, following = _boundary(a, b, c, d, dropped, lane, lowest, K)
    if PACKED:
        # int32 [scalar]; both below 2^22
        apart = (last >> 10).to(tl.int32) - (following >> 10).to(tl.int32)
    else:
        apart = last - following
    bad = tl.sum((tl.sum(finite, 1) != 0.0).to(tl.int32), 0)
    decided = (apart > gap) & (bad == 0)
    hidden = tl.sum((fourth > following).to(tl.int32), 0)
    if decided & (hidden > 0):
        above = _count_above(start, shifts, stretch, at, name, following, E, PACKED, SCREEN)
        decided = above == K
    return decided, a, b, c, d


@triton.jit
def _list_row(listed: tl.tensor, counters: tl.tensor, row: tl.tensor) -> None:
    tl.store(listed + tl.atomic_add(counters, 1), row)


@triton.jit
def set_kernel(
    logits: tl.tensor,
    shifts: tl.tensor,
    listed: tl.tensor,
    counters: tl.tensor,
    rows: tl.tensor,
    stretch: tl.tensor,
    gap: tl.tensor,
    E: tl.constexpr,
    K: tl.constexpr,
    PACKED: tl.constexpr,
    SCREEN: tl.constexpr,
) -> None:
    """List every row whose sets the bound does not decide.

    logits [rows, E] float32; shifts [E] float32; ``gap`` float32, or int32 steps with PACKED.
    """
    lane = tl.arange(0, 32)
    at = lane[:, None] * 4 + tl.arange(0, 4)[None, :]
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        start = logits + tl.cast(row, tl.int64) * E
        decided, _a, _b, _c, _d = _screen_row(
            start, shifts, stretch, gap, at, lane, E, K, PACKED, SCREEN, False
        )
        if decided == 0:
            _list_row(listed, counters, row)


@triton.jit
def _slots(a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor, lane: tl.tensor) -> tl.tensor:
    """Sorted place p in lane p (mod 16), from four lanes with four places each."""
    owner = (lane >> 2) & 3
    column = lane & 3
    low = tl.where(column == 0, tl.gather(a, owner, 0), tl.gather(b, owner, 0))
    high = tl.where(column == 2, tl.gather(c, owner, 0), tl.gather(d, owner, 0))
    return tl.where(column < 2, low, high)


@triton.jit
def _expert_ids(packed: tl.tensor) -> tl.tensor:
    """The expert that the low ten bits name."""
    # int32 [32]
    slot = 31 - ((packed >> 5) & 31).to(tl.int32)
    return (slot >> 2) * 128 + (packed & 31).to(tl.int32) * 4 + (slot & 3)


@triton.jit
def weight_kernel(
    logits: tl.tensor,
    bias: tl.tensor,
    shifts: tl.tensor,
    listed: tl.tensor,
    counters: tl.tensor,
    histogram: tl.tensor,
    worst: tl.tensor,
    marks: tl.tensor,
    rows: tl.tensor,
    stretch: tl.tensor,
    gap: tl.tensor,
    budget: tl.tensor,
    epsilon_a: tl.tensor,
    epsilon_b: tl.tensor,
    scale: tl.tensor,
    E: tl.constexpr,
    K: tl.constexpr,
    SCREEN: tl.constexpr,
    MARK: tl.constexpr,
    FORM_A: tl.constexpr,
    SUM_A: tl.constexpr,
    NORMALISE_A: tl.constexpr,
    FORM_B: tl.constexpr,
    SUM_B: tl.constexpr,
    NORMALISE_B: tl.constexpr,
) -> None:
    """As ``set_kernel`` (packed), and the ULP between the weights of each decided row.

    Rows in which either select's own keys are not strictly descending in the screen's order are
    listed too: their slot order, and with it the order of the weight sum, needs the exact kernel.
    So in a decided row both selects have the same ids in the same slots. Rows with weights more
    than ``budget`` ULP apart are listed too.

    With MARK nothing is listed: ``marks`` [rows] int32 gets the largest ULP of a decided row, and
    -1 of any other.
    """
    lane = tl.arange(0, 32)
    at = lane[:, None] * 4 + tl.arange(0, 4)[None, :]
    valid = lane < K
    n0 = tl.zeros([32], tl.int32)
    n1, n2, n3, n4, n5, n6, n7 = n0, n0, n0, n0, n0, n0, n0
    largest, largest_row = n0 - 1, n0
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        start = logits + tl.cast(row, tl.int64) * E
        decided, a, b, c, d = _screen_row(
            start, shifts, stretch, gap, at, lane, E, K, 1, SCREEN, True
        )
        ids = _expert_ids(_slots(a, b, c, d, lane))
        # A padding expert may stand in an undecided row.
        ids = tl.minimum(ids, E - 1)
        x = tl.load(start + ids)
        added = tl.load(bias + ids)
        score_a = score(x, FORM_A)
        score_b = score(x, FORM_B)
        key_a = score_a + added
        key_b = score_b + added
        after = (lane + 1) & 31
        falls = (key_a > tl.gather(key_a, after, 0)) & (key_b > tl.gather(key_b, after, 0))
        weight_a = weights_of(score_a, lane, epsilon_a, scale, K, SUM_A, NORMALISE_A)
        weight_b = weights_of(score_b, lane, epsilon_b, scale, K, SUM_B, NORMALISE_B)
        unusable = (weight_a - weight_a != 0.0) | (weight_b - weight_b != 0.0)
        unusable = unusable | ((lane < K - 1) & (falls == 0))
        unordered = tl.sum((unusable & valid).to(tl.int32), 0)
        # Both have the sign of ``scale`` or are 0, so their bits are in order.
        apart = weight_a.to(tl.int32, bitcast=True) - weight_b.to(tl.int32, bitcast=True)
        apart = tl.where(valid, tl.where(apart < 0, -apart, apart), -1)
        row_largest = tl.max(apart, 0)
        if decided & (unordered == 0) & (row_largest <= budget):
            n0 += (apart == 0).to(tl.int32)
            n1 += (apart == 1).to(tl.int32)
            n2 += (apart == 2).to(tl.int32)
            n3 += (apart == 3).to(tl.int32)
            n4 += (apart == 4).to(tl.int32)
            n5 += (apart == 5).to(tl.int32)
            n6 += (apart == 6).to(tl.int32)
            n7 += (apart == 7).to(tl.int32)
            if row_largest > 7:
                tl.atomic_add(
                    histogram + tl.minimum(apart, 254), tl.full([32], 1, tl.int64), mask=apart > 7
                )
            larger = apart > largest
            largest = tl.where(larger, apart, largest)
            largest_row = tl.where(larger, row, largest_row)
            if MARK:
                tl.store(marks + row, row_largest)
        elif MARK:
            tl.store(marks + row, -1)
        else:
            _list_row(listed, counters, row)
    tl.atomic_add(histogram, tl.sum(n0.to(tl.int64), 0))
    tl.atomic_add(histogram + 1, tl.sum(n1.to(tl.int64), 0))
    tl.atomic_add(histogram + 2, tl.sum(n2.to(tl.int64), 0))
    tl.atomic_add(histogram + 3, tl.sum(n3.to(tl.int64), 0))
    tl.atomic_add(histogram + 4, tl.sum(n4.to(tl.int64), 0))
    tl.atomic_add(histogram + 5, tl.sum(n5.to(tl.int64), 0))
    tl.atomic_add(histogram + 6, tl.sum(n6.to(tl.int64), 0))
    tl.atomic_add(histogram + 7, tl.sum(n7.to(tl.int64), 0))
    packed = (largest.to(tl.int64) << 32) | (0x7FFFFFFF - largest_row).to(tl.int64)
    tl.atomic_max(worst, tl.max(packed, 0))
