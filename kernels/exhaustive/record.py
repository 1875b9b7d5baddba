"""Records of an exhaustive comparison of two score forms: exact integers that merge in any order.

Numba fills int64 vectors, one slot a count; a record gives the slots names. Where several inputs
reach the same maximum, the witness is the first in order of value, whatever the order of merging.
FP64 magnitudes are kept as their bits, whose order as integers is their order as numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...banks.errors import InputError
from .float_line import PLACES, RANGES

I64 = npt.NDArray[np.int64]

NOWHERE: Final = -1
"""The place of something that does not occur."""

EXACT_BINS: Final = 65
BINS: Final = EXACT_BINS + 26
"""Histogram bins: 0..64 hold one ULP distance each, bin 64 + n holds (2^(5+n), 2^(6+n)]."""


class PairSlot(IntEnum):
    """Slots of ``PairCounts`` in a vector."""

    INPUTS = 0
    DIFFER = 1
    UNDEFINED = 2
    UNDEFINED_AT = 3
    MAX_ULP = 4
    MAX_ULP_AT = 5
    MAX_ABS_BITS = 6
    MAX_ABS_AT = 7


class FormSlot(IntEnum):
    """Slots of ``FormCounts`` in a vector."""

    NONFINITE = 0
    LOWEST = 1
    HIGHEST = 2
    ONES = 3
    FIRST_ONE = 4
    ZEROS = 5
    LAST_ZERO = 6
    SUBNORMALS = 7
    FIRST_SUBNORMAL = 8
    LAST_SUBNORMAL = 9
    DROPS = 10
    FIRST_DROP = 11
    DROP_BITS = 12
    DROP_AT = 13


EMPTY_PAIR: Final = (0, 0, 0, NOWHERE, 0, NOWHERE, 0, NOWHERE)
EMPTY_FORM: Final = (
    *(0, PLACES, -PLACES),
    *(0, NOWHERE, 0, NOWHERE, 0, NOWHERE, NOWHERE),
    *(0, NOWHERE, 0, NOWHERE),
)


@dataclass(frozen=True, slots=True)
class PairCounts:
    """How two forms differ on a set of finite inputs.

    Attributes:
        inputs: inputs evaluated.
        differ: of these with both scores finite and unequal; -0 equals +0.
        undefined: where either score is not finite; these are in no other count below.
        undefined_at: place of the first such input.
        max_ulp: largest distance in FP32 steps.
        max_ulp_at: place of the first input that reaches it.
        max_abs_bits: FP64 bits of the largest |a - b|, rounded up where FP64 cannot hold it.
        max_abs_at: place of the first input that reaches it.
    """

    inputs: int
    differ: int
    undefined: int
    undefined_at: int
    max_ulp: int
    max_ulp_at: int
    max_abs_bits: int
    max_abs_at: int

    def merge(self, other: PairCounts) -> PairCounts:
        """Return the counts of both sets of inputs, which share none."""
        return PairCounts(
            self.inputs + other.inputs,
            self.differ + other.differ,
            self.undefined + other.undefined,
            _earliest(self.undefined_at, other.undefined_at),
            *_larger((self.max_ulp, self.max_ulp_at), (other.max_ulp, other.max_ulp_at)),
            *_larger((self.max_abs_bits, self.max_abs_at), (other.max_abs_bits, other.max_abs_at)),
        )


@dataclass(frozen=True, slots=True)
class FormCounts:
    """What one form does on a set of finite inputs.

    A drop is an input whose score is below that of the next smaller input. It belongs to the range
    that holds both, and its place is that of the larger input.

    Attributes:
        nonfinite: inputs whose score is not finite.
        lowest, highest: FP32 steps from zero of the extreme finite scores.
        ones, zeros, subnormals: inputs whose score is exactly 1, zero, subnormal.
        first_one, last_zero, first_subnormal, last_subnormal: their places.
        drops: breaks of monotonicity; a NaN makes none.
        first_drop: place of the first.
        drop_bits: FP64 bits of the largest finite one, as ``PairCounts.max_abs_bits``.
        drop_at: its place.
    """

    nonfinite: int
    lowest: int
    highest: int
    ones: int
    first_one: int
    zeros: int
    last_zero: int
    subnormals: int
    first_subnormal: int
    last_subnormal: int
    drops: int
    first_drop: int
    drop_bits: int
    drop_at: int

    def merge(self, other: FormCounts) -> FormCounts:
        """Return the counts of both sets of inputs, which share none."""
        return FormCounts(
            self.nonfinite + other.nonfinite,
            min(self.lowest, other.lowest),
            max(self.highest, other.highest),
            self.ones + other.ones,
            _earliest(self.first_one, other.first_one),
            self.zeros + other.zeros,
            max(self.last_zero, other.last_zero),
            self.subnormals + other.subnormals,
            _earliest(self.first_subnormal, other.first_subnormal),
            max(self.last_subnormal, other.last_subnormal),
            self.drops + other.drops,
            _earliest(self.first_drop, other.first_drop),
            *_larger((self.drop_bits, self.drop_at), (other.drop_bits, other.drop_at)),
        )


def _earliest(one: int, other: int) -> int:
    if NOWHERE in (one, other):
        return max(one, other)
    return min(one, other)


def _larger(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """The larger (value, place); the earlier place where the values are the same."""
    if one[0] != other[0]:
        return max(one, other)
    return one[0], _earliest(one[1], other[1])


@dataclass(frozen=True, slots=True)
class RingCounts:
    """All counts of a set of finite inputs.

    Attributes:
        pair: of the two forms.
        forms: of the first and of the second form.
        histogram: inputs by ULP distance, ``BINS`` counts.
    """

    pair: PairCounts
    forms: tuple[FormCounts, FormCounts]
    histogram: tuple[int, ...]

    @classmethod
    def empty(cls) -> RingCounts:
        """Return the counts of no inputs."""
        none = FormCounts(*EMPTY_FORM)
        return cls(PairCounts(*EMPTY_PAIR), (none, none), (0,) * BINS)

    @classmethod
    def of(cls, pair: I64, forms: I64, histogram: I64) -> RingCounts:
        """Return the record of vectors [PairSlot], [form, FormSlot] and [bin]."""
        first, second = (FormCounts(*row) for row in forms.tolist())
        return cls(PairCounts(*pair.tolist()), (first, second), tuple(histogram.tolist()))

    def merge(self, other: RingCounts) -> RingCounts:
        """Return the counts of both sets of inputs, which share none."""
        first, second = (a.merge(b) for a, b in zip(self.forms, other.forms, strict=True))
        bins = tuple(a + b for a, b in zip(self.histogram, other.histogram, strict=True))
        return RingCounts(self.pair.merge(other.pair), (first, second), bins)


@dataclass(frozen=True, slots=True)
class ScanRecord:
    """The counts of the places that were evaluated so far.

    Attributes:
        rings: counts by the name of the innermost range that holds the inputs.
        done: disjoint intervals [start, stop) of places, in order, never touching.
    """

    rings: dict[str, RingCounts]
    done: tuple[tuple[int, int], ...]

    @classmethod
    def empty(cls) -> ScanRecord:
        """Return the record before any work."""
        return cls({name: RingCounts.empty() for name in RANGES}, ())

    def merge(self, other: ScanRecord) -> ScanRecord:
        """Return the record of both; the order of merging changes nothing.

        Raises:
            InputError: a place is in both.
        """
        rings = {name: counts.merge(other.rings[name]) for name, counts in self.rings.items()}
        return ScanRecord(rings, _joined([*self.done, *other.done]))

    def range(self, name: str) -> RingCounts:
        """Return the counts of a whole range: of its ring and of those within."""
        names = list(RANGES)
        total = RingCounts.empty()
        for ring in names[: names.index(name) + 1]:
            total = total.merge(self.rings[ring])
        return total

    def covers(self, start: int, stop: int) -> bool:
        """Return whether every place of [start, stop) was evaluated."""
        return any(first <= start and stop <= last for first, last in self.done)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values from which ``from_dict`` makes the same record."""
        return {
            "done": [list(interval) for interval in self.done],
            "rings": {name: asdict(counts) for name, counts in self.rings.items()},
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ScanRecord:
        """Return the record that ``as_dict`` described."""
        rings = {}
        for name in RANGES:
            ring = data["rings"][name]
            first, second = (FormCounts(**form) for form in ring["forms"])
            bins = tuple(ring["histogram"])
            rings[name] = RingCounts(PairCounts(**ring["pair"]), (first, second), bins)
        return cls(rings, tuple((start, stop) for start, stop in data["done"]))


def _joined(intervals: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    result: list[tuple[int, int]] = []
    for start, stop in sorted(intervals):
        if result and start < result[-1][1]:
            raise InputError("done", f"{start}..{stop}", "places not evaluated before", "merge")
        if result and start == result[-1][1]:
            result[-1] = (result[-1][0], stop)
        else:
            result.append((start, stop))
    return tuple(result)
