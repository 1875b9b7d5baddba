"""Kernels that evaluate device score forms on consecutive places of ``float_line`` and count.

A program counts one span; what each count means is in ``kernels.exhaustive.record``. Witnesses are
the first place of a span, so that the host can merge spans in any order.
"""

from __future__ import annotations

from typing import Final

from .lang import tl, triton
from .scores_triton import score

_NEVER: Final = tl.constexpr(0x7FFFFFFF)


@triton.jit
def _input_at(place: tl.tensor) -> tl.tensor:
    """The FP32 value at a place, int64."""
    bits = tl.where(place >= 0x80000000, place - 0x80000000, 0xFFFFFFFF - place)
    return bits.to(tl.uint32).to(tl.float32, bitcast=True)


@triton.jit
def _position(value: tl.tensor) -> tl.tensor:
    """FP32 steps from zero, int32; -0 is 0."""
    bits = value.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


@triton.jit
def _distance_bits(a: tl.tensor, b: tl.tensor) -> tl.tensor:
    """FP64 bits of |a - b| rounded up: Knuth's two-sum tells which way a - b was rounded."""
    a = a.to(tl.float64)
    b = b.to(tl.float64)
    difference = a - b
    back = difference - a
    error = (a - (difference - back)) - (b + back)
    bits = tl.abs(difference).to(tl.int64, bitcast=True)
    return bits + (error * difference > 0.0).to(tl.int64)


@triton.jit
def _keep_first(best: tl.tensor, at: tl.tensor, value: tl.tensor, place: tl.tensor) -> tl.tuple:
    larger = value > best
    return tl.where(larger, value, best), tl.where(larger, place, at)


@triton.jit
def _store_first(out: tl.tensor, best: tl.tensor, at: tl.tensor, start: tl.tensor) -> None:
    """The largest value and the first place that has it; -1 where the value is 0."""
    most = tl.max(best, 0).to(tl.int64)
    first = tl.min(tl.where(best == tl.max(best, 0), at, _NEVER), 0).to(tl.int64)
    tl.store(out, most)
    tl.store(out + 1, tl.where(most > 0, start + first, -1))


@triton.jit
def _place_or_none(first: tl.tensor, start: tl.tensor) -> tl.tensor:
    found = tl.min(first, 0)
    return tl.where(found == _NEVER, -1, start + found.to(tl.int64))


@triton.jit
def _last_or_none(last: tl.tensor, start: tl.tensor) -> tl.tensor:
    found = tl.max(last, 0)
    return tl.where(found < 0, -1, start + found.to(tl.int64))


@triton.jit
def pair_kernel(
    out: tl.tensor, bins: tl.tensor, first: tl.tensor, stop: tl.tensor,
    FORM_A: tl.constexpr, FORM_B: tl.constexpr, SPAN: tl.constexpr, BLOCK: tl.constexpr,
    SLOTS: tl.constexpr,
) -> None:  # fmt: skip
    """Counts of ``PairSlot`` for places [first, stop), one program a span, and their histogram."""
    start = first + tl.program_id(0).to(tl.int64) * SPAN
    lane = tl.arange(0, BLOCK)
    zero = tl.zeros([BLOCK], tl.int32)
    inputs, differ, undefined = zero, zero, zero
    undefined_at = zero + _NEVER
    ulp, ulp_at = zero.to(tl.int64), zero + _NEVER
    apart, apart_at = zero.to(tl.int64), zero + _NEVER
    counts = tl.zeros([128], tl.int32)
    for offset in range(0, SPAN, BLOCK):
        at = offset + lane
        place = start + at.to(tl.int64)
        inside = place < stop
        x = _input_at(place)
        a = score(x, FORM_A)
        b = score(x, FORM_B)
        defined = (a - a == 0.0) & (b - b == 0.0)
        bad = inside & (defined == 0)
        inputs += inside.to(tl.int32)
        undefined += bad.to(tl.int32)
        undefined_at = tl.where(bad, tl.minimum(undefined_at, at), undefined_at)
        counted = inside & defined
        steps = _position(a).to(tl.int64) - _position(b).to(tl.int64)
        steps = tl.where(counted, tl.where(steps < 0, -steps, steps), 0)
        differ += (steps != 0).to(tl.int32)
        ulp, ulp_at = _keep_first(ulp, ulp_at, steps, at)
        bits = tl.where(counted, _distance_bits(a, b), 0)
        apart, apart_at = _keep_first(apart, apart_at, bits, at)
        # Bin 64 + n holds (2^(5+n), 2^(6+n)].
        exponent = ((steps - 1).to(tl.float64).to(tl.int64, bitcast=True) >> 52) - 1023
        place_of_bin = tl.where(steps <= 64, steps, 59 + exponent)
        place_of_bin = tl.where(counted, place_of_bin, 127).to(tl.int32)
        counts += tl.histogram(place_of_bin, 128)
    slots = out + tl.program_id(0) * SLOTS
    tl.store(slots, tl.sum(inputs, 0).to(tl.int64))
    tl.store(slots + 1, tl.sum(differ, 0).to(tl.int64))
    tl.store(slots + 2, tl.sum(undefined, 0).to(tl.int64))
    tl.store(slots + 3, _place_or_none(undefined_at, start))
    _store_first(slots + 4, ulp, ulp_at, start)
    _store_first(slots + 6, apart, apart_at, start)
    tl.store(bins + tl.program_id(0) * 128 + tl.arange(0, 128), counts)


@triton.jit
def form_kernel(
    out: tl.tensor, first: tl.tensor, stop: tl.tensor,
    FORM: tl.constexpr, SPAN: tl.constexpr, BLOCK: tl.constexpr, SLOTS: tl.constexpr,
) -> None:  # fmt: skip
    """Counts of ``FormSlot`` for places [first, stop), all of one sign, one program a span."""
    start = first + tl.program_id(0).to(tl.int64) * SPAN
    lane = tl.arange(0, BLOCK)
    zero = tl.zeros([BLOCK], tl.int32)
    nonfinite, ones, zeros, subnormals, drops = zero, zero, zero, zero, zero
    # An extreme that no finite score reaches; the host knows it.
    lowest, highest = zero + _NEVER, zero - _NEVER
    first_one, first_subnormal, first_drop = zero + _NEVER, zero + _NEVER, zero + _NEVER
    last_zero, last_subnormal = zero - 1, zero - 1
    drop, drop_at = zero.to(tl.int64), zero + _NEVER
    for offset in range(0, SPAN, BLOCK):
        at = offset + lane
        place = start + at.to(tl.int64)
        inside = place < stop
        s = score(_input_at(place), FORM)
        position = _position(s)
        size = tl.where(position < 0, -position, position)
        finite = inside & (size < 0x7F800000)
        nonfinite += (inside & (size >= 0x7F800000)).to(tl.int32)
        lowest = tl.where(finite, tl.minimum(lowest, position), lowest)
        highest = tl.where(finite, tl.maximum(highest, position), highest)
        one = inside & (position == 0x3F800000)
        ones += one.to(tl.int32)
        first_one = tl.where(one, tl.minimum(first_one, at), first_one)
        none = inside & (size == 0)
        zeros += none.to(tl.int32)
        last_zero = tl.where(none, at, last_zero)
        subnormal = inside & (size > 0) & (size < 0x00800000)
        subnormals += subnormal.to(tl.int32)
        first_subnormal = tl.where(subnormal, tl.minimum(first_subnormal, at), first_subnormal)
        last_subnormal = tl.where(subnormal, at, last_subnormal)
        # The neighbour nearer to zero: a drop belongs to the place further away.
        positive = place >= 0x80000000
        near = score(_input_at(tl.where(positive, place - 1, place + 1)), FORM)
        before = tl.where(positive, near, s)
        after = tl.where(positive, s, near)
        falls = inside & (after < before) & (place != 0x7FFFFFFF)
        drop_place = tl.where(positive, at, at + 1)
        drops += falls.to(tl.int32)
        first_drop = tl.where(falls, tl.minimum(first_drop, drop_place), first_drop)
        bits = _distance_bits(before, after)
        bits = tl.where(falls & (bits < 0x7FF0000000000000), bits, 0)
        drop, drop_at = _keep_first(drop, drop_at, bits, drop_place)
    slots = out + tl.program_id(0) * SLOTS
    tl.store(slots, tl.sum(nonfinite, 0).to(tl.int64))
    tl.store(slots + 1, tl.min(lowest, 0).to(tl.int64))
    tl.store(slots + 2, tl.max(highest, 0).to(tl.int64))
    tl.store(slots + 3, tl.sum(ones, 0).to(tl.int64))
    tl.store(slots + 4, _place_or_none(first_one, start))
    tl.store(slots + 5, tl.sum(zeros, 0).to(tl.int64))
    tl.store(slots + 6, _last_or_none(last_zero, start))
    tl.store(slots + 7, tl.sum(subnormals, 0).to(tl.int64))
    tl.store(slots + 8, _place_or_none(first_subnormal, start))
    tl.store(slots + 9, _last_or_none(last_subnormal, start))
    tl.store(slots + 10, tl.sum(drops, 0).to(tl.int64))
    tl.store(slots + 11, _place_or_none(first_drop, start))
    _store_first(slots + 12, drop, drop_at, start)
