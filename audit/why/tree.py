"""A summation tree: which terms are added first, where a sum is rounded, and a drawing of both."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np

MOST_BITS: Final = 64
"""Significant bits at which a sum counts as exact: no format here keeps as many."""
_FP32_BITS: Final = 24


@dataclass(frozen=True, slots=True)
class Node:
    """A sum of two or more parts, each a term's number or another sum.

    ``bits`` are the significant bits that the sum keeps (8 BF16, 11 FP16, 24 FP32, 53 FP64); None
    where that was not measured. More than two parts are one fused addition: within it no order
    shows. An ``exact`` one swallows nothing: its terms are added without loss, and rounded once.
    Trees with the same parts in another order of writing are equal when ``ordered``.
    """

    parts: tuple[Tree, ...]
    bits: int | None = None
    exact: bool = False


Tree = int | Node


def node(*parts: Tree, bits: int | None = None) -> Node:
    """Return the sum of ``parts``."""
    return Node(parts, bits)


def leaves(tree: Tree) -> list[int]:
    """Return the terms' numbers from left to right."""
    found: list[int] = []
    waiting: list[Tree] = [tree]
    while waiting:
        top = waiting.pop()
        if isinstance(top, int):
            found.append(top)
        else:
            waiting.extend(reversed(top.parts))
    return found


def inner_nodes(tree: Tree) -> list[Node]:
    """Return every sum, each before the sums that it is part of."""
    found: list[Node] = []
    waiting: list[Tree] = [tree]
    while waiting:
        top = waiting.pop()
        if isinstance(top, Node):
            found.append(top)
            waiting.extend(top.parts)
    return found[::-1]


def rebuilt(tree: Tree, make: Callable[[Node, tuple[Tree, ...]], Tree]) -> Tree:
    """Return the tree whose every sum is ``make(sum, its rebuilt parts)``; no recursion."""
    done: dict[int, Tree] = {}
    for one in inner_nodes(tree):
        parts = tuple(part if isinstance(part, int) else done[id(part)] for part in one.parts)
        done[id(one)] = make(one, parts)
    return tree if isinstance(tree, int) else done[id(tree)]


def ordered(tree: Tree) -> Tree:
    """Return the tree with each sum's parts sorted by their lowest term: a + b is b + a."""
    lowest: dict[int, int] = {}

    def make(one: Node, parts: tuple[Tree, ...]) -> Tree:
        def first(part: Tree) -> int:
            return part if isinstance(part, int) else lowest[id(part)]

        made = Node(tuple(sorted(parts, key=first)), one.bits, one.exact)
        # The node stays alive in the tree that is being built, so its id is its own.
        lowest[id(made)] = first(made.parts[0])
        return made

    return rebuilt(tree, make)


def without_bits(tree: Tree) -> Tree:
    """Return the order alone."""
    return rebuilt(tree, lambda one, parts: Node(parts, exact=one.exact))


def key_of(tree: Tree) -> frozenset[tuple[int, int | None]]:
    """Return a value that equal trees share: each sum's terms, as bits of a number, and its bits.

    Deep trees compare without recursion by it, and the order in which parts are written is out.
    """
    terms: dict[int, int] = {}
    for one in inner_nodes(tree):
        terms[id(one)] = sum(1 << p if isinstance(p, int) else terms[id(p)] for p in one.parts)
    return frozenset((terms[id(one)], one.bits) for one in inner_nodes(tree))


def rounded_to(value: float, bits: int | None) -> float:
    """Return ``value`` with so many significant bits, ties to even; exponents have no limit."""
    if bits is None or bits >= 53 or value == 0.0 or not math.isfinite(value):
        return value
    fraction, exponent = math.frexp(value)
    return math.ldexp(float(round(math.ldexp(fraction, bits))), exponent - bits)


def _as_fp16(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float16(value))


def evaluate(
    tree: Tree, terms: Sequence[float], *, via_fp32: bool = False, half: bool = False
) -> float:
    """Return the sum of ``terms`` in the tree's order, each sum rounded to its bits.

    ``via_fp32``: a sum of fewer than 24 bits is rounded to 24 first, as an FP32 accumulator that is
    stored as BF16; many libraries also store FP64 so. ``half``: the whole is stored as FP16, whose
    range ends where that of 11 bits alone does not.

    A sum of two is made in FP64 first: to 24 bits and fewer that is innocuous (53 >= 2 * 24 + 2;
    Figueroa, When is double rounding innocuous?, 1995). A fused sum is exact, rounded once.
    """
    values: dict[int, float] = {}
    for one in inner_nodes(tree):
        parts = [terms[p] if isinstance(p, int) else values[id(p)] for p in one.parts]
        whole = parts[0] + parts[1] if len(parts) == 2 else math.fsum(parts)
        if via_fp32 and one.bits is not None and one.bits < _FP32_BITS:
            whole = rounded_to(float(whole), _FP32_BITS)
        stored = _as_fp16 if half and one is tree else partial(rounded_to, bits=one.bits)
        values[id(one)] = stored(float(whole))
    return float(terms[tree]) if isinstance(tree, int) else values[id(tree)]


def one_line(tree: Tree) -> str:
    """Return the tree in brackets; terms that are added one by one share a pair of them.

    Example:
        >>> one_line(node(node(node(0, 1), 2), node(3, 4)))
        '((0+1+2)+(3+4))'
    """
    return _bracketed(_words(ordered(tree)))


def _bracketed(words: str) -> str:
    return f"({words})" if "+" in words else words


def _words(tree: Tree) -> str:
    done: dict[int, str] = {}
    for one in inner_nodes(tree):
        texts = []
        for place, part in enumerate(one.parts):
            text = str(part) if isinstance(part, int) else done[id(part)]
            chain = place == 0 and len(one.parts) == 2 and isinstance(one.parts[1], int)
            texts.append(text if chain else _bracketed(text))
        joint = "+" if len(one.parts) == 2 else " + "
        done[id(one)] = joint.join(texts)
    return str(tree) if isinstance(tree, int) else done[id(tree)]


def drawing(tree: Tree, names: dict[int, str] | None = None) -> list[str]:
    r"""Return the tree as lines, one a sum or a term; chains of single terms share a line.

    A sum's line says how many terms it has, how they are added and how many bits it keeps.

    Example:
        >>> print("\n".join(drawing(node(node(0, 1, bits=8), node(2, 3, bits=8), bits=8))))
        sum of 4, 8 bits
        |- 0 + 1, 8 bits
        `- 2 + 3, 8 bits
    """
    lines: list[str] = []
    waiting: list[tuple[Tree, str, str]] = [(ordered(tree), "", "")]
    while waiting:
        top, lead, below = waiting.pop()
        text, parts = _shown(top, names or {})
        lines.append(lead + text)
        for place in range(len(parts) - 1, -1, -1):
            last = place == len(parts) - 1
            mark, rest = ("`- ", "   ") if last else ("|- ", "|  ")
            waiting.append((parts[place], below + mark, below + rest))
    return lines


def _shown(tree: Tree, names: dict[int, str]) -> tuple[str, Sequence[Tree]]:
    """A node's line, and the parts that need lines of their own."""
    if isinstance(tree, int):
        return names.get(tree, str(tree)), ()
    chain = _chain(tree)
    bits = "" if tree.bits is None else f", {_bits_words(tree.bits)}"
    terms = [part for part in chain if isinstance(part, int)]
    fused = "" if len(tree.parts) == 2 else ", no loss before" if tree.exact else ", fused"
    if len(terms) == len(chain):
        return _run(terms, names) + bits + fused, ()
    kind = " one after another" if len(chain) > len(tree.parts) else ""
    return f"sum of {len(leaves(tree))}{kind}{bits}{fused}", chain


def _bits_words(bits: int) -> str:
    return "exact" if bits >= MOST_BITS else f"{bits} bits"


def _chain(tree: Node) -> list[Tree]:
    """The parts of a sum that grew term by term with the same bits, the first ones first."""
    rest: list[Tree] = []
    top: Tree = tree
    while isinstance(top, Node) and len(top.parts) == 2 and top.bits == tree.bits:
        a, b = top.parts
        if isinstance(a, Node) and isinstance(b, Node):
            break
        top, term = (b, a) if isinstance(b, Node) else (a, b)
        rest.append(term)
    if not rest:
        return list(tree.parts)
    return [top, *reversed(rest)]


def _run(terms: Sequence[int], names: dict[int, str]) -> str:
    """Terms added one by one; a regular run of more than six is shortened."""
    words = [names.get(term, str(term)) for term in terms]
    steps = {b - a for a, b in pairwise(terms)}
    if len(terms) > 6 and len(steps) == 1:
        return f"{words[0]} + {words[1]} + ... + {words[-1]} ({len(words)} terms)"
    return " + ".join(words)


def pairs(count: int) -> Iterator[tuple[int, int]]:
    """Yield every pair of terms, i < j."""
    return ((i, j) for i in range(count) for j in range(i + 1, count))


def all_binary_trees(terms: Sequence[int]) -> Iterator[Tree]:
    """Yield every order of adding ``terms`` two at a time: (2n - 3)!! trees."""
    if len(terms) == 1:
        yield terms[0]
        return
    first, rest = terms[0], terms[1:]
    # The part with the first term, by the subset of the others that it holds.
    for mask in range((1 << len(rest)) - 1):
        mine = [first, *(t for k, t in enumerate(rest) if mask >> k & 1)]
        others = [t for k, t in enumerate(rest) if not mask >> k & 1]
        for left in all_binary_trees(mine):
            for right in all_binary_trees(others):
                yield Node((left, right))
