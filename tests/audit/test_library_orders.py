"""A path that declares a communication library's own order: the audit names what it shows."""

from typing import Any

import numpy as np
import pytest

from neartie.audit.attribute import ScheduleJudge
from neartie.audit.compare import BASELINE, CANDIDATE
from neartie.audit.launching import front_weights
from neartie.banks.open import open_bank
from neartie.kernels.contract import BFLOAT16
from neartie.kernels.project import latent_partials, latent_shards
from neartie.kernels.reduce import reduce_partials
from neartie.kernels.reference import reference_product
from neartie.kernels.rounding import narrow, widen

ROWS = 40


def judged(schedule: str, ranks: int, library: str = "nccl", spoil: Any = None) -> Any:
    """Judge a latent that was reduced by ``schedule`` but is declared to be the library's."""
    bank = open_bank(f"gaussian:geometry=mini,rows={ROWS},seed=1")
    weights = front_weights(bank)
    block = bank.read(0, ROWS)
    assert block.hidden is not None
    assert weights.latent is not None
    partials = latent_partials(block.hidden, weights.latent, ranks)
    reduced = np.empty(partials.shape, BFLOAT16)
    reduce_partials(schedule, partials, reduced, 20)
    if spoil is not None:
        spoil(reduced)
    whole = np.concatenate(list(latent_shards(block.hidden, weights.latent, ranks)), axis=1)
    routed = np.stack([whole] * ranks)
    judge = ScheduleJudge({BASELINE: library, CANDIDATE: "gather"}, weights, ranks)
    exact = reference_product(block.hidden, weights.latent)
    beyond = judge.add(block, exact, 20, {BASELINE: reduced, CANDIDATE: routed})
    return judge.result(), beyond[BASELINE]


@pytest.mark.parametrize("library", ["nccl", "gloo"])
@pytest.mark.parametrize("schedule", ["one_shot_fp32", "running_bf16", "tree_bf16", "two_level"])
def test_the_schedule_that_it_shows_is_named(schedule: Any, library: Any) -> None:
    fit, beyond = judged(schedule, 8, library)
    assert fit.declared == f"{library} against gather"
    assert fit.nearest == f"{schedule} against gather"
    assert fit.fits
    assert not beyond.any()


def test_two_ranks_have_one_schedule() -> None:
    """One addition of two partials has one order and one rounding."""
    fit, _ = judged("running_bf16", 2)
    assert fit.nearest == "one_shot_fp32 against gather"
    assert fit.distance == 0.0


def test_what_no_schedule_gives_does_not_fit() -> None:
    """A ninth of the latent rounded to three bits fewer is beyond every schedule."""

    def spoil(latent: Any) -> None:
        wide = widen(latent[:, :, ::9])
        step = np.exp2(np.floor(np.log2(np.abs(wide))) - 4)
        latent[:, :, ::9] = narrow((np.round(wide / step) * step).astype(np.float32))

    fit, beyond = judged("one_shot_fp32", 8, spoil=spoil)
    assert not fit.fits
    assert beyond.any()
