"""Predicted triangles against figures measured elsewhere."""

import pytest

from neartie.banks.errors import EnvelopeError
from neartie.kernels.predict import predicted_triangle


@pytest.mark.parametrize(
    ("schedule", "ranks", "baseline", "within"),
    [
        ("one_shot_fp32", 8, 2.35e-3, 0.01),
        ("own_rank_first_fp32", 8, 2.35e-3, 0.01),
        ("two_level", 8, 2.95e-3, 0.03),
        ("tree_bf16", 8, 3.53e-3, 0.03),
        ("running_bf16", 8, 4.05e-3, 0.03),
        ("ring_bf16", 8, 4.05e-3, 0.03),
        ("running_bf16", 16, 5.33e-3, 0.03),
        # Measured with NCCL on two GPUs: 2.464e-3.
        ("one_shot_fp32", 2, 2.464e-3, 0.01),
        ("one_shot_fp32", 1, 1.66e-3, 0.01),
    ],
)
def test_baseline(schedule: str, ranks: int, baseline: float, within: float) -> None:
    got = predicted_triangle(schedule, ranks)
    assert got.candidate_reference == pytest.approx(1.66e-3, rel=0.01)
    assert got.baseline_reference == pytest.approx(baseline, rel=within)


@pytest.mark.parametrize(
    ("schedule", "ranks", "apart"),
    [
        ("one_shot_fp32", 8, 2.60e-3),
        ("one_shot_fp32", 2, 2.887e-3),
        ("two_level", 8, 3.35e-3),
        ("tree_bf16", 8, 3.88e-3),
        ("running_bf16", 8, 4.37e-3),
    ],
)
def test_apart(schedule: str, ranks: int, apart: float) -> None:
    assert predicted_triangle(schedule, ranks).candidate_baseline == pytest.approx(apart, rel=0.015)


def test_rho() -> None:
    assert predicted_triangle("one_shot_fp32", 8).rho == pytest.approx(0.19, abs=0.01)
    assert abs(predicted_triangle("running_bf16", 8).rho) < 0.02
    same = predicted_triangle("one_shot_fp32", 1)
    assert same.rho == pytest.approx(1.0)
    assert same.candidate_baseline == 0.0


def test_seed_moves_little() -> None:
    first, second = (predicted_triangle("one_shot_fp32", 8, seed) for seed in (0, 1))
    assert first != second
    assert first.baseline_reference == pytest.approx(second.baseline_reference, rel=0.005)


def test_refuses_what_cannot_run() -> None:
    with pytest.raises(EnvelopeError, match="reduce=nccl"):
        predicted_triangle("nccl", 8)
