"""Schedules named from outputs alone, and how far the others are."""

from typing import Any

import numpy as np
import pytest

from neartie.audit.launching import front_weights
from neartie.audit.why.attribution import contradiction
from neartie.audit.why.schedule_trees import schedule_trees
from neartie.audit.why.schedules import (
    attribute_schedule,
    candidates,
    telling_partials,
)
from neartie.audit.why.tree import evaluate
from neartie.banks.errors import InputError
from neartie.banks.open import open_bank
from neartie.kernels.project import latent_partials
from neartie.kernels.reduce import run_schedule
from neartie.kernels.reference import reference_product
from neartie.kernels.rounding import narrow, widen

ROWS, WIDTH = 36, 9
BANKS = (f"gaussian:geometry=mini,rows={ROWS},seed=1", "k3-mini/layer0")
FP32_ORDERS = {"one_shot_fp32", "own_rank_first_fp32"}
ALWAYS = {
    2: [set(candidates(2))],
    4: [{"tree_bf16", "two_level:2"}],
    8: [],
    16: [],
}


@pytest.fixture(scope="module", params=BANKS)
def inputs(request: pytest.FixtureRequest) -> Any:
    """Hidden, latent weight and exact latent of a bank's first rows."""
    bank = open_bank(request.param)
    hidden, weight = bank.read(0, ROWS).hidden, front_weights(bank).latent
    assert hidden is not None
    assert weight is not None
    return hidden, weight, reference_product(hidden, weight)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_a_schedule_is_named_from_its_output(inputs: Any, ranks: int) -> None:
    hidden, weight, exact = inputs
    partials = latent_partials(hidden, weight, ranks)
    for schedule in candidates(ranks):
        observed = run_schedule(schedule, partials, WIDTH)
        found = attribute_schedule(partials, observed, reference=exact, width=WIDTH)
        assert [set(group) for group in found.always_equal] == ALWAYS[ranks]
        assert found.elements == ranks * ROWS * 256
        alike = next((g for g in ALWAYS[ranks] if schedule in g), {schedule})
        # Two FP32 orders of these partials have the same bits on these rows, and it says so.
        if ranks > 2 and schedule in FP32_ORDERS:
            alike = FP32_ORDERS
            assert [set(group) for group in found.equal_here] == [FP32_ORDERS]
            assert any("partials that cancel" in note for note in found.notes)
        assert set(found.names) == alike
        assert found.answer == ("identified" if len(alike) == 1 else "one of")
        for one in found.matches:
            assert (one.equal == found.elements) == (one.schedule in alike)
            assert (one.apart == 0) == (one.schedule in alike)
            if one.schedule in alike:
                assert (one.off, one.fits, one.equal_rows) == (0.0, True, ROWS)
        assert contradiction(schedule, found) == ""


@pytest.mark.parametrize("schedule", candidates(8))
def test_a_schedule_is_its_tree_evaluated_without_its_code(schedule: str) -> None:
    """One row of a message of 16: two columns a slice of the ring."""
    partials = telling_partials(8, 1, 16)
    trees = schedule_trees(schedule, 8)
    reduced = run_schedule(schedule, partials, 1)
    terms = partials.astype(np.float64)
    for rank, column in np.ndindex(8, 16):
        which = {"own_rank_first_fp32": rank, "ring_bf16": column // 2}.get(schedule, 0)
        wanted = evaluate(trees[which], terms[:, 0, column].tolist())
        assert float(reduced[rank, 0, column]) == wanted


@pytest.mark.parametrize("ranks", [4, 8, 16])
def test_cancelling_partials_tell_all_schedules_apart(ranks: int) -> None:
    partials = telling_partials(ranks, ROWS, 64)
    for schedule in candidates(ranks):
        found = attribute_schedule(partials, run_schedule(schedule, partials, WIDTH), width=WIDTH)
        alike = next((g for g in ALWAYS[ranks] if schedule in g), {schedule})
        assert set(found.names) == alike
        assert found.equal_here == ()


def test_rank_0_alone_cannot_tell_its_own_order() -> None:
    partials = telling_partials(8, ROWS, 64)
    reduced = run_schedule("own_rank_first_fp32", partials, WIDTH)
    first = attribute_schedule(partials, reduced[:1], width=WIDTH, seen=[0])
    assert set(first.names) == FP32_ORDERS
    assert any("outputs of another rank are needed" in note for note in first.notes)
    third = attribute_schedule(partials, reduced[3:4], width=WIDTH, seen=[3])
    assert third.names == ("own_rank_first_fp32",)


def test_without_a_width_the_ring_is_not_tried() -> None:
    partials = telling_partials(4, ROWS, 64)
    found = attribute_schedule(partials, run_schedule("ring_bf16", partials, WIDTH))
    assert found.answer == "none fits"
    assert any("ring_bf16 was not tried" in note for note in found.notes)
    wrong = attribute_schedule(partials, run_schedule("ring_bf16", partials, WIDTH), width=12)
    assert wrong.answer == "none fits"


def test_the_nearest_is_named_where_bits_differ(inputs: Any) -> None:
    """A real kernel's partials differ in some roundings; half of the last bits here."""
    hidden, weight, exact = inputs
    partials = latent_partials(hidden, weight, 8)
    observed = run_schedule("tree_bf16", partials, WIDTH).copy()
    bits = observed.view(np.uint16)
    bits[:, :, ::50] ^= 1
    found = attribute_schedule(partials, observed, reference=exact, width=WIDTH)
    assert (found.answer, found.names, found.nearest) == ("none fits", (), "tree_bf16")
    assert found.match("tree_bf16").equal == 8 * ROWS * (256 - 6)
    assert found.match("tree_bf16").equal_rows + 1 > 0
    assert "nearest tree_bf16" in found.text()


def test_a_false_declaration_is_flagged(inputs: Any) -> None:
    hidden, weight, exact = inputs
    partials = latent_partials(hidden, weight, 8)
    observed = run_schedule("running_bf16", partials, WIDTH)
    found = attribute_schedule(partials, observed, reference=exact, width=WIDTH)
    text = contradiction("tree_bf16", found)
    assert "declares tree_bf16" in text
    assert "has the bits of running_bf16" in text
    assert contradiction("nccl", found) == contradiction(None, found) == ""
    # Off by more than rounding, and no schedule's: by bits, and by the triangle alone.
    step = narrow((widen(observed) * np.float32(1.02)).astype(np.float32))
    spoilt = attribute_schedule(partials, step, reference=exact, width=WIDTH)
    assert "does not have its bits" in contradiction("running_bf16", spoilt)
    assert "triangle is off by" in contradiction("running_bf16", spoilt, exact_bits=False)
    # One flipped bit in 50 moves no triangle: a real kernel may do that.
    observed.view(np.uint16)[:, 0, 0] ^= 1
    near = attribute_schedule(partials, observed, reference=exact, width=WIDTH)
    assert contradiction("running_bf16", near, exact_bits=False) == ""


def test_a_declared_number_of_islands_is_tried() -> None:
    partials = telling_partials(8, ROWS, 64)
    observed = run_schedule("two_level:8", partials, WIDTH)
    found = attribute_schedule(partials, observed, width=WIDTH, also=["two_level:8"])
    assert set(found.names) == {"one_shot_fp32", "two_level:8"}
    assert ("one_shot_fp32", "two_level:8") in found.always_equal
    assert contradiction("two_level:8", found) == ""


def test_an_output_that_is_no_number_fits_nothing() -> None:
    partials = telling_partials(4, ROWS, 64)
    observed = run_schedule("tree_bf16", partials, WIDTH)
    observed.view(np.uint16)[1, 2, 3] = 0x7FA5
    found = attribute_schedule(partials, observed, width=WIDTH)
    assert (found.answer, found.nearest) == ("none fits", "tree_bf16")
    assert found.match("tree_bf16").equal == found.elements - 1
    assert (found.match("tree_bf16").off, found.match("tree_bf16").apart) == (None, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 7}, "width=7, but should be a divisor of 36 rows"),
        ({"seen": [0, 4]}, "seen=\\[0, 4\\]"),
        ({"seen": [1]}, "observed.shape"),
        ({"reference": np.zeros((35, 8))}, "reference.shape"),
        ({"reference": [[0.0]]}, "reference=list"),
        ({"reference": np.full((ROWS, 8), "a")}, "reference.dtype=<U1"),
        ({"seen": [0, 1, 2, 3.0]}, "seen=\\[0, 1, 2, 3.0\\]"),
        ({"seen": 0}, "seen=0"),
        ({"width": "a"}, "width=a, but should be a divisor"),
        ({"rows": 0}, "rows=0, but should be 1..36"),
        ({"rows": -1}, "rows=-1"),
        ({"rows": 99}, "rows=99"),
        ({"rows": 2.5}, "rows=2.5"),
        ({"also": ["bogus"]}, "also=bogus, but should be one of one_shot_fp32"),
        ({"also": "two_level:4"}, "also=two_level:4, but should be a list"),
        ({"also": ["two_level:x"]}, "also=two_level:x"),
        ({"also": ["tree_bf16:2"]}, "also=tree_bf16:2"),
        ({"also": [5]}, "also=5"),
        ({"also": ["two_level:3"]}, "islands=3"),
        ({"also": ["nccl"]}, "nccl"),
        ({"partials": [[[1.0]]]}, "partials=list, but should be a numpy array of bfloat16"),
        ({"observed": None}, "observed=NoneType, but should be a numpy array of bfloat16"),
    ],
)
def test_refused(change: dict[str, Any], message: str) -> None:
    partials = telling_partials(4, ROWS, 8)
    with pytest.raises(InputError, match=message):
        attribute_schedule(**{"partials": partials, "observed": partials, **change})
