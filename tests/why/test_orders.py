"""Recovered summation trees: against brute force, against real sums, and refused where none is."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from neartie.audit.why.confirm import random_terms
from neartie.audit.why.orders import adjacent, chain, halves, numpy_pairwise
from neartie.audit.why.probe import FORMATS, NoFixedTree
from neartie.audit.why.recover import joint_sizes, recover_order, tree_of
from neartie.audit.why.schedule_trees import schedule_trees
from neartie.audit.why.tree import (
    Node,
    Tree,
    all_binary_trees,
    drawing,
    inner_nodes,
    key_of,
    one_line,
    without_bits,
)
from neartie.banks.errors import InputError
from neartie.kernels.contract import BFLOAT16
from neartie.kernels.reduce import reduce_partials

SCHEDULES = (
    "one_shot_fp32",
    "own_rank_first_fp32",
    "running_bf16",
    "ring_bf16",
    "tree_bf16",
    "two_level:2",
)
METHODS = ("fast", "plain")


def by(tree: Tree, kind: Any = np.float32) -> Callable[[Any], float]:
    """A sum in a tree's order, rounded by numpy at each addition; written without our evaluator."""

    def value(part: Tree, terms: Any) -> Any:
        if isinstance(part, int):
            return kind(terms[part])
        total = value(part.parts[0], terms)
        for other in part.parts[1:]:
            total = kind(total + value(other, terms))
        return total

    return lambda terms: float(value(tree, terms))


def bf16_pairs(terms: Any) -> float:
    """Neighbours in pairs, level by level, in BF16."""
    level = terms
    while len(level) > 1:
        even = len(level) // 2 * 2
        wide = level[:even].astype(np.float32)
        joined = (wide[::2] + wide[1::2]).astype(ml_dtypes.bfloat16)
        level = np.concatenate([joined, level[even:]])
    return float(level[0])


def fused(block: int, bits: int) -> Callable[[Any], float]:
    """A matrix unit: the running sum and ``block`` terms, cut off ``bits`` below the largest.

    Their sum is exact, then rounded to FP32.
    """

    def total(terms: Any) -> float:
        so_far = 0.0
        for first in range(0, len(terms), block):
            parts = [so_far, *terms[first : first + block].tolist()]
            lowest = max(math.frexp(part)[1] for part in parts) - bits
            whole = sum(int(math.ldexp(part, -lowest)) for part in parts)
            so_far = float(np.float32(math.ldexp(whole, lowest)))
        return so_far

    return total


def matmul(rows: int, columns: int) -> Callable[[Any], float]:
    """One element of torch's product of [rows, n] and [n, columns], all ones."""

    def element(terms: Any) -> float:
        left = torch.zeros(rows, len(terms))
        left[rows - 1] = torch.from_numpy(terms.copy())
        return float((left @ torch.ones(len(terms), columns))[rows - 1, columns - 1])

    return element


def equal(a: Tree, b: Tree) -> bool:
    return key_of(without_bits(a)) == key_of(without_bits(b))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_every_tree_of_few_terms_is_recovered(count: int, method: Any) -> None:
    trees = list(all_binary_trees(range(count)))
    assert len(trees) == math.prod(range(1, 2 * count - 2, 2))
    for tree in trees:
        found = recover_order(by(tree), count, method=method, trials=8)
        assert found.state == "tree", one_line(tree)
        assert found.tree is not None
        assert equal(found.tree, tree), one_line(tree)
        assert {one.bits for one in inner_nodes(found.tree)} == {24}


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("function", "dtype"),
    [(np.sum, "fp32"), (np.sum, "fp64"), (matmul(4, 8), "fp32"), (matmul(1, 1), "fp32")],
    ids=["numpy fp32", "numpy fp64", "matmul", "dot"],
)
def test_brute_force_finds_the_same_tree(function: Any, dtype: str) -> None:
    """Of all 105 trees of 5 terms, random terms leave the recovered one alone."""
    found = recover_order(function, 5, dtype)
    terms = random_terms(FORMATS[dtype], 5, 64)
    wanted = [float(function(row)) for row in terms]
    kind = np.float32 if dtype == "fp32" else np.float64
    left = [
        tree
        for tree in all_binary_trees(range(5))
        if [by(tree, kind)(row) for row in terms] == wanted
    ]
    assert found.tree is not None
    (tree,) = left
    assert equal(found.tree, tree)


@pytest.mark.parametrize("count", [5, 8, 20, 128, 200])
def test_numpy_sums_in_pairs(count: int) -> None:
    found = recover_order(np.sum, count)
    assert (found.state, found.reproduced) == ("tree", found.trials)
    assert found.tree is not None
    assert equal(found.tree, numpy_pairwise(range(count)))
    assert set(found.names) & {"numpy's pairwise sum", "one after another"}


@pytest.mark.parametrize(
    ("order", "name"),
    [
        (chain, "one after another"),
        (lambda terms: chain(terms[::-1]), "one after another from the last"),
        (lambda terms: chain([*terms[5:], *terms[:5]]), "one after another, rotated to start at 5"),
        (adjacent, "neighbours in pairs, level by level"),
        (halves, "folded in halves"),
    ],
)
def test_named_orders_of_many_terms(order: Callable[[Sequence[int]], Tree], name: str) -> None:
    tree = order(list(range(24)))
    found = recover_order(by(tree), 24)
    assert found.state == "tree"
    assert found.names[0] == name


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("shape", [(4, 8), (1, 1)], ids=str)
def test_a_product_on_the_cpu_has_a_tree(shape: tuple[int, int]) -> None:
    """Which one is this machine's matter; that it gives the product's bits is not."""
    fast, plain = (recover_order(matmul(*shape), 24, method=method) for method in ("fast", "plain"))
    assert (fast.state, fast.reproduced) == ("tree", fast.trials)
    assert fast.tree == plain.tree


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_schedules_have_the_trees_that_they_declare(schedule: str, ranks: int) -> None:
    """A message of one element a rank: slice k of the ring is element k."""
    name, _, islands = schedule.partition(":")

    def at(rank: int, element: int) -> Callable[[Any], float]:
        def total(terms: Any) -> float:
            partials = np.repeat(terms[:, None, None], ranks, axis=2)
            out = np.empty(partials.shape, BFLOAT16)
            reduce_partials(name, partials, out, 1, int(islands or 2))
            return float(out[rank, 0, element])

        return total

    trees = schedule_trees(schedule, ranks)
    for k in sorted({0, 1, len(trees) - 1} & set(range(len(trees)))):
        tree = trees[k]
        found = recover_order(at(k if name == "own_rank_first_fp32" else 0, k), ranks, "bf16")
        assert (found.state, found.reason) == ("tree", "")
        assert found.tree is not None
        assert key_of(found.tree) == key_of(tree)


def test_bf16_counts_beyond_256() -> None:
    """299 terms of which BF16 counts 256 exactly: 297 units beside a pair take two probes."""
    found = recover_order(bf16_pairs, 299, "bf16")
    assert (found.state, found.names[0]) == ("tree", "neighbours in pairs, level by level")
    assert {one.bits for one in inner_nodes(found.tree or 0)} == {8}


def test_fp16_terms_in_an_fp32_accumulator() -> None:
    """A step of FP16's largest term is 64 units in FP32: 31 of them in one probe are swallowed."""
    found = recover_order(np.sum, 100, "fp16")
    assert found.state == "tree"
    assert "numpy's pairwise sum" in found.names
    assert [one.bits for one in inner_nodes(found.tree or 0)][-1] == 11
    assert {one.bits for one in inner_nodes(found.tree or 0)[:-1]} == {24}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("bits", "state"), [(114, "tree"), (24, "unconfirmed")])
def test_fused_sums_are_nodes_of_many_parts(method: Any, bits: int, state: str) -> None:
    """What is cut off at 24 bits inside a fused sum is not known, so its bits are not claimed."""
    found = recover_order(fused(4, bits), 12, method=method)
    assert found.state == state
    assert (found.reproduced == found.trials) == (state == "tree")
    assert found.tree is not None
    first = Node((0, 1, 2, 3))
    assert equal(found.tree, Node((Node((first, 4, 5, 6, 7)), 8, 9, 10, 11)))


def test_an_exact_sum_has_no_order() -> None:
    found = recover_order(lambda terms: math.fsum(terms.tolist()), 20, "fp64")
    assert (found.state, found.tree) == ("exact", None)
    assert found.reproduced == found.trials


@pytest.mark.parametrize("method", METHODS)
def test_blocks_without_loss_are_sums_of_many_parts(method: Any) -> None:
    """A K-split product in FP64: each rank's block is exact, then BF16, then ``running_bf16``."""

    def total(terms: Any) -> float:
        partials = [math.fsum(part) for part in terms.astype(np.float64).reshape(3, 4)]
        so_far = np.float32(0)
        for partial in partials:
            narrow = np.float32(np.float32(partial).astype(ml_dtypes.bfloat16))
            so_far = np.float32(np.float32(so_far + narrow).astype(ml_dtypes.bfloat16))
        return float(so_far)

    found = recover_order(total, 12, "bf16", method=method)
    assert (found.state, found.reason) == ("tree", "")
    assert found.names[0] == "3 blocks, then one after another"
    blocks = [one for one in inner_nodes(found.tree or 0) if one.exact]
    assert [one.bits for one in blocks] == [8, 8, 8]


def test_a_random_order_is_no_tree() -> None:
    random = np.random.default_rng(7)
    total = by(chain(list(range(9))))
    for _ in range(20):
        found = recover_order(lambda terms: total(random.permutation(terms)), 9)
        assert (found.state, found.tree) == ("none", None)
        assert found.reason


def test_an_order_that_changes_now_and_then_is_no_tree() -> None:
    """Every tenth call from the last: each probe alone looks right."""
    calls = iter(range(10**6))
    forth = by(chain(list(range(9))))
    found = recover_order(lambda t: forth(t if next(calls) % 10 else t[::-1]), 9)
    assert found.state == "none"


def test_an_order_that_one_pair_changes_is_no_tree() -> None:
    """No pair that the tree needs shows it, and no random terms: only the pairs asked again do."""
    forth = by(chain(list(range(9))))

    def total(terms: Any) -> float:
        return forth(terms[::-1] if terms[7] == -terms[8] != 0 else terms)

    found = recover_order(total, 9)
    assert found.state == "none"
    assert "terms 7 and 8 share a part of 2, but should share one of 9" in found.reason


@pytest.mark.parametrize(
    "function",
    [
        lambda terms: by(chain(list(range(9))))(sorted(terms, key=abs)),
        lambda terms: by(chain(list(range(9))))(terms) + float(terms[0]),
        lambda terms: by(chain(list(range(9))))(terms[[0, 1, 2, 3, 3, 5, 6, 7, 8]]),
        lambda terms: float(terms.max()),
        lambda terms: math.nan,
    ],
    ids=["sorted", "term 0 twice", "term 3 for 4", "largest", "nan"],
)
def test_what_is_no_sum_in_a_fixed_order_is_not_called_one(function: Any) -> None:
    found = recover_order(function, 9)
    assert found.state in ("none", "unconfirmed")
    assert found.reason


def test_sizes_of_no_tree_are_refused() -> None:
    sizes = joint_sizes(adjacent([0, 1, 2, 3]))
    assert sizes == {(0, 1): 2, (2, 3): 2, (0, 2): 4, (0, 3): 4, (1, 2): 4, (1, 3): 4}
    with pytest.raises(NoFixedTree, match=r"terms \[2, 3\] share a part of 3, and with 0 of 4"):
        tree_of(lambda i, j: {**sizes, (2, 3): 3}[min(i, j), max(i, j)], 4)


@pytest.mark.parametrize(
    ("terms", "dtype", "message"),
    [
        (1, "fp32", "terms=1, but should be 2..512"),
        (513, "fp32", "terms=513"),
        (4, "fp8", "dtype=fp8, but should be one of bf16, fp16, fp32, fp64: a term must be able"),
    ],
)
def test_refused(terms: int, dtype: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        recover_order(np.sum, terms, dtype)


def test_a_drawing() -> None:
    (tree,) = schedule_trees("two_level:2", 8)
    assert drawing(tree) == [
        "sum of 8, 8 bits",
        "|- sum of 4, 8 bits",
        "|  |- 0 + 1 + 2, 24 bits",
        "|  `- 3",
        "`- sum of 4, 8 bits",
        "   |- 4 + 5 + 6, 24 bits",
        "   `- 7",
    ]
    assert drawing(chain(list(range(40)))) == ["0 + 1 + ... + 39 (40 terms)"]
