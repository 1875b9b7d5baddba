"""Evaluate two score forms on consecutive places and count: the hot loop of ``certify``.

Everything is evaluated by the same code as a select's scores, in pieces that stay in the cache.
What is skipped is known: where all scores of a piece are equal, no distance is taken.
"""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np
import numpy.typing as npt

from ..contract import F32
from ..scores import fill_scores
from .float_line import PLACES, PLUS_ZERO
from .record import EXACT_BINS, I64, FormSlot, PairSlot

I32 = npt.NDArray[np.int32]

PIECE: Final = 1 << 12
"""Inputs evaluated at once; their scores and positions take 100 KB."""

_ONE: Final = 0x3F80_0000
_SMALLEST_NORMAL: Final = 0x0080_0000
_INFINITY: Final = 0x7F80_0000
_INFINITY_BITS64: Final = 0x7FF0_0000_0000_0000
# Up to this largest distance a piece is counted by one comparison per bin, which vectorises.
_FEW_BINS: Final = 4
# 2^6 is the largest distance with a bin of its own.
_LAST_EXACT_EXPONENT: Final = 6


@numba.njit(cache=True, error_model="numpy")
def _fill_inputs(start: int, bits: Any) -> None:
    """Write the bit patterns of the places from ``start`` on."""
    for i in range(len(bits)):
        place = start + i
        if place >= PLUS_ZERO:
            bits[i] = np.uint32(place - PLUS_ZERO)
        else:
            bits[i] = np.uint32(PLACES - 1 - place)


@numba.njit(cache=True, error_model="numpy")
def _fill_positions(scores: F32, positions: I32) -> None:
    """Write FP32 steps from zero; -0 is 0."""
    bits = scores.view(np.int32)
    for i in range(len(bits)):
        position = bits[i]
        if position < 0:
            position = np.int32(-PLUS_ZERO - position)
        positions[i] = position


@numba.njit(cache=True, error_model="numpy")
def _distance_bits(a: Any, b: Any) -> Any:
    """FP64 bits of |a - b| rounded up: Knuth's two-sum tells which way a - b was rounded."""
    difference = a - b
    back = difference - a
    error = (a - (difference - back)) - (b + back)
    bits = np.float64(abs(difference)).view(np.int64)
    if error * difference > 0.0:
        bits += 1
    return bits


@numba.njit(cache=True, error_model="numpy")
def _count_values(positions: I32, place: int, counts: I64) -> None:
    """Count scores that are 1, zero, subnormal or not finite; ``place`` is the first one's."""
    ones = zeros = subnormals = nonfinite = 0
    lowest, highest = np.int32(_INFINITY), np.int32(-_INFINITY)
    for i in range(len(positions)):
        size = abs(positions[i])
        ones += positions[i] == _ONE
        zeros += size == 0
        subnormals += (size > 0) & (size < _SMALLEST_NORMAL)
        nonfinite += size >= _INFINITY
        lowest = min(lowest, positions[i])
        highest = max(highest, positions[i])
    counts[FormSlot.NONFINITE] += nonfinite
    counts[FormSlot.ONES] += ones
    counts[FormSlot.ZEROS] += zeros
    counts[FormSlot.SUBNORMALS] += subnormals
    if nonfinite == 0:
        counts[FormSlot.LOWEST] = min(counts[FormSlot.LOWEST], lowest)
        counts[FormSlot.HIGHEST] = max(counts[FormSlot.HIGHEST], highest)
    new_one = ones > 0 and counts[FormSlot.FIRST_ONE] < 0
    if new_one or zeros > 0 or subnormals > 0 or nonfinite > 0:
        _find_values(positions, place, counts)


@numba.njit(cache=True, error_model="numpy")
def _find_values(positions: I32, place: int, counts: I64) -> None:
    """Note where special scores are; inputs come in order, so the first is the first seen."""
    for i in range(len(positions)):
        position = np.int64(positions[i])
        size = abs(position)
        if size >= _INFINITY:
            continue
        counts[FormSlot.LOWEST] = min(counts[FormSlot.LOWEST], position)
        counts[FormSlot.HIGHEST] = max(counts[FormSlot.HIGHEST], position)
        if position == _ONE and counts[FormSlot.FIRST_ONE] < 0:
            counts[FormSlot.FIRST_ONE] = place + i
        if size == 0:
            counts[FormSlot.LAST_ZERO] = place + i
        elif size < _SMALLEST_NORMAL:
            counts[FormSlot.LAST_SUBNORMAL] = place + i
            if counts[FormSlot.FIRST_SUBNORMAL] < 0:
                counts[FormSlot.FIRST_SUBNORMAL] = place + i


@numba.njit(cache=True, error_model="numpy")
def _count_drops(scores: F32, positions: I32, place: int, counts: I64) -> None:
    """Count scores below the one before them; ``place`` is the first score's."""
    lower = 0
    for i in range(1, len(positions)):
        lower += positions[i] < positions[i - 1]
    if lower == 0:
        return
    for i in range(1, len(positions)):
        # False where either is a NaN.
        if scores[i] < scores[i - 1]:
            counts[FormSlot.DROPS] += 1
            if counts[FormSlot.FIRST_DROP] < 0:
                counts[FormSlot.FIRST_DROP] = place + i
            bits = _distance_bits(np.float64(scores[i - 1]), np.float64(scores[i]))
            if bits > counts[FormSlot.DROP_BITS] and bits < _INFINITY_BITS64:
                counts[FormSlot.DROP_BITS] = bits
                counts[FormSlot.DROP_AT] = place + i


@numba.njit(cache=True, error_model="numpy")
def _blank_undefined(a: F32, b: F32, pa: I32, pb: I32, place: int, counts: I64) -> int:
    """Count inputs with a score that is not finite, and make them equal for what follows."""
    undefined = 0
    for i in range(len(pa)):
        if abs(pa[i]) >= _INFINITY or abs(pb[i]) >= _INFINITY:
            undefined += 1
            if counts[PairSlot.UNDEFINED_AT] < 0:
                counts[PairSlot.UNDEFINED_AT] = place + i
            a[i], b[i], pa[i], pb[i] = 0.0, 0.0, 0, 0
    counts[PairSlot.UNDEFINED] += undefined
    return undefined


@numba.njit(cache=True, error_model="numpy")
def _count_pair(
    a: F32, b: F32, pa: I32, pb: I32, steps: I64, place: int, undefined: int, counts: I64, bins: I64
) -> None:
    """Count the distances of two forms' scores; ``place`` is the first one's."""
    differ = 0
    largest: Any = np.int64(0)
    for i in range(len(pa)):
        steps[i] = abs(np.int64(pa[i]) - np.int64(pb[i]))
        differ += steps[i] != 0
        largest = max(largest, steps[i])
    counts[PairSlot.INPUTS] += len(pa)
    counts[PairSlot.DIFFER] += differ
    bins[0] += len(pa) - differ - undefined
    if differ == 0:
        return
    _count_bins(steps, largest, bins)
    if largest > counts[PairSlot.MAX_ULP]:
        counts[PairSlot.MAX_ULP] = largest
        counts[PairSlot.MAX_ULP_AT] = place + _first_of(steps, largest)
    largest = 0
    for i in range(len(pa)):
        steps[i] = _distance_bits(np.float64(a[i]), np.float64(b[i]))
        largest = max(largest, steps[i])
    if largest > counts[PairSlot.MAX_ABS_BITS]:
        counts[PairSlot.MAX_ABS_BITS] = largest
        counts[PairSlot.MAX_ABS_AT] = place + _first_of(steps, largest)


@numba.njit(cache=True, error_model="numpy")
def _count_bins(steps: I64, largest: int, bins: I64) -> None:
    """Count the distances above 0 by bin."""
    if largest <= _FEW_BINS:
        for number in range(1, largest + 1):
            found = 0
            for i in range(len(steps)):
                found += steps[i] == number
            bins[number] += found
        return
    for i in range(len(steps)):
        distance: Any = steps[i]
        if distance >= EXACT_BINS:
            exponent = (np.float64(distance - 1).view(np.int64) >> 52) - 1023
            distance = EXACT_BINS + exponent - _LAST_EXACT_EXPONENT
        if distance > 0:
            bins[distance] += 1


@numba.njit(cache=True, error_model="numpy")
def _first_of(values: I64, wanted: Any) -> int:
    for i in range(len(values)):
        if values[i] == wanted:
            return i
    return -1


@numba.njit(cache=True, error_model="numpy")
def count_scores(
    scores: Any, place: int, before: Any, inputs: int, pair: I64, forms: I64, bins: I64
) -> None:
    """Add the counts of two forms' scores of consecutive places to three vectors.

    A drop is between neighbours, and belongs to the range that holds both: to the one further from
    zero. So a neighbour before or after the counted inputs may stand beside them in ``scores``.

    Args:
        scores: [form, input] float32, two forms; undefined ones are overwritten.
        place: of the first counted input.
        before: inputs before that one.
        inputs: counted inputs.
        pair: [PairSlot] int64.
        forms: [form, FormSlot] int64.
        bins: [``BINS``] int64.
    """
    positions = np.empty(scores.shape, np.int32)
    own = slice(before, before + inputs)
    for form in range(2):
        _fill_positions(scores[form], positions[form])
        _count_values(positions[form, own], place, forms[form])
        _count_drops(scores[form], positions[form], place - before, forms[form])
    a, b, pa, pb = scores[0, own], scores[1, own], positions[0, own], positions[1, own]
    undefined = _blank_undefined(a, b, pa, pb, place, pair)
    _count_pair(a, b, pa, pb, np.empty(inputs, np.int64), place, undefined, pair, bins)


@numba.njit(cache=True, error_model="numpy", nogil=True)
def count_block(
    codes: tuple[int, int], start: int, stop: int, pair: I64, forms: I64, bins: I64
) -> None:
    """Add the counts of the places [start, stop), all of one sign, to three vectors.

    A positive block looks at the place below it, for the drop that belongs to it, a negative one at
    the place above it.

    Args:
        codes: of the two forms in ``scores.FORMS``.
        start: first place.
        stop: one past the last.
        pair: [PairSlot] int64.
        forms: [form, FormSlot] int64.
        bins: [``BINS``] int64.
    """
    before: Any = np.int64(start >= PLUS_ZERO)
    bits = np.empty(PIECE + 1, np.uint32)
    scores = np.empty((2, PIECE + 1), np.float32)
    for place in range(start, stop, PIECE):
        inputs = min(PIECE, stop - place)
        after = before == 0 and place + inputs != PLUS_ZERO
        size = before + inputs + np.int64(after)
        _fill_inputs(place - before, bits[:size])
        for form in range(2):
            fill_scores(codes[form], bits[:size].view(np.float32), scores[form, :size])
        count_scores(scores[:, :size], place, before, inputs, pair, forms, bins)


@numba.njit(cache=True, error_model="numpy", nogil=True)
def count_nan_scores(code: int, start: int, stop: int) -> tuple[int, int]:
    """Return how many of the places [start, stop) have a NaN score, and the first that has none.

    Args:
        code: of the form in ``scores.FORMS``.
        start: first place.
        stop: one past the last.

    Returns:
        The number, and a place or -1.
    """
    bits = np.empty(PIECE, np.uint32)
    scores = np.empty(PIECE, np.float32)
    found, first = 0, -1
    for place in range(start, stop, PIECE):
        size = min(PIECE, stop - place)
        _fill_inputs(place, bits[:size])
        fill_scores(code, bits[:size].view(np.float32), scores[:size])
        for i in range(size):
            if scores[i] != scores[i]:
                found += 1
            elif first < 0:
                first = place + i
    return found, first
