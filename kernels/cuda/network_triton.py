"""The 16 largest of a row and the next one, by one warp: sorting networks in registers.

A value here is a [32] tensor, one element a lane. Each lane first sorts its own values four at a
time and keeps its four largest (``lane_tops``). Lists of 4, 8 and 16 are then merged between lanes
by bitonic exchange (``warp_top16``), and the largest value ever dropped is the 17th. A lane that
held five of the largest would have lost one: callers compare the smallest kept of each lane with
the 17th and count again where a lane may hide one (about 4 rows in 100 for 896 random values).

Works on any totally ordered type; equal values are separate members of the multiset.
"""

from __future__ import annotations

from .lang import tl, triton


@triton.jit
def split4(tile: tl.tensor) -> tl.tuple:
    """The four columns of a [32, 4] tile, each [32]."""
    even, odd = tl.split(tl.reshape(tile, [32, 2, 2]))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def _exchange(a: tl.tensor, b: tl.tensor) -> tl.tuple:
    return tl.maximum(a, b), tl.minimum(a, b)


@triton.jit
def sort4(a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor) -> tl.tuple:
    """Four values of each lane, descending."""
    a, b = _exchange(a, b)
    c, d = _exchange(c, d)
    a, c = _exchange(a, c)
    b, d = _exchange(b, d)
    b, c = _exchange(b, c)
    return a, b, c, d


@triton.jit
def _sort_bitonic4(a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor) -> tl.tuple:
    a, c = _exchange(a, c)
    b, d = _exchange(b, d)
    a, b = _exchange(a, b)
    c, d = _exchange(c, d)
    return a, b, c, d


@triton.jit
def keep_top4(
    a: tl.tensor,
    b: tl.tensor,
    c: tl.tensor,
    d: tl.tensor,
    e: tl.tensor,
    f: tl.tensor,
    g: tl.tensor,
    h: tl.tensor,
) -> tl.tuple:
    """The four largest of two descending lists of four, descending."""
    a = tl.maximum(a, h)
    b = tl.maximum(b, g)
    c = tl.maximum(c, f)
    d = tl.maximum(d, e)
    return _sort_bitonic4(a, b, c, d)


@triton.jit
def _pick(mine: tl.tensor, other: tl.tensor, take_larger: tl.tensor) -> tl.tensor:
    return tl.where((mine > other) == take_larger, mine, other)


@triton.jit
def _across(
    a: tl.tensor,
    b: tl.tensor,
    c: tl.tensor,
    d: tl.tensor,
    partner: tl.tensor,
    take_larger: tl.tensor,
) -> tl.tuple:
    """One exchange with the same place of another lane."""
    a = _pick(a, tl.gather(a, partner, 0), take_larger)
    b = _pick(b, tl.gather(b, partner, 0), take_larger)
    c = _pick(c, tl.gather(c, partner, 0), take_larger)
    d = _pick(d, tl.gather(d, partner, 0), take_larger)
    return a, b, c, d


@triton.jit
def _mirrored(
    a: tl.tensor,
    b: tl.tensor,
    c: tl.tensor,
    d: tl.tensor,
    partner: tl.tensor,
    take_larger: tl.tensor,
) -> tl.tuple:
    """One exchange with the mirrored place of the mirrored lane: joins two descending lists."""
    e = tl.gather(d, partner, 0)
    f = tl.gather(c, partner, 0)
    g = tl.gather(b, partner, 0)
    h = tl.gather(a, partner, 0)
    a = _pick(a, e, take_larger)
    b = _pick(b, f, take_larger)
    c = _pick(c, g, take_larger)
    d = _pick(d, h, take_larger)
    return a, b, c, d


@triton.jit
def sort16(a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor, lane: tl.tensor) -> tl.tuple:
    """A bitonic list of 16 over four lanes, descending: place ``4 * (lane % 4) + register``."""
    a, b, c, d = _across(a, b, c, d, lane ^ 2, (lane & 2) == 0)
    a, b, c, d = _across(a, b, c, d, lane ^ 1, (lane & 1) == 0)
    return _sort_bitonic4(a, b, c, d)


@triton.jit
def _keep_top16(
    a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor, dropped: tl.tensor, partner: tl.tensor
) -> tl.tuple:
    """The 16 largest of two descending lists of 16 as a bitonic list, and the largest dropped."""
    e = tl.gather(d, partner, 0)
    f = tl.gather(c, partner, 0)
    g = tl.gather(b, partner, 0)
    h = tl.gather(a, partner, 0)
    low = tl.maximum(tl.minimum(a, e), tl.minimum(b, f))
    high = tl.maximum(tl.minimum(c, g), tl.minimum(d, h))
    dropped = tl.maximum(dropped, tl.maximum(low, high))
    return tl.maximum(a, e), tl.maximum(b, f), tl.maximum(c, g), tl.maximum(d, h), dropped


@triton.jit
def warp_top16(
    a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor, dropped: tl.tensor, lane: tl.tensor
) -> tl.tuple:
    """The 16 largest of 32 descending lists of four, and the largest of the others.

    Every four lanes end with the same bitonic list of 16 (``sort16`` orders it); ``dropped``
    differs by lane and its maximum is the 17th, or its own start where nothing above was dropped.
    """
    a, b, c, d = _mirrored(a, b, c, d, lane ^ 1, (lane & 1) == 0)
    a, b, c, d = _sort_bitonic4(a, b, c, d)
    a, b, c, d = _mirrored(a, b, c, d, lane ^ 3, (lane & 2) == 0)
    a, b, c, d = _across(a, b, c, d, lane ^ 1, (lane & 1) == 0)
    a, b, c, d = _sort_bitonic4(a, b, c, d)
    a, b, c, d, dropped = _keep_top16(a, b, c, d, dropped, lane ^ 7)
    a, b, c, d = sort16(a, b, c, d, lane)
    a, b, c, d, dropped = _keep_top16(a, b, c, d, dropped, lane ^ 11)
    a, b, c, d = sort16(a, b, c, d, lane)
    return _keep_top16(a, b, c, d, dropped, lane ^ 19)
