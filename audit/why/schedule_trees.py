"""The trees that each declared schedule stands for, with the bits that each sum keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...kernels.reduce import check_islands
from .orders import adjacent, chain, islands
from .tree import Node, Tree, key_of, leaves, rebuilt

BF16: Final = 8
FP32: Final = 24


def schedule_trees(schedule: str, ranks: int) -> list[Tree]:
    """Return a schedule's trees over partials 0..ranks-1, by the owner of the sum.

    One tree where all ranks and elements share it; ``own_rank_first_fp32`` has one a rank,
    ``ring_bf16`` one a slice of the message.

    Raises:
        KeyError: a schedule that is no known arithmetic, such as a library's.
        EnvelopeError: islands that do not divide the ranks.
    """
    name, _, count = schedule.partition(":")
    terms: list[Tree] = list(range(ranks))
    if ranks == 1:
        return [0]
    if name == "two_level":
        number = int(count or 2)
        check_islands(ranks, number)
        return [_two_level(terms, number)]
    turned = [terms[k:] + terms[:k] for k in range(ranks)]
    made: dict[str, list[Tree]] = {
        "one_shot_fp32": [_kept(chain(terms), FP32)],
        "own_rank_first_fp32": [_kept(chain(order), FP32) for order in turned],
        "running_bf16": [_kept(chain(terms), BF16)],
        "ring_bf16": [_kept(chain(order), BF16) for order in [*turned[1:], turned[0]]],
        "tree_bf16": [_kept(adjacent(terms), BF16)],
    }
    return made[name]


def schedule_arithmetic(schedule: str, ranks: int) -> frozenset[object]:
    """Return a value that schedules of the same arithmetic share, for a number of ranks."""
    trees = schedule_trees(schedule, ranks)
    keys = {key_of(tree) for tree in trees}
    # Which rank or slice has which tree matters where there are several.
    return frozenset(keys) if len(keys) == 1 else frozenset(enumerate(map(key_of, trees)))


def _kept(tree: Tree, bits: int) -> Tree:
    """Every sum with so many bits; the whole is rounded to BF16 at the end in any case."""
    whole = len(leaves(tree))
    return rebuilt(tree, lambda one, parts: Node(parts, BF16 if _size(parts) == whole else bits))


def _size(parts: Sequence[Tree]) -> int:
    return sum(len(leaves(part)) for part in parts)


def _two_level(terms: list[Tree], count: int) -> Tree:
    size = len(terms) // count

    def make(one: Node, parts: tuple[Tree, ...]) -> Tree:
        inside = _size(parts)
        # An island's own sum is narrowed, and so is the whole; sums across islands are FP32.
        return Node(parts, BF16 if inside in (size, len(terms)) else FP32)

    return rebuilt(islands(terms, count), make)
