"""The figures of the sign-off at K3 geometry: 7168 hidden, 3584 latent, 896 experts, 8 ranks.

Six Gaussian banks of 20 rows, widths 9, 10, 12, 16, 20, as the sign-off has them.
"""

import pytest

import neartie
from neartie.audit.result import AuditResult
from neartie.kernels.predict import predicted_triangle

BANKS = [f"gaussian:geometry=k3,rows=20,seed={seed}" for seed in range(6)]
WIDTHS = [9, 10, 12, 16, 20]


@pytest.fixture(scope="module")
def result() -> AuditResult:
    return neartie.run_audit(BANKS, rows=WIDTHS, gate=False)


def test_the_triangle_at_every_width(result: AuditResult) -> None:
    assert [w["width"] for w in result.record["widths"]] == WIDTHS
    for width in result.record["widths"]:
        latent = width["triangle"]["latent"]
        assert latent["candidate_reference"] == pytest.approx(1.66e-3, rel=0.01)
        assert latent["baseline_reference"] == pytest.approx(2.35e-3, rel=0.015)
        assert 2.55e-3 <= latent["candidate_baseline"] <= 2.66e-3
        assert latent["rho"] == pytest.approx(0.19, abs=0.02)
        assert width["closer_to_reference"]["latent"]["answer"] == "closer"


def test_960_rows_at_width_20_and_their_bound(result: AuditResult) -> None:
    last = result.record["widths"][-1]
    assert (last["rows"], last["unique_rows"], last["units"]) == (960, 120, 120)
    # 0 of 120 independent rows, not of 960 replicas.
    assert last["set_rate_upper"] == pytest.approx(1 - 0.05 ** (1 / 120), rel=1e-12)
    assert result.exit_status == 3
    assert result.record["provisional_class"] == "LIGHT"
    assert result.record["structural_tag"] == "BF16-structural"


def test_every_rank_and_width_has_its_values(result: AuditResult) -> None:
    table = result.values.to_pylist()
    keys = {(r["bank"], r["width"], r["rank"], r["tensor"], r["pair"]) for r in table}
    assert len(keys) == len(table) == 6 * 5 * 9 * 3 * 3
    assert all(r["relative_rms"] is not None for r in table)


@pytest.mark.parametrize(
    ("schedule", "figure"),
    [("running_bf16", 4.05e-3), ("tree_bf16", 3.53e-3), ("two_level", 2.95e-3)],
)
def test_other_schedules_are_told_apart(schedule: str, figure: float) -> None:
    result = neartie.run_audit(
        BANKS[:2], baseline=f"general:reduce={schedule}", rows=[20], gate=False
    )
    (width,) = result.record["widths"]
    observed = width["triangle"]["latent"]["baseline_reference"]
    assert observed == pytest.approx(figure, rel=0.03)
    assert observed == pytest.approx(predicted_triangle(schedule, 8).baseline_reference, rel=0.01)
    assert result.record["schedule"]["fits"] is True
