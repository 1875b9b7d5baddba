"""What each select does with NaN, infinities and degenerate rows, worked out by hand."""

from math import inf, nan

import numpy as np
import pytest

from neartie.banks.geometry import Geometry, ScoringRule
from neartie.kernels.select import SELECTS, select

# One row of six experts, top 3; biases 0 unless given. sigmoid(0) = 0.5.
F, S, G, T, H, R, A = (
    "fused", "standalone", "grouped_topk", "topk_sigmoid", "hf", "radix_bf16", "ascending",
)  # fmt: skip
THIRD = float(np.float32(1) / np.float32(3))
CASES: list[tuple[str, list[float], dict[int, float], dict[str, list[int]]]] = [
    # A NaN logit with a bias of +0.9: the fused select never picks it, the standalone can.
    ("nan logit, high bias", [nan, 0, 0, 0, -9, -9], {0: 0.9},
     {F: [1, 2, 3], S: [0, 1, 2], G: [1, 2, 3], T: [0, 1, 2], H: [0, 1, 2], R: [1, 2, 3],
      A: [1, 2, 3]}),
    ("+inf logit", [0, 0, 0, inf, -9, -9], {},
     {F: [0, 1, 2], S: [3, 0, 1], G: [0, 1, 2], T: [3, 0, 1], H: [3, 0, 1], R: [0, 1, 3],
      A: [0, 1, 3]}),
    ("+inf bias", [0, 0, 0, 0, -9, -9], {5: inf},
     {F: [0, 1, 2], S: [5, 0, 1], G: [5, 0, 1], T: [5, 0, 1], H: [5, 0, 1], R: [0, 1, 5],
      A: [0, 1, 5]}),
    ("nan bias", [0, 0, 0, 0, -9, -9], {0: nan},
     {F: [1, 2, 3], S: [1, 2, 3], G: [1, 2, 3], T: [1, 2, 3], H: [0, 1, 2], R: [1, 2, 3],
      A: [1, 2, 3]}),
    ("all -inf bias", [0, 0, 0, 0, 1, 1], dict.fromkeys(range(6), -inf),
     {F: [0, 1, 2], S: [0, 1, 2], G: [0, 1, 2], T: [0, 1, 2], H: [0, 1, 2], R: [0, 1, 2],
      A: [0, 1, 2]}),
    # NaN ranks with -inf, or below it: four experts at -inf, expert 0 NaN.
    ("nan beside -inf", [0, 0, 0, 0, 0, 1], {0: nan, 1: -inf, 2: -inf, 3: -inf, 4: -inf},
     {F: [5, 0, 1], S: [5, 0, 1], G: [5, 0, 1], T: [5, 0, 1], H: [0, 5, 1], R: [1, 2, 5],
      A: [1, 2, 5]}),
    ("signed zeros tie", [-200, -200, -200, -200, -200, -9], {0: -0.0, 5: -1.0},
     {name: [0, 1, 2] for name in (F, S, G, T, H, R, A)}),
]  # fmt: skip


@pytest.mark.parametrize("name", [F, S, G, T, H, R, A])
@pytest.mark.parametrize(("row", "bias", "ids"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_nonfinite_rule_by_hand(
    name: str, row: list[float], bias: dict[int, float], ids: dict[str, list[int]]
) -> None:
    array = np.array([bias.get(i, 0.0) for i in range(6)], np.float32)
    geometry = Geometry("six", 1, 0, 6, 3)
    got, _ = select(SELECTS[name], np.array([row], np.float32), array, geometry, ScoringRule())
    assert got[0].tolist() == ids[name]


@pytest.mark.parametrize(
    ("name", "row", "expected"),
    [
        # Nothing finite is left: grouped_topk answers uniformly, fused with zeros.
        (G, [nan, nan, inf, -inf, nan, nan], [THIRD] * 3),
        (F, [nan, nan, inf, -inf, nan, nan], [0.0] * 3),
        # Only a +inf logit has a score; standalone keeps its 1, the other scores are 0.
        (S, [nan, nan, inf, -inf, nan, nan], [1.0, 0.0, 0.0]),
        (T, [nan, nan, inf, -inf, nan, nan], [1.0, 0.0, 0.0]),
        # All scores 0: the guard divides by 1, the epsilon by 1e-20.
        (S, [-200.0] * 6, [0.0] * 3),
        (H, [-200.0] * 6, [0.0] * 3),
        (H, [0.0, nan, 0.0, 0.0, 0.0, 0.0], [nan] * 3),
        (F, [0.0, nan, 0.0, nan, nan, nan], [0.5, 0.5, 0.0]),
    ],
)
def test_weights_of_degenerate_rows(name: str, row: list[float], expected: list[float]) -> None:
    geometry = Geometry("six", 1, 0, 6, 3)
    bias = np.zeros(6, np.float32)
    _, got = select(SELECTS[name], np.array([row], np.float32), bias, geometry, ScoringRule())
    assert np.array_equal(got[0], np.array(expected, np.float32), equal_nan=True)
