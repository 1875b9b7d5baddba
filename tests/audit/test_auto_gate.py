"""The gate that an audit starts by itself: when, on which rows, and what follows from it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom
from wrapped_path import WrappedPath

import neartie
from neartie.audit.engine.local import LocalEngine
from neartie.audit.gate.auto_plan import NEW_ROWS, gate_side, gate_source, rows_planned
from neartie.audit.gate.outcomes import gate_outcomes
from neartie.audit.gate.plan import DEFAULT_ROWS, make_plan
from neartie.audit.gate.run import run_plan
from neartie.audit.gate.shard import UNIT_STRIDE
from neartie.audit.metrics.rates import allowed_events, rows_needed
from neartie.audit.policy import Policy
from neartie.audit.result import AuditResult
from neartie.audit.tally import Tally
from neartie.banks.manage import make_bank
from neartie.banks.open import open_bank
from neartie.kernels.fast.compare import DIFFERENT
from neartie.kernels.fast.gate import PairedRows, PairedSelect
from neartie.kernels.fast.plain import compare_pairs
from neartie.kernels.select import select

LOOSE = Policy(set_rate=2e-3)
"""A limit that some thousands of rows certify: for tests of what is run, not of the limit."""


def reasons(result: AuditResult, state: str) -> dict[str, str]:
    found = result.record["verdict"]["reasons"]
    return {r["code"]: r["text"] for r in found if r["state"] == state}


def test_too_few_rows_start_the_gate_and_the_bound_is_certified() -> None:
    def audit(gate: bool) -> AuditResult:
        return neartie.run_audit("k3-mini/layer0", rows=[9, 20], ranks=2, policy=LOOSE, gate=gate)

    without, result = audit(False), audit(True)
    assert without.record["gate"] is None
    assert without.record["no_gate"] == "it was turned off"
    assert without.record["verdict"]["state"] == "INCONCLUSIVE"
    assert result.record["no_gate"] is None
    assert result.record["verdict"]["state"] == "PASS_WITH_LIMITATIONS"
    gate = result.record["gate"]
    assert gate["sources"] == [f"resample:bank=k3-mini/layer0,rows={gate['rows']},seed=0"]
    assert gate["rows"] == gate["rows_planned"]["rows"]
    for width, before in zip(result.record["widths"], without.record["widths"], strict=True):
        assert width["certified"]
        assert width["units"] == before["units"] + gate["rows"]
        assert width["unique_rows"] == before["unique_rows"] + gate["rows"]
    assert [w["rows_of_width"] for w in gate["widths"]] == [9, 9]
    assert gate["pooled"]["prediction"]["agreement"] == "agrees"
    assert gate["contradicted"] is False
    json.loads(result.to_json())
    for text in (result.to_markdown(), result._repr_html_()):
        assert "topk" in text
        assert "auto" in text
        assert f"{gate['rows']:,} rows from" in text
    assert "not run: it was turned off" in without.to_markdown()


def test_widths_of_other_selects_have_rows_of_their_own() -> None:
    result = neartie.run_audit("k3-mini/layer0", rows=[8, 9, 20], ranks=2, policy=LOOSE)
    gate = result.record["gate"]
    assert [w["rows_of_width"] for w in gate["widths"]] == [8, 9, 9]
    assert gate["rows"] == 2 * gate["rows_planned"]["rows"]
    narrow, wide, _ = gate["widths"]
    # Up to 8 rows the tanh form stands against the exp form; above, one form against itself.
    assert narrow["prediction"]["rate"] > 0
    assert wide["prediction"]["rate"] == 0


def test_no_number_of_processes_changes_a_bit() -> None:
    def audit(workers: int) -> AuditResult:
        policy = Policy(set_rate=1.5e-4)
        return neartie.run_audit(
            "normal:geometry=mini,rows=500", rows=[9], ranks=1, policy=policy, workers=workers
        )

    one, two = audit(1), audit(2)
    assert one.record["gate"]["rows"] > 16384
    assert one.to_json() == two.to_json()
    assert one.swaps.equals(two.swaps)


def far_expert(
    logits: npt.NDArray[np.float32], rows: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """[row] an expert far below the boundary."""
    return np.argsort(logits[rows], axis=1)[:, 400]


def plant(monkeypatch: pytest.MonkeyPatch, hits: Callable[[Any], npt.NDArray[np.int64]]) -> None:
    """Make the standalone select take another expert in rows that their logits alone choose."""
    run = PairedSelect.run

    def wrong_select(rule: Any, logits: Any, *rest: Any) -> Any:
        ids, weights = select(rule, logits, *rest)
        if rule.name == "standalone":
            rows = hits(logits)
            ids[rows, 15] = far_expert(logits, rows)
        return ids, weights

    def wrong_run(self: PairedSelect, logits: Any, threads: int | None = None) -> PairedRows:
        found = run(self, logits, threads)
        assert self.rules[1].name == "standalone"
        for row in hits(logits):
            one = slice(row, row + 1)
            ids, w_a, w_b = found.ids_a[one], found.weights_a[one], found.weights_b[one]
            counted = np.zeros_like(found.weight_bins)
            compare_pairs(ids, w_a, ids, w_b, counted)
            found.weight_bins[:] -= counted
            found.ids_b[row, 15] = far_expert(logits, np.array([row]))[0]
            found.code[row], found.weight_ulp[row] = DIFFERENT, -1
        return found

    monkeypatch.setattr("neartie.kernels.paths.select", wrong_select)
    monkeypatch.setattr(PairedSelect, "run", wrong_run)


ONE_IN = 100_003
"""A row in so many shows the planted fault: its first logit's bits decide."""


def test_a_fault_of_one_row_in_100_000_is_found_by_the_gate_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hits(logits: Any) -> npt.NDArray[np.int64]:
        return np.flatnonzero(logits[:, 0].view(np.uint32) % ONE_IN == 7)

    plant(monkeypatch, hits)
    own = neartie.run_audit("k3-mini", rows=[9], ranks=1, gate=False)
    (width,) = own.record["widths"]
    assert (width["unique_rows"], width["differing_units"]) == (6144, 0)
    assert own.record["provisional_class"] == "LIGHT"
    result = neartie.run_audit("k3-mini", rows=[9], ranks=1)
    (width,) = result.record["widths"]
    found = width["counts"]["far_swap"]
    assert 1 <= found <= 6
    assert width["differing_units"] == found
    assert result.record["verdict"]["state"] == "FAIL"
    assert result.numerics_class == "BEHAVIOURAL"
    assert f"far_swap: {found} of" in reasons(result, "FAIL")["far_swap"]
    assert result.record["gate"]["pooled"]["violations"] == found
    records = result.swaps.to_pylist()
    assert len(records) == found
    assert all(record["bank"].startswith("resample:bank=k3-mini/") for record in records)


def test_own_rows_that_differ_more_often_than_the_gates_stop_the_certificate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two of 6,144 recorded rows, and none of the resampled ones: a rate that mixtures hide."""
    bank = open_bank("k3-mini/layer0")
    seen: set[bytes] = set()

    def hits(logits: Any) -> npt.NDArray[np.int64]:
        if not seen:
            seen.update(line.tobytes() for line in logits[[3, 900]])
        return np.flatnonzero([line.tobytes() in seen for line in logits])

    plant(monkeypatch, hits)
    policy = Policy(window_ulp=2**31, weight_budget_ulp=2**31, set_rate=5e-4)
    assert bank.rows == 1024
    result = neartie.run_audit(bank, rows=[9], ranks=1, policy=policy)
    assert result.record["gate"]["contradicted"] is True
    text = reasons(result, "INCONCLUSIVE")["gate_contradicted"]
    assert "own rows differ more often than the gate's: 2 of 1,024 against 0 of" in text
    assert result.numerics_class == "UNKNOWN"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"candidate": WrappedPath(name="my-route")},
            "candidate my-route is no built-in path whose select the gate of an audit runs",
        ),
        ({"candidate": "route:select=radix_bf16"}, "the verdict is FAIL without it: "),
        ({"candidate": "recorded", "rows": [20]}, "logits differ or were not compared"),
        (
            {"candidate": "route:accumulate=fp32", "baseline": "general"},
            "logits differ or were not compared",
        ),
        ({"banks": "k3-mini/tie-witness"}, "no bank bounds a rate: k3-mini/tie-witness was chosen"),
        ({"device": "cuda"}, "an audit on a device starts none"),
        ({"policy": Policy(set_rate=0.5)}, "own rows bound the set rate of every width"),
    ],
)
def test_why_no_gate_is_run(change: dict[str, Any], reason: str) -> None:
    options = {"banks": "k3-mini/layer0", "rows": [9], "ranks": 2, **change}
    result = neartie.run_audit(options.pop("banks"), **options)
    assert result.record["gate"] is None
    assert reason in result.record["no_gate"]
    assert reason in result.to_markdown().replace("\\", "")


@pytest.mark.parametrize(
    ("spec", "role", "side"),
    [
        ("general", "baseline", "topk_sigmoid"),
        ("general:reduce=ring_bf16,select=hf,bias=bf16", "baseline", "hf:bias=bf16"),
        ("route", "candidate", "auto"),
        ("route:fused_rows=1,row_blocks=2", "candidate", "auto:fused_rows=1"),
        ("route:logits=bf16", "candidate", "standalone:logits=bf16"),
        ("route:select=fused,sum=butterfly", "candidate", "fused:sum=butterfly"),
        ("recorded", "candidate", None),
        ("route:router_weight=other", "candidate", None),
        ("route:logits=bf16,fused_rows=12", "candidate", None),
    ],
)
def test_a_path_gives_the_gate_its_select(spec: str, role: str, side: str | None) -> None:
    found, why = gate_side(neartie.make_path(spec), role, (9, 20))
    assert found == side
    assert (side is None) == bool(why)


def test_a_bank_gives_the_gate_rows_like_its_own(tmp_path: Path) -> None:
    def source(spec: str) -> str | None:
        return gate_source(open_bank(spec))[0]

    assert source("k3-mini/layer3") == "resample:bank=k3-mini/layer3"
    assert source("gaussian:geometry=k3,rows=20,seed=4,std=2") == (
        f"normal:geometry=k3,std=2,seed={NEW_ROWS + 4}"
    )
    assert source("resample:bank=k3-mini/layer1,rows=50") == (
        f"resample:bank=k3-mini/layer1,seed={NEW_ROWS}"
    )
    assert source("near_tie:gap=1") is None
    assert source("k3-mini/tie-witness") is None
    make_bank("k3-mini/layer2", tmp_path / "mine")
    assert source(str(tmp_path / "mine")) == f"resample:bank={tmp_path / 'mine'}"
    make_bank("k3-mini/layer2", tmp_path / "a,b")
    assert source(str(tmp_path / "a,b")) is None
    changed = open_bank("k3-mini/layer2").with_weights(correction_bias=np.zeros(896, np.float32))
    assert gate_source(changed)[0] is None
    logits = "gaussian:geometry=mini,stage=logits,rows=60"
    make_bank(logits, tmp_path / "logits")
    assert source(str(tmp_path / "logits")) is None


@pytest.mark.parametrize("predicted", [None, 0.0, 3e-6, 1.2e-5, 3e-5])
@pytest.mark.parametrize("widths", [1, 5])
def test_the_rows_certify_the_limit_if_the_assumed_rate_is_right(
    predicted: float | None, widths: int
) -> None:
    limit, confidence = 5e-5, 0.95
    found = rows_planned(limit, confidence, widths, predicted)
    held = 1 - (1 - confidence) / widths
    assert found.assumed_rate == max(5e-6, predicted or 0)
    assert found.rows == rows_needed(limit, held, found.spare_events)
    assert allowed_events(found.rows, limit, held) == found.spare_events
    assert binom.cdf(found.spare_events, found.rows, found.assumed_rate) >= confidence
    assert not found.capped


def test_a_rate_above_the_limit_is_not_chased() -> None:
    above = rows_planned(5e-5, 0.95, 5, 1e-4)
    assert (above.rows, above.spare_events) == (rows_needed(5e-5, 0.99), 0)
    close = rows_planned(5e-5, 0.95, 5, 4.9e-5)
    assert (close.rows, close.capped) == (DEFAULT_ROWS, True)


def test_rows_of_the_banks_that_differ_are_planned_for() -> None:
    none, one = rows_planned(5e-5, 0.95, 5, None), rows_planned(5e-5, 0.95, 5, None, seen=1)
    assert one.rows == rows_needed(5e-5, 0.99, one.spare_events + 1)
    assert one.rows > none.rows


def test_units_of_the_gate_are_not_those_of_the_audit() -> None:
    plan, banks = make_plan(
        "standalone", "radix_bf16", "normal:geometry=mini",
        rows=300, widths=(9,), seed=0, policy=Policy(),
    )  # fmt: skip
    merged = run_plan(plan, LocalEngine()).merged
    (outcome,) = gate_outcomes(plan, banks, merged, alike={9: (9, 12)}, banks_before=3)
    assert set(outcome.tallies) == {9, 12}
    events = outcome.tallies[12].events
    assert events == merged[0, 9].tally.events > 0
    # Row units are counts by now; units that rows share keep numbers, away from the audit's.
    assert not outcome.tallies[12].differing_units
    shared = Tally(cluster_units={1}, differing_units={1}).with_units_from(3 * UNIT_STRIDE)
    assert shared.differing_units == {1 + 3 * UNIT_STRIDE}
    records = outcome.certificates
    assert len(records) == 2 * events
    for record in records:
        row = eval(record["snippet"], {"neartie": neartie})
        assert f"width={record['width']}," in record["snippet"]
        assert set(row.ids["baseline"][0]) - set(row.ids["candidate"][0]) == set(record["dropped"])
    widths = [(item.width, item.ran) for item in outcome.coverage]
    assert widths == [(9, True), (12, True)]


def test_banks_that_the_gate_leaves_out_are_told() -> None:
    result = neartie.run_audit(
        ["k3-mini/layer0", "k3-mini/tie-witness"], rows=[9], ranks=1, policy=LOOSE
    )
    (left,) = result.record["gate"]["without"]
    assert left["bank"] == "k3-mini/tie-witness"
    assert any("like those of k3-mini/tie-witness" in t for t in result.record["limitations"])
