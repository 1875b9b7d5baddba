"""Recover the order and the roundings of a sum that is a black box."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Final, Literal

import numpy as np

from ...banks.errors import InputError
from .confirm import TRIALS, Expected, reproduced
from .order import Order, State
from .orders import names_of
from .probe import (
    NoFixedTree,
    Prober,
    SumFunction,
    check_callable,
    check_count,
    term_format,
)
from .tree import (
    MOST_BITS,
    Node,
    Tree,
    evaluate,
    inner_nodes,
    one_line,
    pairs,
    rebuilt,
)

MOST_TERMS: Final = 512
"""A plain recovery of 512 terms asks 130,816 pairs, of two sums each."""
_CHECKED_PAIRS: Final = 512
_MOST_SHOWN: Final = 16
_FP16_BITS: Final = 11
_USUAL_BITS: Final = (8, 24, 53, _FP16_BITS)
_SEED: Final = 0

JointSize = Callable[[int, int], int]


def recover_order(
    function: SumFunction,
    terms: int,
    dtype: str = "fp32",
    *,
    method: Literal["fast", "plain"] = "fast",
    trials: int = TRIALS,
) -> Order:
    """Return the summation tree of a function that is called as a black box.

    Masked probes give, for two terms, the size of the smallest part that holds both. ``plain`` asks
    for all pairs; ``fast`` only for those that the tree needs (n - 1 at best, all at worst), then
    for some hundred more as a check. The bits that each sum keeps are probed by 2^p + 1 - 2^p. Then
    random terms, half of them with large ones that cancel, are summed by the function and by the
    tree. A tree whose additions keep bits of no format is not called the order.

    Args:
        function: takes terms [n] of ``dtype``, a copy of its own, returns their sum as one number.
        terms: n, from 2 to 512.
        dtype: ``bf16``, ``fp16``, ``fp32`` or ``fp64``.
        method: which pairs to ask for.
        trials: random sums, 1 or more.

    Raises:
        InputError: a number of terms or trials, a dtype or a method outside these; no function, or
            one that returns something else than a real number.

    Source: FPRev, algorithms of sections 4 and 5 (fused sums are nodes of more than two parts).
    """
    check_callable(function, "recover_order")
    check_count("terms", terms, 2, MOST_TERMS, "recover_order")
    check_count("trials", trials, 1, None, "recover_order")
    if method not in ("fast", "plain"):
        raise InputError("method", method, "fast or plain", "recover_order")
    prober = Prober(function, terms, term_format(dtype))
    try:
        prober.check_scale()
        tree = _tree(prober, method)
        if tree is None:
            return _exact(prober, dtype, trials)
    except NoFixedTree as broken:
        return no_tree(prober, str(broken))
    return confirmed(tree, prober, trials)


def no_tree(prober: Prober, reason: str) -> Order:
    """Return that no fixed tree gives these sums."""
    count, name = prober.count, prober.format.name
    return Order(count, name, "none", reason, None, (), prober.probes, 0, 0)


def confirmed(order: Tree, prober: Prober, trials: int = TRIALS) -> Order:
    """Return an order with the bits that its sums keep, after random terms were summed by it."""
    terms, dtype = prober.count, prober.format.name
    tree = with_bits(order, prober)
    names = tuple(names_of(tree, terms))
    right, wrong = _confirmation(tree, prober, trials)
    odd = _bits_of_no_format(tree, prober)
    state: State = "tree" if right == trials and not odd else "unconfirmed"
    if right < trials and all(len(one.parts) == 2 or one.exact for one in inner_nodes(tree)):
        # Every addition and its rounding is known, so these sums are not made by that tree.
        shown = one_line(tree) if terms <= _MOST_SHOWN else "a tree"
        reason = "; ".join(filter(None, (f"masked terms show {shown}, {wrong}", odd)))
        return Order(terms, dtype, "none", reason, None, (), prober.probes, right, trials)
    reason = "; ".join(filter(None, (wrong, odd)))
    return Order(terms, dtype, state, reason, tree, names, prober.probes, right, trials)


def _confirmation(tree: Tree, prober: Prober, trials: int) -> tuple[int, str]:
    """The random sums that the tree gives: its sums rounded once or by FP32, the whole as FP16."""
    top_bits = tree.bits if isinstance(tree, Node) else None
    ways: list[Expected] = [
        partial(evaluate, tree, via_fp32=via_fp32, half=half)
        for half in ((False, True) if top_bits == _FP16_BITS else (False,))
        for via_fp32 in (False, True)
    ]
    exact = isinstance(tree, Node) and tree.exact
    return reproduced(prober, ways, trials, exact=exact)


def _bits_of_no_format(tree: Tree, prober: Prober) -> str:
    """Words on additions whose bits no format keeps: of FP16 terms, also all of them is known."""
    known = {*_USUAL_BITS, *([MOST_BITS] if prober.format.widest < MOST_BITS else [])}
    odd = {
        one.bits
        for one in inner_nodes(tree)
        if one.bits is not None and len(one.parts) == 2 and one.bits not in known
    }
    if not odd:
        return ""
    words = " or ".join(map(str, sorted(odd)))
    return f"{words} bits are those of no format here, so more than a rounded addition is done"


def _tree(prober: Prober, method: str) -> Tree | None:
    """The tree without bits, or None where nothing is ever swallowed.

    Raises:
        NoFixedTree: the sizes are those of no tree.
    """
    known: dict[tuple[int, int], int] = {}

    def size(i: int, j: int) -> int:
        pair = (min(i, j), max(i, j))
        if pair not in known:
            known[pair] = prober.joint_size(*pair)
        return known[pair]

    every = list(pairs(prober.count))
    if method == "plain":
        for pair in every:
            size(*pair)
    lossless = prober.count > 2 and all(size(0, j) == 2 for j in range(1, prober.count))
    tree = None if lossless else tree_of(size, prober.count)
    expected = dict.fromkeys(every, 2) if tree is None else joint_sizes(tree)
    _check_sizes(known, expected)
    # Asked again, whether known or not: an order that changes between calls shows here.
    _check_sizes({pair: prober.joint_size(*pair) for pair in _some(every)}, expected)
    return tree


def _check_sizes(found: dict[tuple[int, int], int], expected: dict[tuple[int, int], int]) -> None:
    for (i, j), got in found.items():
        if got != expected[i, j]:
            raise NoFixedTree(
                f"terms {i} and {j} share a part of {got}, but should share one of "
                f"{expected[i, j]} by other sums: the order changes, or is no tree"
            )


def _some(every: list[tuple[int, int]]) -> list[tuple[int, int]]:
    if len(every) <= _CHECKED_PAIRS:
        return every
    chosen = np.random.default_rng(_SEED).choice(len(every), _CHECKED_PAIRS, replace=False)
    return [every[k] for k in chosen]


def tree_of(size: JointSize, count: int) -> Tree:
    """Return the tree in which terms i and j are first together in a part of ``size(i, j)`` terms.

    Only the pairs that it needs are asked for.

    Raises:
        NoFixedTree: there is no such tree.
    """
    tree, top = _part(size, list(range(count)))
    if top != count:
        raise NoFixedTree(f"{count} terms were given, but the sums tell of a part of {top}")
    return tree


def _part(size: JointSize, members: list[int]) -> tuple[Tree, int]:
    """The tree of some terms, and the size of its top part.

    The size is larger than the number of members where the top is a fused sum with more parts.

    Raises:
        NoFixedTree: there is no such tree.
    """
    first = members[0]
    groups: dict[int, list[int]] = {}
    for member in members[1:]:
        groups.setdefault(size(first, member), []).append(member)
    tree: Tree = first
    inside = top = 1
    for whole, group in sorted(groups.items()):
        if top != inside:
            raise NoFixedTree(f"the part of term {first} has {inside} terms, and {top} by the sums")
        if whole == 2 and len(group) > 1:
            tree, inside = _without_loss(size, members=[first, *group]), 1 + len(group)
            top = inside
            continue
        part, reach = _part(size, group)
        if reach == len(group):
            tree = Node((tree, part))
        elif reach == whole and isinstance(part, Node):
            tree = Node((tree, *part.parts))
        else:
            raise NoFixedTree(f"terms {group} share a part of {reach}, and with {first} of {whole}")
        inside, top = inside + len(group), whole
    if top < inside:
        raise NoFixedTree(f"{inside} terms are in a part of {top}")
    return tree, top


def _without_loss(size: JointSize, members: list[int]) -> Tree:
    """The sum of terms of which two opposite ones cancel without swallowing any other.

    Raises:
        NoFixedTree: neighbours among them swallow others.
    """
    for a, b in pairwise(members):
        if size(a, b) != 2:
            raise NoFixedTree(f"terms {a} and {b} share a part of {size(a, b)}, and each one of 2")
    return Node(tuple(members), exact=True)


def joint_sizes(tree: Tree) -> dict[tuple[int, int], int]:
    """Return, for every pair i < j, the terms of the smallest part that holds both."""
    sizes: dict[tuple[int, int], int] = {}
    inside: dict[int, list[int]] = {}
    for one in inner_nodes(tree):
        seen: list[int] = []
        parts = [[p] if isinstance(p, int) else inside.pop(id(p)) for p in one.parts]
        whole = 2 if one.exact else sum(map(len, parts))
        for part in parts:
            for i in seen:
                for j in part:
                    sizes[min(i, j), max(i, j)] = whole
            seen += part
        inside[id(one)] = seen
    return sizes


def with_bits(tree: Tree, prober: Prober) -> Tree:
    """Return the tree with the bits that each sum keeps.

    For a sum inside, 2^p + 1 is formed in it and 2^p taken off by a term beside it: 1 is left where
    it keeps more than p bits. The whole is read off directly, so its bits are also those of the
    result. ``MOST_BITS`` and more count as exact; FP16 terms reach 29.
    """
    beside: dict[int, int | None] = {}
    for one in inner_nodes(tree):
        for place, part in enumerate(one.parts):
            other = one.parts[1 if place == 0 else 0]
            beside[id(part)] = _first_leaf(other)
    bits: dict[int, int] = {}
    for one in inner_nodes(tree):
        a, b = _first_leaf(one.parts[0]), _first_leaf(one.parts[1])
        bits[id(one)] = _bits(prober, a, b, beside.get(id(one)))
    return rebuilt(tree, lambda one, parts: Node(parts, bits[id(one)], one.exact))


def _first_leaf(tree: Tree) -> int:
    while isinstance(tree, Node):
        tree = tree.parts[0]
    return tree


def _bits(prober: Prober, a: int, b: int, c: int | None) -> int:
    """The largest p with 2^(p-1) + 1 kept exactly, by the usual formats first."""
    widest = prober.format.widest
    for usual in _USUAL_BITS:
        if usual <= widest and not prober.keeps(a, b, c, usual):
            if prober.keeps(a, b, c, usual - 1):
                return usual
            break
    low, high = 0, widest
    if prober.keeps(a, b, c, high):
        # Of FP16 terms no more can be asked, and FP64 adds them without loss.
        return MOST_BITS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if prober.keeps(a, b, c, middle) else (low, middle)
    return high


def _exact(prober: Prober, dtype: str, trials: int) -> Order:
    """The answer where no unit is ever swallowed: an exact sum, rounded once."""
    whole = with_bits(Node(tuple(range(prober.count)), exact=True), prober)
    right, wrong = _confirmation(whole, prober, trials)
    state: State = "exact" if right == trials else "none"
    reason = "" if state == "exact" else f"no unit is ever swallowed, as in an exact sum, {wrong}"
    return Order(prober.count, dtype, state, reason, None, (), prober.probes, right, trials)
