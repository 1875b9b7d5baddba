"""The strategies: exact gaps by the reference's arithmetic, and the smallest witnesses."""

import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

import neartie
from neartie.banks.boundary import CENTERS, Boundary, RouterRow, boundary_row
from neartie.banks.edges import BIAS_EDGES, EDGE_BANKS, LOGIT_EDGES, edge_spec
from neartie.banks.errors import InputError
from neartie.banks.geometry import Geometry, ScoringRule
from neartie.banks.memory import MemoryBank, memory_bank
from neartie.banks.strategies import (
    SumOrder,
    edge_rows,
    named_biases,
    named_logits,
    near_ties,
    order_partials,
    small_banks,
    tie_groups,
)
from neartie.kernels.reduce import reduce_partials
from neartie.kernels.reference import ReferenceSelection, reference_select

# What the text of a row or a bank may use.
NAMES = {
    "RouterRow": RouterRow,
    "memory_bank": memory_bank,
    "inf": math.inf,
    "nan": math.nan,
}
FEW = settings(
    max_examples=60, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def select(row: RouterRow, top_k: int | None = None) -> ReferenceSelection:
    """The reference's selection of the row, at ``top_k`` slots."""
    experts = len(row.logits)
    geometry = Geometry("test", experts, 0, experts, top_k or row.top_k)
    return reference_select(row.logits[np.newaxis], row.bias, geometry, ScoringRule())


@FEW
@given(st.data(), st.integers(0, 9), st.integers(2, 12))
def test_the_gap_at_the_slot_is_exact(data: st.DataObject, gap: int, experts: int) -> None:
    slot = data.draw(st.integers(1, experts - 1))
    row = data.draw(near_ties(experts=experts, top_k=experts - 1, slot=slot, gap=gap))
    assert len(row.logits) == experts
    assert select(row, slot).boundary_ulp[0] == gap == row.gap(slot)
    # The other keys are beyond any window: 1-for-1 is the only tie.
    for other in set(range(1, experts)) - {slot}:
        beside = other in (slot - 1, slot + 1)
        assert not beside or row.gap(other) > max(4 * gap, 16)


@pytest.mark.parametrize("center", CENTERS)
@pytest.mark.parametrize("gap", [0, 1, 2, 3, 5, 64, 4096])
def test_every_center_has_every_gap(center: float, gap: int) -> None:
    for score in (0.5, 0.53125):
        row = boundary_row([2, 0, 3, 1], 2, Boundary(2, gap, center=center, score=score))
        assert select(row).boundary_ulp[0] == gap
        # Slot 2 is expert 0, the next is expert 3.
        assert set(select(row).ids[0].tolist()) == ({2, 0})


def test_a_gap_that_no_keys_have_is_refused() -> None:
    # Scores above 1/2 lie 2^-24 apart, keys below it 2^-25: no score gives an odd gap down from it.
    at = Boundary(1, 1, center=0.0, score=0.5)
    with pytest.raises(InputError, match="gap=1, but should be one that FP32 keys can have there"):
        boundary_row([0, 1], 1, at, offsets=[-0.125, -0.125])
    assert boundary_row([0, 1], 1, replace(at, gap=2), offsets=[-0.125, -0.125]).gap() == 2


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (Boundary(0, 1), r"slot=0, but should be 1\.\.2 of 3 experts"),
        (Boundary(1, 1, high=2), r"slot=1, but should be 2\.\.2 of 3 experts"),
        (Boundary(1, 1, low=0), "high and low=1 and 0, but should be at least 1 each"),
        (Boundary(1, -1), r"gap=-1, but should be 0\.\.4096"),
        (Boundary(1, 1, center=0.5), "center=0.5, but should be one of 0.0, 1.0"),
        (Boundary(1, 1, score=0.75), r"score=0.75, but should be 0\.5\.\.0\.53125"),
    ],
)
def test_a_boundary_out_of_range_is_refused(at: Boundary, message: str) -> None:
    with pytest.raises(InputError, match=message):
        boundary_row([0, 1, 2], 1, at)


def test_a_row_tells_what_is_wrong_with_it() -> None:
    zeros = np.zeros(2, np.float32)
    with pytest.raises(InputError, match=r"top_k=3, but should be 1\.\.2"):
        RouterRow(zeros, zeros, 3)
    with pytest.raises(InputError, match=r"logits and bias=\(2,\) and \(1,\)"):
        RouterRow(zeros, zeros[:1], 1)
    with pytest.raises(InputError, match=r"slot=2, but should be 1\.\.1"):
        RouterRow(zeros, zeros, 2).gap()
    with pytest.raises(InputError, match="but should be finite ones at the slot"):
        RouterRow(zeros, np.array([np.inf, 0], np.float32), 1).gap()


def test_a_real_size() -> None:
    row = find(near_ties(experts=896, top_k=16, gap=1), lambda row: True, settings=FEW)
    assert select(row).boundary_ulp[0] == 1


@FEW
@given(st.data(), st.integers(2, 5))
def test_tie_groups_share_the_key_of_the_boundary(data: st.DataObject, members: int) -> None:
    row = data.draw(tie_groups(members=members))
    keys = select(row).keys[0]
    order = np.sort(keys)[::-1]
    assert order[row.top_k - 1] == order[row.top_k]
    assert (keys == order[row.top_k]).sum() == members


def test_a_tie_may_be_of_other_scores() -> None:
    row = find(tie_groups(), lambda row: len(set(row.logits.tolist())) == len(row.logits))
    assert row.gap() == 0
    assert row.bias.any()


def ids_by(key: Callable[[RouterRow], Any]) -> Callable[[RouterRow], set[int]]:
    """A select by another key; lower id first."""

    def chosen(row: RouterRow) -> set[int]:
        keys = np.asarray(key(row), np.float64)
        return set(np.lexsort((np.arange(len(keys)), -keys))[: row.top_k].tolist())

    return chosen


def higher_id(row: RouterRow) -> set[int]:
    experts = len(row.logits)
    return {experts - 1 - i for i in ids_by(lambda row: row.keys[::-1])(row)}


FAULTS: dict[str, tuple[Callable[[RouterRow], set[int]], RouterRow]] = {
    "higher_id": (higher_id, RouterRow([0.0, 0.0], [0.0, 0.0], 1)),  # type: ignore[arg-type]
    "bf16_keys": (
        ids_by(lambda row: row.keys.astype(ml_dtypes.bfloat16)),
        RouterRow([-1.1920929e-07, 0.0], [0.0, 0.0], 1),  # type: ignore[arg-type]
    ),
    "no_bias": (
        ids_by(lambda row: row.logits),
        RouterRow([-0.062520355, 0.0], [0.015625, 0.0], 1),  # type: ignore[arg-type]
    ),
}
"""Faulty selects, and the smallest row that shows each."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_shrinks_to_the_smallest_row(name: str) -> None:
    fault, smallest = FAULTS[name]

    def wrong(row: RouterRow) -> bool:
        return fault(row) != set(select(row).ids[0].tolist())

    assert wrong(smallest)
    found = find(near_ties(), wrong, settings=settings(max_examples=1000, database=None))
    assert repr(found) == repr(smallest)


def test_a_clean_select_is_not_accused() -> None:
    @FEW
    @given(near_ties())
    def clean(row: RouterRow) -> None:
        assert ids_by(lambda row: row.keys)(row) == set(select(row).ids[0].tolist())

    clean()


@FEW
@given(st.one_of(near_ties(), tie_groups(), edge_rows().map(lambda edge: edge.row)))
def test_a_row_prints_as_the_code_that_makes_it(row: RouterRow) -> None:
    again = eval(repr(row), NAMES)
    assert again.logits.tobytes() == row.logits.tobytes()
    assert np.array_equal(again.bias, row.bias, equal_nan=True)
    assert again.top_k == row.top_k


def reduced(schedule: str, partials: Any) -> Any:
    out = np.empty_like(partials)
    reduce_partials(schedule, partials, out, partials.shape[1])
    return out


@FEW
@given(order_partials(tells=SumOrder.ROUNDINGS))
def test_partials_tell_one_rounding_from_many(partials: Any) -> None:
    plain = reduced("one_shot_fp32", partials)
    for schedule in ("running_bf16", "tree_bf16", "two_level"):
        assert (reduced(schedule, partials) != plain)[0].sum() == 1, schedule


@FEW
@given(order_partials(tells=SumOrder.FIRST_RANK))
def test_partials_tell_which_rank_is_first(partials: Any) -> None:
    own = reduced("own_rank_first_fp32", partials)
    assert (own[1] != own[0]).sum() == 1
    assert np.array_equal(own[0], reduced("one_shot_fp32", partials)[0])


@pytest.mark.parametrize("kind", SumOrder)
def test_partials_shrink(kind: SumOrder) -> None:
    found = find(order_partials(tells=kind), lambda partials: True)
    assert found.shape == (4, 1, 1)
    assert found[0, 0, 0] == 1
    wide = find(order_partials(tells=kind), lambda partials: partials.shape[2] > 1)
    assert wide.shape == (4, 1, 2)
    assert (wide != 0).sum() == 3


EDGE_SCORES = {
    "score_below_half": (-1, 0.5),
    "score_below_one": (-1, 1.0),
    "score_one": (0, 1.0),
    "score_smallest": (0, 2.0**-149),
    "score_zero": (0, 0.0),
}
"""Edge logits, and how many FP32 steps their score lies from where."""


@pytest.mark.parametrize("name", EDGE_SCORES)
def test_edge_logits_have_the_score_that_their_name_says(name: str) -> None:
    steps, where = EDGE_SCORES[name]
    logit = np.float32(LOGIT_EDGES[name])
    assert logit == LOGIT_EDGES[name], "not an FP32 number"
    score = select(RouterRow(np.array([logit]), np.zeros(1, np.float32), 1)).scores32[0, 0]
    expected = np.nextafter(np.float32(where), np.float32(-1)) if steps else np.float32(where)
    assert score == expected


def test_the_last_score_below_one_and_the_first_of_one_are_neighbours() -> None:
    below, one = (np.float32(LOGIT_EDGES[name]) for name in ("score_below_one", "score_one"))
    assert np.nextafter(below, np.float32(99)) == one


def test_edges_are_all_drawn_and_finite_ones_on_request() -> None:
    def drawn(strategy: SearchStrategy[Any]) -> set[str]:
        seen: set[str] = set()

        @settings(max_examples=400, database=None, derandomize=True)
        @given(strategy)
        def collect(edge: Any) -> None:
            seen.add(edge.name)

        collect()
        return seen

    assert drawn(named_logits()) == set(LOGIT_EDGES)
    assert drawn(named_biases()) == set(BIAS_EDGES)
    assert drawn(named_logits(finite=True)) == set(LOGIT_EDGES) - {"inf", "minus_inf", "nan"}


def test_edge_rows_name_what_they_hold() -> None:
    found = find(edge_rows(), lambda edge: bool(np.isnan(edge.row.logits).any()))
    assert len(found.names) == 1
    kind, _, expert = found.names[0].partition("=nan at ")
    assert kind == "logit"
    assert np.isnan(found.row.logits[int(expert)])
    assert len(found.row.logits) == 2


@pytest.mark.parametrize("name", EDGE_BANKS)
def test_edge_banks_open(name: str) -> None:
    bank = neartie.open_bank(edge_spec(name, geometry="16x8x32x4", rows=4))
    block = bank.read(0, 4)
    assert block.logits is not None
    assert (bank.rows, bank.geometry.experts) == (4, 32)
    bias, logits = bank.weights["correction_bias"], block.logits
    shown = {
        "bias=inf": np.isposinf(bias).any() and not np.isneginf(bias).any(),
        "bias=-inf": np.isneginf(bias).any() and not np.isposinf(bias).any(),
        "logit=inf": np.isposinf(logits).any(axis=1).all(),
        "logit=-inf": np.isneginf(logits).any(axis=1).all(),
        "one_nan": (np.isnan(logits).sum(axis=1) == 1).all(),
        "all_nan": np.isnan(logits).all(),
    }
    assert shown.get(name, np.isfinite(logits).all() and np.isfinite(bias).all())


def test_an_unknown_edge_is_refused() -> None:
    with pytest.raises(InputError, match="edge=nothing, but should be one of exact_tie, gap=1"):
        edge_spec("nothing")


@FEW
@given(small_banks())
def test_small_banks_are_banks(bank: MemoryBank) -> None:
    block = bank.read(0, bank.rows)
    assert eval(repr(bank), NAMES).digest == bank.digest
    bank.geometry.check_ranks(bank.ranks or 1)
    assert block.rows == bank.rows


@pytest.mark.parametrize(
    ("stage", "path"),
    [("logits", "route"), ("hidden", "route"), ("partials", "general"), ("shards", "route")],
)
def test_small_banks_at_a_stage_are_audited(stage: Any, path: str) -> None:
    bank = find(small_banks(stage=stage, ranks=2, rows=3), lambda bank: True, settings=FEW)
    assert bank.stage == stage
    result = neartie.run_audit(bank, baseline=path, candidate=path, rows=[3], ranks=2, gate=False)
    assert [item["ran"] for item in result.record["coverage"]] == [True]


def test_small_banks_shrink() -> None:
    found = find(small_banks(), lambda bank: True)
    assert repr(found) == "memory_bank(1, logits=[[0.0, 0.0]], bias=[0.0, 0.0])"
    found = find(small_banks(), lambda bank: bank.stage == "partials")
    assert (found.rows, found.ranks, found.geometry.experts) == (1, 1, 2)


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (near_ties(experts=1), "experts=1, but should be at least 2"),
        (near_ties(experts=3, top_k=3), r"top_k=3, but should be 1\.\.2"),
        (near_ties(experts=3, slot=3), r"slot=3, but should be 1\.\.2 of 3 experts"),
        (near_ties(gap=5000), r"gap=5000, but should be 0\.\.4096"),
        (tie_groups(members=1), "members=1, but should be at least 2"),
        (order_partials(ranks=2), "ranks=2, but should be a power of two from 4 on"),
        (order_partials(ranks=4, rows=0), "no empty axis"),
        (edge_rows(experts=2, top_k=3), r"top_k=3, but should be 1\.\.2"),
        (small_banks(ranks=2, experts=3), "experts=3, but should be a multiple of 2 ranks"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(
    strategy: SearchStrategy[Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        find(strategy, lambda value: True)


WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "hypothesis":
            raise ModuleNotFoundError("No module named 'hypothesis'", name="hypothesis")
sys.meta_path.insert(0, Missing())
import neartie
assert neartie.open_bank("gaussian:geometry=mini,rows=4").rows == 4
assert "hypothesis" not in sys.modules
import neartie.banks.strategies
"""


def test_without_hypothesis_neartie_works_and_the_strategies_say_what_they_need() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", WITHOUT], capture_output=True, text=True, check=False
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last == (
        "ModuleNotFoundError: neartie.banks.strategies needs hypothesis: "
        "pip install '.[test]' in a clone of neartie"
    )
    assert "During handling" not in done.stderr
