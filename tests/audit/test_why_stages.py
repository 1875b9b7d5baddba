"""Stage swapping on pairs with known answers: which stages, what share, and what they share."""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from wrapped_path import WrappedPath

import neartie
from neartie.audit.launching import front_weights, make_launch, run_path
from neartie.audit.why.stage_shares import Quantity
from neartie.audit.why.stages import StageSwaps, swap_stages
from neartie.banks.errors import EnvelopeError, InputError
from neartie.banks.geometry import ScoringRule
from neartie.banks.memory import memory_bank
from neartie.kernels.contract import Launch, Routed
from neartie.kernels.select_stages import Chosen, Keyed, Scored

BANK = "gaussian:geometry=256x64x64x6,rows=240"
RANKS = 4


class PlantedPath:
    """``general`` with stages of its select replaced."""

    outputs = ("latent", "logits", "ids", "weights")
    batches_launches = True

    def __init__(self, name: str = "planted", **replaced: Callable[[Any], Any]) -> None:
        self.base: Any = neartie.make_path("general:select=grouped")
        self.name, self.declared, self.replaced = name, self.base.declared, replaced

    def unavailable(self) -> None:
        return None

    def check(self, launch: Launch) -> None:
        self.base.check(launch)

    def projected(self, launch: Launch) -> Launch:
        return self.base.projected(launch)  # type: ignore[no-any-return]

    def select_stages(self, launch: Launch) -> Any:
        steps = self.base.select_stages(launch)
        return _Steps(steps, self.replaced)

    def run(self, launch: Launch, out: Routed) -> None:
        self.base.run(launch, out)
        logits = launch.logits if out.logits is None else out.logits[0]
        steps = self.select_stages(launch)
        found = steps.normalise(steps.select(steps.bias(steps.score(logits))))
        out.ids[:], out.weights[:] = found


class _Steps:
    def __init__(self, base: Any, replaced: Any) -> None:
        for name in ("score", "bias", "select", "normalise"):
            own = getattr(base, name)
            change = replaced.get(name, lambda value: value)
            setattr(self, name, lambda value, own=own, change=change: own(change(value)))


def shifted(logits: Any) -> Any:
    """Scores by identity: expert 3 one higher, expert 2 one lower."""
    return logits + np.array([0, 0, -1, 1], np.float32)


class HigherIdOnTies(PlantedPath):
    """Scores shifted, and equal keys go to the higher id."""

    def select_stages(self, launch: Launch) -> Any:
        steps = super().select_stages(launch)

        def select(keyed: Keyed) -> Chosen:
            base = self.base.select_stages(launch)
            backwards = base.select(Keyed(keyed.scores, keyed.keys[:, ::-1]))
            last = keyed.keys.shape[1] - 1
            return Chosen(keyed.scores, (last - backwards.ids).astype(np.int32), backwards.none)

        steps.select = select
        return steps


# Logits of four experts, of which one is chosen; A takes the largest, then the lower id.
# B adds 1 to expert 3, takes 1 from expert 2, and takes the higher id.
ROWS = {
    "score": ([0.0, 4.5, 0.5, 4.0], 5),
    "select": ([9.0, 9.0, 0.0, 0.0], 3),
    "score with select": ([0.0, 9.0, 0.5, 8.0], 4),
    "score or select": ([0.0, 9.0, 0.5, 9.0], 2),
    "hidden": ([0.0, 9.0, 9.0, 0.0], 1),
    "none": ([7.0, 1.0, 2.0, 3.0], 6),
}


def planted_bank() -> Any:
    logits = [row for row, count in ROWS.values() for _ in range(count)]
    return memory_bank(1, logits=logits, scoring=ScoringRule(function="identity"))


@pytest.fixture(scope="module")
def planted() -> StageSwaps:
    return swap_stages(
        PlantedPath("plain"), HigherIdOnTies("both", score=shifted), planted_bank(), ranks=1
    )


def quantity(found: StageSwaps, name: str) -> Quantity:
    one = found.quantity(name)
    assert one is not None
    return one


def test_each_difference_is_attributed_to_the_stages_that_make_it(planted: StageSwaps) -> None:
    assert planted.stages == ("score", "bias", "select", "normalise")
    assert planted.acting == ("score", "select")
    assert planted.causes == {
        name: count for name, (_, count) in ROWS.items() if name not in ("hidden", "none")
    }
    assert planted.examples == {
        "score": 0, "select": 5, "score with select": 8, "score or select": 12
    }  # fmt: skip
    assert planted.hidden_rows == 1


def test_shares_stand_beside_the_interaction_and_need_not_add_up(planted: StageSwaps) -> None:
    sets = quantity(planted, "sets")
    assert sets.total == 5 + 3 + 4 + 2
    by_stage = {share.stage: share for share in sets.stages}
    # Alone: its own rows, and those where either is enough; never the hidden row.
    assert by_stage["score"].alone == 5 + 2
    assert by_stage["select"].alone == 3 + 2
    assert by_stage["score"].alone_share == 7 / 14
    assert by_stage["select"].alone_share == 5 / 14
    # Undone: the rows that need it.
    assert by_stage["score"].left_out == 5 + 4
    assert by_stage["select"].left_out == 3 + 4
    assert by_stage["score"].left_out_share == 9 / 14
    # Changed without explaining it: the hidden row, which each of the two moves.
    assert [by_stage[name].other_rows for name in ("score", "bias", "select")] == [1, 0, 1]
    assert (by_stage["bias"].acts, by_stage["normalise"].acts) == (False, False)
    # What no stage explains alone is what the causes call "score with select".
    assert sets.interaction == planted.causes["score with select"] == 4
    assert sets.interaction_share == 4 / 14
    assert [(pair.stages, pair.interaction) for pair in sets.pairs] == [(("score", "select"), 4)]
    keys = quantity(planted, "keys")
    # Two of four keys move by 1, by the score alone.
    assert keys.total == keys.stages[0].alone == math.sqrt(0.5)
    assert (keys.acting, keys.interaction, keys.pairs) == (("score",), 0.0, ())
    assert keys.error_candidate == math.sqrt(0.5)
    text = "\n".join(planted.lines())
    assert "stages that differ: score, select" in text
    assert "interaction      28.6% of the whole" in text
    assert "1 more row with equal sets where a single swapped stage" in text
    assert "4 rows by score with select, the first is row 8" in text
    assert json.loads(json.dumps(planted.figures()))["acting"] == ["score", "select"]


def outputs(spec: str) -> Routed:
    bank = neartie.open_bank(BANK)
    block = bank.read(0, 240)
    return run_path(
        neartie.make_path(spec), make_launch(bank, front_weights(bank), block, 12, RANKS)
    )


def latent_rms(a: Routed, b: Routed) -> float:
    assert a.latent is not None
    assert b.latent is not None
    exact = neartie.open_bank(BANK)
    weights, hidden = exact.weights, exact.read(0, 240).hidden
    assert hidden is not None
    reference = hidden.astype(np.float64) @ weights["latent_down_weight"].astype(np.float64).T
    apart = a.latent[0].astype(np.float64) - b.latent[0].astype(np.float64)
    return float(np.linalg.norm(apart) / np.linalg.norm(reference))


def rows_apart(a: Routed, b: Routed) -> int:
    return int((np.sort(a.ids[0], axis=1) != np.sort(b.ids[0], axis=1)).any(axis=1).sum())


def test_mixtures_are_the_paths_that_their_options_make() -> None:
    first, second = "reduce=running_bf16", "logits=bf16"
    found = swap_stages("general", f"general:{first},{second}", BANK, ranks=RANKS)
    assert found.acting == ("exchange", "score")
    a, exchange, score, b = (
        outputs(spec)
        for spec in (
            "general", f"general:{first}", f"general:{second}", f"general:{first},{second}"
        )
    )  # fmt: skip
    latent, sets = quantity(found, "latent"), quantity(found, "sets")
    assert latent.acting == ("exchange",)
    assert latent.stages[1].alone == pytest.approx(latent_rms(a, exchange), rel=1e-12)
    assert latent.stages[1].left_out == pytest.approx(latent_rms(b, score), rel=1e-12)
    assert (latent.stages[1].alone_share, latent.interaction, latent.pairs) == (1.0, 0.0, ())
    assert sets.total == rows_apart(a, b) == sets.stages[2].alone == rows_apart(a, score) > 0
    assert found.causes == {"score": sets.total}
    # Running BF16 rounds at each hop: the candidate is farther from the reference.
    assert latent.error_baseline is not None
    assert latent.error_candidate is not None
    assert latent.error_candidate > 1.2 * latent.error_baseline
    assert latent.stages[1].error_alone == latent.error_candidate
    assert latent.stages[1].error_left_out == latent.error_baseline


def test_two_stages_that_move_the_same_values_share_them() -> None:
    pair = ("general:select=standalone", "general:select=standalone,accumulate=fp32,score=tanh")
    found = swap_stages(*pair, BANK, ranks=RANKS, rows=96)
    assert found.acting == ("project", "score")
    keys = quantity(found, "keys")
    assert keys.acting == ("project", "score")
    assert [one.stages for one in keys.pairs] == [("project", "score")]
    alone = sum(share.alone**2 for share in keys.stages)
    assert keys.total**2 - alone == pytest.approx(keys.interaction, rel=1e-9)
    assert keys.pairs[0].interaction == pytest.approx(keys.interaction, rel=1e-9)
    assert keys.interaction != 0.0


def test_what_cannot_be_cut_is_one_stage_and_said_so() -> None:
    found = swap_stages("general", "route", BANK, ranks=RANKS, rows=24)
    assert found.stages == ("project+exchange", "score", "bias", "select", "normalise")
    assert found.acting == ("project+exchange", "normalise")
    assert found.not_cut == (
        "project+exchange: general exchanges latent partials (K-split) and route latent shards "
        "(N-split); neither takes the other's",
    )
    box = WrappedPath(base="route:select=topk_sigmoid,logits=bf16", name="box")
    found = swap_stages("general", box, BANK, ranks=RANKS, rows=240)
    assert found.stages == ("project+exchange", "select")
    assert len(found.not_cut) == 2
    assert found.quantity("keys") is None
    sets = quantity(found, "sets")
    assert sets.acting == ("select",)
    assert sets.total == sets.stages[1].alone > 0


def test_a_path_whose_stages_are_not_what_it_runs_is_refused() -> None:
    class Liar(PlantedPath):
        def select_stages(self, launch: Launch) -> Any:
            return self.base.select_stages(launch)

        def run(self, launch: Launch, out: Routed) -> None:
            self.base.run(launch, out)
            out.weights[:] *= np.float32(1.5)

    with pytest.raises(InputError) as told:
        swap_stages("general", Liar("liar"), BANK, ranks=RANKS, rows=24)
    assert str(told.value) == (
        "outputs by stages=other bits than in one piece, but should be the same bits [liar]"
    )


def test_a_scored_mask_reaches_another_paths_keys() -> None:
    # A logit that ``fused`` masks stays masked where another path adds the bias.
    steps = neartie.make_path("general:select=fused")
    bank = memory_bank(1, logits=[[0.0, 1.0, 2.0, 3.0]])
    rows = bank.read(0, 1)
    launch = make_launch(bank, front_weights(bank), rows, 1, 1)
    scored = steps.select_stages(launch).score(np.array([[np.inf, 1, 2, 3]], np.float32))  # type: ignore[attr-defined]
    keyed = neartie.make_path("general:select=hf").select_stages(launch).bias(scored)  # type: ignore[attr-defined]
    assert isinstance(scored, Scored)
    assert keyed.keys[0, 0] == -np.inf


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 241}, "rows=241, but should be 1..240"),
        ({"rank": 4}, "rank=4, but should be 0..3"),
        ({"bank": "nowhere:rows=1"}, "nowhere"),
    ],
)
def test_bad_input_is_named(changes: dict[str, Any], message: str) -> None:
    options = {"bank": BANK, "ranks": RANKS, **changes}
    with pytest.raises(InputError) as told:
        swap_stages("general", "route", **options)
    assert message in str(told.value)


def test_a_refused_launch_is_no_result() -> None:
    with pytest.raises(EnvelopeError, match="width"):
        swap_stages("general", "route", BANK, ranks=RANKS, width=21)
