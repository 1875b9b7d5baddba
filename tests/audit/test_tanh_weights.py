"""Why weights of the tanh form differ by thousands of ULP where a bias selects small scores.

0.5 * tanh(0.5 x) + 0.5 of x <= -1.1: tanh(0.5 x) lies in [-1, -1/2], where one FP32 step is 2^-24,
so rounding it errs by at most 2^-25; halving is exact, and so is adding 0.5 (Sterbenz: both parts
are within a factor of 2). The score is wrong by up to 2^-26 however small it is, while the exp form
errs by some 2^-24 of the score. A score s therefore differs by up to 2^-26 / s of itself, and its
weight with it, which is 2^-26 / s * 2^24 = 1 / (4 s) FP32 steps at most.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from neartie.audit.metrics.ulp import ordered
from neartie.banks.open import open_bank
from neartie.kernels.scores import score
from neartie.kernels.select import SELECTS, select

UNIT = 2.0**-24
"""Unit roundoff of FP32: half a step of a number, relative to it, at most."""
# Roundings between scores and weight: sums of 16 (15 additions left to right, 4 of a fold), the
# normalisation of each side (a reciprocal and a product); three of the exp form's own score.
ROUNDINGS = 15 + 4 + 2 * 2 + 2 * 3


@dataclass
class Traced:
    """One expert of one row on both sides."""

    logit: float
    scores: tuple[float, float]
    exact: float
    steps: int
    weight: np.float32
    sums: tuple[float, float]


def traced(layer: int, row: int, expert: int) -> Traced:
    bank = open_bank(f"resample:bank=k3-mini/layer{layer},rows=500k")
    logits, bias = bank.read(row, row + 1).logits, bank.weights["correction_bias"]
    assert logits is not None
    weights, scores, chosen = [], [], []
    for name in ("standalone", "fused"):
        rule = SELECTS[name]
        ids, found = select(rule, logits, bias, bank.geometry, bank.scoring)
        weights.append(found[0][ids[0] == expert][0])
        scores.append(score(rule.score, logits)[0].astype(np.float64))
        chosen.append(np.sort(ids[0]))
    assert np.array_equal(chosen[0], chosen[1])
    logit = float(logits[0, expert])
    return Traced(
        logit=logit,
        scores=(scores[0][expert], scores[1][expert]),
        exact=1 / (1 + np.exp(-logit)),
        steps=int(abs(ordered(weights[0]) - ordered(weights[1]))),
        weight=weights[0],
        sums=(scores[0][chosen[0]].sum(), scores[1][chosen[0]].sum()),
    )


# The largest differences of the first 457,143 rows of each layer, seed 0.
WORST = [(3, 336782, 145, 2761), (4, 328137, 270, 3704), (5, 276362, 19, 10895)]


@pytest.mark.parametrize(("layer", "row", "expert", "steps"), WORST)
def test_the_worst_weight_is_the_tanh_forms_absolute_error_on_a_small_score(
    layer: int, row: int, expert: int, steps: int
) -> None:
    found = traced(layer, row, expert)
    assert found.steps == steps
    assert found.logit < -8
    exp, tanh = found.scores
    # FP64 of the exact score errs by some 2^-52 of it, far below either bound.
    assert abs(exp - found.exact) <= 3.01 * UNIT * found.exact
    assert 2.0**-27 < abs(tanh - found.exact) <= 2.0**-26
    # In FP32 steps of the weight: what the two scores' ratio gives, and what roundings may add.
    per_step = float(found.weight) / float(np.spacing(found.weight))
    ratio = (tanh / exp) * (found.sums[0] / found.sums[1])
    predicted = abs(ratio - 1) * per_step
    assert abs(found.steps - predicted) <= ROUNDINGS * UNIT * per_step + 1
    # A weight is less than 2^24 of its steps, and the other scores err in the sum by 2^-25 each at
    # most (their additions round too): the bound that follows from the small score alone.
    relative = 2.0**-26 / found.exact + 16 * 2.0**-25 / found.sums[0] + ROUNDINGS * UNIT
    assert found.steps <= relative * 2.0**24 + 1


def test_the_error_of_the_tanh_form_is_absolute_and_the_exp_forms_relative() -> None:
    logits: npt.NDArray[np.float32] = np.linspace(-14, -1.2, 200_001, dtype=np.float32)[None]
    exact = 1 / (1 + np.exp(-logits.astype(np.float64)))
    tanh, exp = score("tanh", logits).astype(np.float64), score("exp", logits).astype(np.float64)
    off = np.abs(tanh - exact)
    assert off.max() <= 2.0**-26
    assert off[logits < -9].max() > 0.9 * 2.0**-26
    assert (np.abs(exp - exact) / exact).max() <= 3.01 * UNIT
