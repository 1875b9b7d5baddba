"""What the strategies share: sizes that are a number or drawn, and permutations of many experts."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

Size = int | SearchStrategy[int]
"""A number, or a strategy of numbers."""

# Hypothesis spends its choices on each number drawn: beyond so many, one seed draws them all.
_DRAWN_ONE_BY_ONE = 32


def size(draw: DrawFn, given: Size | None, usual: SearchStrategy[int]) -> int:
    """Return the given number, or one drawn from the given or the usual strategy."""
    if isinstance(given, int):
        return given
    return draw(usual if given is None else given)


def permutation(draw: DrawFn, count: int) -> list[int]:
    """Return an order of 0..count-1; it shrinks to the numbers in turn."""
    if count <= _DRAWN_ONE_BY_ONE:
        return draw(st.permutations(range(count)))
    seed = draw(st.integers(0, 2**16))
    if seed == 0:
        return list(range(count))
    return [int(number) for number in np.random.default_rng(seed).permutation(count)]


def whole_numbers(draw: DrawFn, count: int, least: int, most: int) -> list[int]:
    """Return so many numbers in least..most (which hold 0); they shrink to zeros."""
    if count <= _DRAWN_ONE_BY_ONE:
        number = st.integers(least, most)
        return draw(st.lists(number, min_size=count, max_size=count))
    seed = draw(st.integers(0, 2**16))
    if seed == 0:
        return [0] * count
    drawn = np.random.default_rng(seed).integers(least, most + 1, count)
    return [int(number) for number in drawn]
