"""Which of many float32 values reach a limit, 64 at a time as the bits of one integer.

Compilers turn neither ``if value >= limit: found[count] = i`` nor its form without a branch into
vector instructions; a comparison of vectors whose result is read as an integer they do, on every
processor. Additions are IEEE, one rounding each: the same bits as the scalar expression.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from ..contract import F32
from .uncounted import uncounted

WORD: Final = 64
"""Values of one answer."""
_WORD_BYTES: Final = 4 * WORD
_UNBRANCHED: Final = 3
_VECTOR = ir.VectorType(ir.FloatType(), WORD)


def _vector(builder: Any, address: Any) -> Any:
    """The ``WORD`` floats at an address, aligned as one float is."""
    return builder.load(builder.inttoptr(address, _VECTOR.as_pointer()), align=4)


def _reached(builder: Any, values: Any, limit: Any) -> Any:
    """Bits of values >= limit; False where either is NaN."""
    place = ir.IntType(32)(0)
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), limit, place)
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), WORD), [0] * WORD)
    limits = builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), zeros)
    return builder.bitcast(builder.fcmp_ordered(">=", values, limits), ir.IntType(WORD))


@intrinsic
def _values_reach(typing_context: Any, address: Any, limit: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _reached(builder, _vector(builder, arguments[0]), arguments[1])

    return types.uint64(types.intp, types.float32), code


@intrinsic
def _sums_reach(typing_context: Any, left: Any, right: Any, limit: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        sums = builder.fadd(_vector(builder, arguments[0]), _vector(builder, arguments[1]))
        return _reached(builder, sums, arguments[2])

    return types.uint64(types.intp, types.intp, types.float32), code


@intrinsic
def _lowest_bit(typing_context: Any, bits: Any) -> Any:
    """The place of the lowest bit that is set, 64 of none."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.uint64(types.uint64), code


_by_value: Any = _values_reach
_by_sum: Any = _sums_reach
_lowest: Any = _lowest_bit


@uncounted
def _append(bits: Any, first: Any, count: Any, found: Any) -> Any:
    """Append first + the place of each bit to found[:count]; return the new count."""
    # The first few without a branch: how many bits a word has is nothing a processor can foresee.
    for _ in range(_UNBRANCHED):
        found[count] = np.uint32(first + _lowest(bits))
        count += np.uint64(bits != np.uint64(0))
        bits &= bits - np.uint64(1)
    while bits != np.uint64(0):
        found[count] = np.uint32(first + _lowest(bits))
        count += np.uint64(1)
        bits &= bits - np.uint64(1)
    return count


@uncounted
def find_values(values: F32, limit: Any, found: Any) -> Any:
    """Write the places, ascending, of the contiguous values that reach the limit; how many.

    Args:
        values: [n] float32, contiguous.
        limit: float32.
        found: uint32, room for n + 1: the last is written to and means nothing.
    """
    address, words = values.ctypes.data, len(values) // WORD
    count: Any = np.uint64(0)
    for word in range(words):
        bits = _by_value(address + word * _WORD_BYTES, limit)
        count = _append(bits, np.uint64(word * WORD), count, found)
    for place in range(words * WORD, len(values)):
        if values[place] >= limit:
            count = _append(np.uint64(1), np.uint64(place), count, found)
    return np.int64(count)


@uncounted
def find_sums(left: F32, right: F32, limit: Any, found: Any) -> Any:
    """As ``find_values`` of left + right, each [n] float32 and contiguous."""
    at_left, at_right, words = left.ctypes.data, right.ctypes.data, len(left) // WORD
    count: Any = np.uint64(0)
    for word in range(words):
        offset = word * _WORD_BYTES
        bits = _by_sum(at_left + offset, at_right + offset, limit)
        count = _append(bits, np.uint64(word * WORD), count, found)
    for place in range(words * WORD, len(left)):
        if left[place] + right[place] >= limit:
            count = _append(np.uint64(1), np.uint64(place), count, found)
    return np.int64(count)
