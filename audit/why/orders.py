"""Named orders of adding n terms, as trees, to tell a recovered tree by its name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Final

from .tree import Node, Tree, key_of, node, without_bits

_NUMPY_BLOCK: Final = 128
_NUMPY_LANES: Final = 8
# Orders that start at each term are those of ranks; products of hundreds of terms have none.
_MOST_TURNED: Final = 64


def chain(terms: Sequence[Tree]) -> Tree:
    """Return the terms added one after another."""
    return reduce(lambda total, term: node(total, term), terms)


def adjacent(terms: Sequence[Tree]) -> Tree:
    """Return neighbours added in pairs, level by level; an odd one waits."""
    level = list(terms)
    while len(level) > 1:
        joined: list[Tree] = [node(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = joined + level[len(joined) * 2 :]
    return level[0]


def halves(terms: Sequence[Tree]) -> Tree:
    """Return term i plus term i + n/2, again and again: a fold."""
    level = list(terms)
    while len(level) > 1:
        half = (len(level) + 1) // 2
        upper = level[half:]
        level = [node(x, upper[i]) if i < len(upper) else x for i, x in enumerate(level[:half])]
    return level[0]


def lanes(terms: Sequence[Tree], count: int) -> list[Tree]:
    """Return ``count`` chains, lane i of terms i, i + count, ..."""
    return [chain(terms[lane::count]) for lane in range(count)]


def numpy_pairwise(terms: Sequence[Tree]) -> Tree:
    """Return the order of numpy's sum of a contiguous float array.

    Up to 7 terms one by one; up to 128 in 8 lanes, then the lanes in pairs, then what is left over;
    more are cut in two at a multiple of 8.
    Source: numpy, ``@TYPE@_pairwise_sum`` in numpy/_core/src/umath/loops_utils.h.src.
    """
    count = len(terms)
    if count < _NUMPY_LANES:
        return chain(terms)
    if count <= _NUMPY_BLOCK:
        whole = count - count % _NUMPY_LANES
        return chain([adjacent(lanes(terms[:whole], _NUMPY_LANES)), *terms[whole:]])
    half = count // 2 - (count // 2) % _NUMPY_LANES
    return node(numpy_pairwise(terms[:half]), numpy_pairwise(terms[half:]))


def islands(terms: Sequence[Tree], count: int) -> Tree:
    """Return equal runs of neighbours, each a chain, then the chain of those sums."""
    size = len(terms) // count
    return chain([chain(terms[first : first + size]) for first in range(0, len(terms), size)])


def named_orders(count: int) -> Iterator[tuple[str, Tree]]:
    """Yield names and trees of the orders that are known for ``count`` terms, plainest first."""
    terms = list(range(count))
    yield "one after another", chain(terms)
    yield "one after another from the last", chain(terms[::-1])
    for first in range(1, count if count <= _MOST_TURNED else 0):
        turned, others = terms[first:] + terms[:first], terms[:first] + terms[first + 1 :]
        yield f"one after another, rotated to start at {first}", chain(turned)
        yield f"{first} first, then the others one after another", chain([first, *others])
        backwards = turned[::-1]
        yield f"one after another backwards, rotated to start at {backwards[0]}", chain(backwards)
    yield "neighbours in pairs, level by level", adjacent(terms)
    yield "folded in halves", halves(terms)
    yield "numpy's pairwise sum", numpy_pairwise(terms)
    for parts in range(2, count // 2 + 1):
        if count % parts == 0:
            yield f"{parts} islands, one after another in each", islands(terms, parts)
            size = count // parts
            blocks = [Node(tuple(terms[k : k + size])) for k in range(0, count, size)]
            if size > 2:
                yield f"{parts} blocks, then one after another", chain(blocks)
                yield f"{parts} blocks, then in pairs, level by level", adjacent(blocks)
    for width in range(2, count // 2 + 1):
        if count % width == 0:
            yield f"{width} lanes, then the lanes one after another", chain(lanes(terms, width))
            yield f"{width} lanes, then the lanes in pairs", adjacent(lanes(terms, width))
            yield f"{width} lanes, then the lanes folded in halves", halves(lanes(terms, width))
    yield "all at once", Node(tuple(terms))


def names_of(tree: Tree, count: int) -> list[str]:
    """Return every named order that adds the same terms together as ``tree``, plainest first.

    Example:
        >>> names_of(node(node(1, 0), 2), 3)[0]
        'one after another'
    """
    if isinstance(tree, int):
        return []
    wanted = key_of(without_bits(tree))
    return [name for name, known in named_orders(count) if key_of(known) == wanted]
