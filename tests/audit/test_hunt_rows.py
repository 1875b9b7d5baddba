"""What a hunt says of single rows: judged as an audit does, made smaller, run again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import rare_faults
from hunting import LOWER_ID, SMALL, Spoil, second_for_last, spoiled
from hypothesis import given, settings
from hypothesis import strategies as st
from wrapped_path import WrappedPath

import neartie
from neartie.audit.hunt.arena import Arena
from neartie.audit.hunt.scene import Scene
from neartie.audit.policy import Policy
from neartie.banks.errors import EnvelopeError, InputError
from neartie.banks.geometry import Geometry, ScoringRule
from neartie.kernels.contract import Launch, Routed

ROW = np.asarray([[3.0, 2.0, 1.0, 1.0, 0.0, -1.0]], np.float32)
"""Top 3 of 6; experts 2 and 3 tie at the boundary."""


def swapped(launch: Launch, out: Routed) -> None:
    out.ids[:, :, 2] = 3


def swapped_and_scaled(launch: Launch, out: Routed) -> None:
    swapped(launch, out)
    out.weights[:] *= np.float32(1.001)


def far(launch: Launch, out: Routed) -> None:
    out.ids[:, :, 0] = 4


def doubled(launch: Launch, out: Routed) -> None:
    out.weights[:] *= np.float32(2)


def one_step(launch: Launch, out: Routed) -> None:
    out.weights[:] = np.nextafter(out.weights, np.float32(2))


def reordered(launch: Launch, out: Routed) -> None:
    out.ids[:], out.weights[:] = out.ids[:, :, ::-1].copy(), out.weights[:, :, ::-1].copy()


def unwritten(launch: Launch, out: Routed) -> None:
    out.ids[:, 0, 0] = -0x5A5A5A5B


def no_number(launch: Launch, out: Routed) -> None:
    out.weights[:, 0, 0] = np.nan


@pytest.mark.parametrize(
    ("spoil", "kind", "policy"),
    [
        (swapped, None, Policy()),
        (swapped, "set:exact_tie", LOWER_ID),
        (swapped_and_scaled, "flag:wrong_sum+weights_not_from_ids", Policy()),
        (far, "set:far_swap", Policy()),
        (far, "weights", Policy(noise_abs=1.0)),
        (doubled, "weights:scaled", Policy()),
        (one_step, None, Policy()),
        (one_step, "weights:", Policy(weight_budget_ulp=0)),
        (reordered, None, Policy()),
        (unwritten, "breach:id_out_of_range+poison_survives", Policy()),
        (no_number, "breach:nonfinite_weight", Policy()),
    ],
)
def test_a_row_is_judged_as_an_audit_judges_it(
    spoil: Spoil, kind: str | None, policy: Policy
) -> None:
    faulty = WrappedPath(spoil, "route:select=standalone")
    found = neartie.check_rows(
        ROW, baseline="general", candidate=faulty, top_k=3, policy=policy
    ).differences
    if kind is None:
        assert found == ()
        return
    assert kind in found[0].kind
    assert found[0].faulty == "candidate"
    # The same breach, or the same fault, on both sides is no difference between them.
    both = neartie.check_rows(ROW, baseline=faulty, candidate=faulty, top_k=3, policy=policy)
    assert both.differences == ()


def test_the_faulty_side_is_named() -> None:
    faulty = WrappedPath(second_for_last, "route:select=standalone")
    result = neartie.hunt(faulty, "general", geometry=SMALL, rows=3000, width=4)
    assert result.found[0].difference.faulty == "baseline"
    both = neartie.hunt(faulty, faulty, geometry=SMALL, rows=3000, width=4)
    # Paths that share a fault do not differ: a hunt is no audit.
    assert both.exit_status == 0


def test_a_smaller_row_with_another_fault_is_not_taken() -> None:
    def two_faults(launch: Launch, out: Routed) -> None:
        second_for_last(launch, out)
        plain = (rare_faults.logits_of(launch) == 0).mean(axis=1) > 0.5
        out.ids[:, plain, 0] = out.ids[:, plain, 1]

    result = spoiled(two_faults, only=["real"])
    assert {witness.difference.kind for witness in result.found} == {"set:far_swap"}
    assert result.found[0].reproduced
    assert (result.found[0].scene.logits == 0).mean() <= 0.5


def test_ranks_that_disagree_are_found_where_the_set_is_a_tie() -> None:
    def third(launch: Launch, out: Routed) -> None:
        if launch.ranks == 4:
            out.weights[2, 0] = np.nextafter(out.weights[2, 0], np.float32(2))

    result = spoiled(third, ranks=4)
    assert result.stage == "shards"
    witness = result.found[0]
    assert witness.difference.kind == "rank_disagreement"
    assert (witness.difference.faulty, witness.scene.ranks) == ("candidate", 4)
    assert "rank_disagreement" in witness.explained["findings"]


def test_what_does_not_show_again_is_said() -> None:
    calls = 0

    def once(launch: Launch, out: Routed) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            out.ids[:, 0, 0] = out.ids[:, 0, 1]

    result = spoiled(once)
    assert result.found[0].difference.kind == "breach:duplicate_id"
    assert result.found[0].reproduced is False
    assert "did not show again" in result.text()
    # The case holds what was written then, and its launch alone, not what a second run gives.
    assert len(result.found[0].case["logits"]) == result.found[0].scene.rows == 4
    assert result.found[0].explained["breaches_b"] == ["duplicate_id"]


def two_of_a_tie(launch: Launch, out: Routed) -> None:
    out.ids[:, :, 1:3] = (3, 4)


def test_two_experts_at_once_are_called_so_and_not_outside_the_window() -> None:
    row = np.asarray([[3.0, 1.0, 1.0, 1.0, 1.0, -1.0]], np.float32)
    row[0, 3:5] = np.nextafter(row[0, 3:5], np.float32(0))
    faulty = WrappedPath(two_of_a_tie, "route:select=standalone")
    checked = neartie.check_rows(row, baseline="general", candidate=faulty, top_k=3)
    (one,) = checked.differences
    assert one.kind == "set:multi_swap"
    assert one.gap_ulp is not None
    assert one.gap_ulp <= Policy().window_ulp
    assert "2 experts exchanged at once" in one.text()
    assert "1 differences that the policy fails on 1 rows" in checked.text()
    assert "outside the window" not in checked.text()


def test_a_mistake_that_explain_has_no_name_for_is_said_to_have_none() -> None:
    def third(launch: Launch, out: Routed) -> None:
        out.weights[:, :, 3] *= np.float32(1.5)

    result = spoiled(third, rows=300, only=["real"])
    assert result.found[0].difference.kind == "weights:mismatch"
    case, worst = result.found[0].case, result.found[0].difference.worst_weight
    assert worst is not None
    assert (worst.slot, worst.expert) == (3, case["b"]["ids"][0][3])
    assert (worst.got, worst.expected) == (case["b"]["weights"][0][3], case["a"]["weights"][0][3])
    place = f"expert {worst.expert} (slot 3): {worst.got} of the candidate, {worst.expected} of the"
    assert place in result.text()
    (told,) = neartie.explain_rows([case], result.policy).cases
    place = f"most for expert {worst.expert} (slot 3 of path b): {worst.got} of path b, "
    assert f"{place}{worst.expected} of path a" in " ".join(told.reasons)
    assert result.found[0].hypotheses == ()
    tried = result.found[0].explained["explanations"]["b"]["hypotheses_tried"]
    assert f"none of {tried} named mistakes gives it" in result.text()


@settings(max_examples=25)
@given(st.data())
def test_rows_that_are_not_looked_at_closely_are_alike(data: st.DataObject) -> None:
    """The quick look drops no row that the judgement would call different."""
    seed = data.draw(st.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    kinds = st.sampled_from(["swap", "weight", "nan", "id", "order", "nothing"])
    kind = data.draw(kinds)

    def spoil(launch: Launch, out: Routed) -> None:
        row, slot = int(rng.integers(0, 6)), int(rng.integers(0, 3))
        if kind == "swap":
            out.ids[:, row, slot] = rng.integers(0, 12)
        elif kind == "weight":
            steps = np.int32(rng.integers(-12, 13))
            out.weights.view(np.int32)[:, row, slot] += steps
        elif kind == "nan":
            out.weights[:, row, slot] = np.nan
        elif kind == "id":
            out.ids[:, row, slot] = rng.choice([-1, 12, 2**30])
        elif kind == "order":
            out.ids[:, row] = out.ids[:, row, ::-1]
            out.weights[:, row] = out.weights[:, row, ::-1]

    class All(Arena):
        def _unusual(self, a: Routed, b: Routed, rank: int) -> Any:
            return np.ones(a.ids.shape[1], np.bool_)

    scene = Scene(rng.integers(-2, 3, (6, 12)).astype(np.float32), np.zeros(12, np.float32), 6, 1)
    parts = (
        neartie.make_path("general"), WrappedPath(spoil, "route:select=standalone"),
        Geometry("g", 1, 0, 12, 3), ScoringRule(), Policy(),
    )  # fmt: skip
    state = rng.bit_generator.state
    quick = Arena(*parts).run(scene).differences
    rng.bit_generator.state = state
    assert quick == All(*parts).run(scene).differences


def test_rows_that_a_path_refuses_are_no_pass() -> None:
    logits = np.zeros((1, 64), np.float32)
    with pytest.raises(EnvelopeError, match="groups"):
        neartie.check_rows(
            logits, baseline="general", candidate="route", top_k=8, groups=8, top_groups=4
        )
    with pytest.raises(InputError, match="bias"):
        neartie.check_rows(
            logits, np.zeros(3, np.float32), baseline="general", candidate="route", top_k=8
        )
