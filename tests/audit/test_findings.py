import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neartie.audit.explain import misreadings
from neartie.audit.explain.reduction_orders import (
    error_bound,
    matching_orders,
    same_sum,
    wrong_sum_hypotheses,
)
from neartie.audit.metrics.findings import (
    DISCLOSED,
    Finding,
    differing_rows,
    id_permutation,
    never_selected,
    oracle_echo,
    permuted_layout,
    rank_disagreement,
    same_as_expected,
    stale_output,
    unwritten_rows,
)


def bools(*values: int) -> npt.NDArray[np.bool_]:
    return np.array(values, np.bool_)


def ids_of(rows: int = 6, slots: int = 3, experts: int = 16, seed: int = 0) -> npt.NDArray[Any]:
    generator = np.random.default_rng(seed)
    return np.array([generator.permutation(experts)[:slots] for _ in range(rows)], np.int32)


def test_only_the_order_of_a_sum_is_no_failure() -> None:
    assert {Finding.REDUCTION_ORDER} == DISCLOSED
    assert len({str(name) for name in Finding}) == 18


def test_differing_rows_sees_one_bit_order_and_sign_of_zero() -> None:
    ids = ids_of(4)
    weights = np.full(ids.shape, 0.25, np.float32)
    assert not differing_rows(ids, weights, ids, weights).any()
    other = weights.copy()
    other[1, 2] = np.nextafter(np.float32(0.25), np.float32(1))
    assert differing_rows(ids, weights, ids, other).tolist() == [False, True, False, False]
    assert differing_rows(ids, None, ids[:, ::-1], None).all()
    zero, minus = np.zeros((1, 1), np.float32), np.full((1, 1), -0.0, np.float32)
    assert differing_rows(ids[:1, :1], zero, ids[:1, :1], minus).all()
    nan = np.full((1, 1), np.nan, np.float32)
    assert not differing_rows(ids[:1, :1], nan, ids[:1, :1], nan).any()
    # Weights that one side lacks are not compared.
    assert not differing_rows(ids, weights, ids, None).any()


def test_rank_disagreement_names_rank_and_row() -> None:
    ids = np.repeat(ids_of(3)[None], 4, axis=0)
    weights = np.ones(ids.shape, np.float32)
    assert not rank_disagreement(ids, weights).any()
    weights[2, 1, 0] = np.nextafter(np.float32(1), np.float32(2))
    found = rank_disagreement(ids, weights)
    assert found.shape == (4, 3)
    assert np.argwhere(found).tolist() == [[2, 1]]
    assert not rank_disagreement(ids, None).any()


def test_unwritten_rows_is_exactly_a_tail() -> None:
    tail = unwritten_rows(bools(0, 0, 0, 1, 1))
    assert tail is not None
    assert tail.first == 3
    assert tail.chance == pytest.approx(1 / 10)
    for bad in ((0, 0, 0), (1, 1, 1), (0, 1, 0), (1, 0, 1), (1, 1, 0)):
        assert unwritten_rows(bools(*bad)) is None
    assert unwritten_rows(bools()) is None


@given(rows=st.integers(2, 9), data=st.data())
@settings(max_examples=50)
def test_chance_of_a_tail_is_its_share_of_all_places(rows: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, rows - 1))
    tails = [
        bad
        for bad in itertools.product((0, 1), repeat=rows)
        if sum(bad) == count and unwritten_rows(bools(*bad)) is not None
    ]
    assert len(tails) == 1
    tail = unwritten_rows(bools(*tails[0]))
    assert tail is not None
    assert tail.chance == pytest.approx(1 / math.comb(rows, count))


@pytest.mark.parametrize("lag", [1, 2])
def test_stale_output_needs_a_repeat_a_wrong_row_and_new_inputs(lag: int) -> None:
    ids = ids_of(6)
    weights = np.random.default_rng(1).random(ids.shape, np.float32)
    inputs = np.random.default_rng(2).random((6, 4), np.float32)
    ids[3], weights[3] = ids[3 - lag], weights[3 - lag]
    wrong = bools(0, 0, 0, 1, 1, 0)
    expected = [False, False, False, True, False, False]
    assert stale_output(ids, weights, inputs, wrong, lag).tolist() == expected
    assert stale_output(ids, None, inputs, wrong, lag).tolist() == expected
    assert not stale_output(ids, weights, inputs, bools(*[0] * 6), lag).any()
    assert not stale_output(ids, weights, inputs, wrong, 3 - lag).any()
    inputs[3] = inputs[3 - lag]
    assert not stale_output(ids, weights, inputs, wrong, lag).any()
    assert not stale_output(ids, weights, inputs, wrong, 60).any()


@given(seed=st.integers(0, 2**31), experts=st.integers(2, 12))
@settings(max_examples=60)
def test_id_permutation_finds_the_map_of_the_seen_experts(seed: int, experts: int) -> None:
    ids = ids_of(5, min(2, experts), experts, seed)
    order = np.random.default_rng(seed).permutation(experts)
    found = id_permutation(ids, order[ids])
    seen = {int(e): int(order[e]) for e in np.unique(ids)}
    assert found == (None if all(a == b for a, b in seen.items()) else seen)


def test_id_permutation_refuses_what_is_not_one_to_one() -> None:
    ids = np.array([[0, 1], [2, 0]])
    assert id_permutation(ids, np.array([[3, 1], [2, 3]])) == {0: 3, 1: 1, 2: 2}
    assert id_permutation(ids, np.array([[3, 1], [2, 4]])) is None
    assert id_permutation(ids, np.array([[3, 3], [2, 3]])) is None
    assert id_permutation(ids, ids) is None


def test_never_selected_needs_enough_rows() -> None:
    experts = 64
    counts = np.full(experts, 40, np.int64)
    candidate = counts.copy()
    assert never_selected(counts, candidate).tolist() == []
    candidate[32:] = 0
    assert never_selected(counts, candidate).tolist() == list(range(32, 64))
    # ln(64 / 0.001) = 11.07: eleven selections may be missing by chance, twelve may not.
    counts[40], counts[41] = 11, 12
    found = never_selected(counts, candidate).tolist()
    assert 40 not in found
    assert 41 in found
    candidate[50] = 1
    assert 50 not in never_selected(counts, candidate).tolist()


def test_oracle_echo_is_agreement_on_something_wrong() -> None:
    for agree, a, b in itertools.product((0, 1), repeat=3):
        expected = bool(agree and a and b)
        assert oracle_echo(bools(agree), bools(a), bools(b)).tolist() == [expected]


def test_permuted_layout_is_all_rows_misread_and_one_of_them_visible() -> None:
    right, misread = ids_of(4), ids_of(4, seed=5)
    assert permuted_layout(misread, right, misread)
    assert permuted_layout(misread[:, ::-1], right, misread)
    assert not permuted_layout(right, right, misread)
    assert not permuted_layout(right, right, right)
    mixed = misread.copy()
    mixed[2] = right[2]
    assert not permuted_layout(mixed, right, misread)
    assert same_as_expected(mixed, right).tolist() == [False, False, True, False]


@given(ranks=st.integers(1, 5), rows=st.integers(1, 4), width=st.integers(1, 4))
@settings(max_examples=50)
def test_gather_undoes_the_cut_into_shards(ranks: int, rows: int, width: int) -> None:
    logits = np.arange(rows * ranks * width, dtype=np.float32).reshape(rows, ranks * width)
    shards = misreadings.shards_of(logits, ranks)
    assert shards.shape == (ranks, rows, width)
    assert (misreadings.gathered(shards) == logits).all()
    for rank in range(ranks):
        assert (shards[rank] == logits[:, rank * width : (rank + 1) * width]).all()


finite = st.floats(-1e6, 1e6, width=32)


@given(terms=st.lists(finite, min_size=1, max_size=5), dtype=st.sampled_from(["fp32", "bf16"]))
@settings(max_examples=60, deadline=None)
def test_every_order_is_named_and_within_the_bound(terms: list[float], dtype: str) -> None:
    target: Any = {"fp32": np.float32, "bf16": ml_dtypes.bfloat16}[dtype]
    bound = error_bound(terms, dtype)
    for order in itertools.permutations(range(len(terms))):
        total = np.float32(terms[order[0]]).astype(target)
        for i in order[1:]:
            total = (np.float32(total) + np.float32(np.float32(terms[i]).astype(target))).astype(
                target
            )
        assert matching_orders(terms, float(total), dtype)
        # Steps below the smallest normal value are not relative errors.
        assert abs(float(total) - math.fsum(terms)) <= bound + len(terms) * 2.0**-126


def test_orders_of_a_sum_whose_order_shows() -> None:
    terms = [2.0**24, 1.0, 1.0, 1.0]
    assert "left_to_right" in matching_orders(terms, 2.0**24, "fp32")
    assert "reversed" in matching_orders(terms, 2.0**24 + 4, "fp32")
    assert "tree" in matching_orders(terms, 2.0**24 + 2, "fp32", most=99)
    assert matching_orders(terms, 2.0**24 + 6, "fp32") == []
    assert matching_orders(terms, 2.0**24 + 3, "fp64")[0] == "left_to_right"
    # FP32 inside, BF16 at the end.
    assert matching_orders([256.0, 1.0, 1.0, 1.0], 260.0, "fp32") == []
    assert "left_to_right" in matching_orders([256.0, 1.0, 1.0, 1.0], 260.0, "fp32", "bf16")


def test_mistakes_in_a_sum_are_named() -> None:
    terms = [1.5, 2.25, -0.5]
    assert wrong_sum_hypotheses(terms, 1.0, "fp32") == ["partial_1_dropped"]
    assert wrong_sum_hypotheses(terms, 2.75, "fp32") == ["partial_2_added_twice"]
    assert wrong_sum_hypotheses(terms, 1.5, "fp32") == ["partial_0_as_total"]
    assert wrong_sum_hypotheses([256.0, 1.0, 1.0], 256.0, "fp32")[0] == "bf16_accumulation"
    assert wrong_sum_hypotheses(terms, 77.0, "fp32") == []


def test_same_sum_allows_pasted_digits_only_for_narrow_dtypes() -> None:
    step = float(np.nextafter(np.float32(1), np.float32(2)))
    assert not same_sum(step, 1.0, "fp32")
    assert same_sum(0.1, float(np.float32(0.1)), "fp32")
    assert same_sum(1.00390625, 1.00390625, "bf16")
    assert not same_sum(1.0078125, 1.0, "bf16")
    assert same_sum(math.nan, math.nan, "fp64")
    assert not same_sum(math.nan, 1.0, "bf16")
