"""Banks of every kind through the whole chain."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wrapped_path import WrappedPath

import neartie
from neartie.audit.result import AuditResult
from neartie.banks.errors import EnvelopeError, InputError
from neartie.banks.manage import make_bank
from neartie.banks.memory import memory_bank


def codes(result: AuditResult, state: str) -> set[str]:
    return {r["code"] for r in result.record["verdict"]["reasons"] if r["state"] == state}


def test_the_same_path_twice_is_bitwise_as_far_as_seen() -> None:
    result = neartie.run_audit(
        "k3-mini/layer0", baseline="route", candidate="route", rows=[9], gate=False
    )
    assert result.record["provisional_class"] == "BITWISE"
    assert result.numerics_class == "UNKNOWN"


def test_enough_rows_make_it_signable() -> None:
    bank = "gaussian:geometry=mini,stage=logits,rows=60k"
    result = neartie.run_audit(bank, baseline="route", candidate="route", rows=[9], ranks=1)
    (width,) = result.record["widths"]
    assert width["certified"]
    assert width["set_rate_upper"] == pytest.approx(5e-5, rel=0.002)
    assert result.numerics_class == "BITWISE"
    assert result.exit_status == 0


@pytest.mark.parametrize(
    ("gap", "window", "expected"),
    [
        (0, 2, "exact_tie"),
        (1, 2, "near_tie"),
        (2, 2, "near_tie"),
        (3, 2, "far_swap"),
        (3, 3, "near_tie"),
    ],
)
def test_planted_gaps_are_classed_by_the_window(gap: int, window: int, expected: str) -> None:
    bank = f"near_tie:geometry=mini,rows=40,gap={gap},seed=1"
    result = neartie.run_audit(
        bank,
        baseline="route",
        candidate=Swapping(name="swapping"),
        rows=[20],
        ranks=1,
        policy=neartie.Policy(window_ulp=window),
    )
    (width,) = result.record["widths"]
    assert width["counts"][expected] == 40
    assert all(c["gap_ulp"] == gap for c in result.swaps.to_pylist())


@pytest.mark.parametrize("given", ["held/mine", "held", "path"])
def test_a_swaps_bank_opens_from_another_directory(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "held").mkdir()
    make_bank("near_tie:geometry=mini,rows=4,gap=1", tmp_path / "held" / "mine")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    candidate = Swapping(name="swapping")
    bank: Any = neartie.open_bank(Path("held/mine")) if given == "path" else given
    result = neartie.run_audit(
        bank, baseline="route", candidate=candidate, rows=[20], ranks=1, gate=False
    )
    monkeypatch.chdir(tmp_path / "elsewhere")
    swap = result.swaps.to_pylist()[0]
    row = neartie.replay_row(
        result.bank_specs[swap["bank"]], row=swap["row"], width=swap["width"], ranks=1,
        baseline="route", candidate=candidate,
    )  # fmt: skip
    assert swap["dropped"][0] in row.ids["baseline"][0]
    # The evidence names the bank as it was given: it says nothing of this machine.
    assert str(tmp_path) not in result.to_json() + swap["snippet"]


def test_banks_without_a_directory_open_by_their_specs() -> None:
    made = memory_bank(logits=np.zeros((3, 6), np.float32), top_k=2)
    for bank, specs in (
        ("near_tie:geometry=mini,rows=4,gap=1", ["near_tie:geometry=mini,rows=4,gap=1"]),
        (made, []),
    ):
        result = neartie.run_audit(bank, rows=[9], ranks=1, gate=False)
        found = list(result.bank_specs.values())
        assert [neartie.open_bank(spec).digest for spec in found] == [
            neartie.open_bank(spec).digest for spec in specs
        ]


class Swapping(WrappedPath):
    """The route path with the K-th expert replaced by the next one of the reference's order."""

    outputs = ("ids", "weights")

    def run(self, launch: Any, out: Any) -> None:
        from dataclasses import replace

        self.base.run(launch, out)
        k = launch.geometry.top_k
        wider = replace(launch, geometry=replace(launch.geometry, top_k=k + 1))
        from neartie.audit.launching import POISONS, poisoned_outputs

        more = poisoned_outputs(self.base, wider, POISONS[0])
        self.base.run(wider, more)
        out.ids[:, :, k - 1] = more.ids[:, :, k]
        scores = 1 / (1 + np.exp(-launch.logits.astype(np.float64)))
        chosen = np.take_along_axis(scores[None], out.ids.astype(np.int64), axis=2)
        out.weights[:] = chosen / chosen.sum(axis=2, keepdims=True)


def test_groups_of_deepseek_v3() -> None:
    result = neartie.run_audit(
        "gaussian:geometry=deepseek-v3,stage=logits,rows=2000",
        baseline="general:select=grouped",
        candidate="route:select=hf",
        rows=[16],
        ranks=8,
        gate=False,
    )
    (width,) = result.record["widths"]
    assert width["rows"] == 16_000
    assert codes(result, "FAIL") == set()


def test_a_path_that_refuses_the_geometry_is_not_run() -> None:
    result = neartie.run_audit(
        "gaussian:geometry=deepseek-v3,stage=logits,rows=100",
        baseline="general:select=grouped",
        candidate="route",
        rows=[16],
    )
    assert result.exit_status == 3
    assert result.record["verdict"]["state"] == "NOT_RUN"
    assert "groups" in result.record["coverage"][0]["reason"]


def test_cuda_is_not_run_with_a_reason() -> None:
    result = neartie.run_audit("k3-mini/layer0", device="cuda", rows=[9])
    assert (result.exit_status, result.record["verdict"]["state"]) == (3, "NOT_RUN")
    text = result.record["verdict"]["reasons"][0]["text"]
    assert "at width 9 was not run: general: device cuda: no CUDA device" in text


def test_rows_with_nan_show_the_two_non_finite_rules() -> None:
    """Fused masks a non-finite logit, standalone lets its bias rank it: not the same behaviour."""
    result = neartie.run_audit(
        "special:geometry=mini,rows=200",
        baseline="route:select=fused",
        candidate="route:select=standalone",
        rows=[20],
        ranks=1,
    )
    assert result.exit_status == 1
    assert "flag:nonfinite_expert_selected" in codes(result, "FAIL")


def test_the_record_is_strict_json_and_the_same_bits_twice() -> None:
    def run() -> AuditResult:
        return neartie.run_audit("special:geometry=mini,rows=60", rows=[9, 20], ranks=2)

    first, second = run(), run()
    assert first.swaps.equals(second.swaps)
    assert first.values.equals(second.values)
    assert first.to_json() == second.to_json()
    json.loads(first.to_json())


def test_chunks_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = neartie.run_audit("k3-mini/layer2", rows=[9], ranks=4, gate=False)
    monkeypatch.setattr("neartie.audit.bank_run.MAX_CHUNK_ROWS", 180)
    parts = neartie.run_audit("k3-mini/layer2", rows=[9], ranks=4, gate=False)
    assert whole.values.equals(parts.values)
    assert whole.record["widths"] == parts.record["widths"]


def test_row_blocks_change_no_bit() -> None:
    result = neartie.run_audit(
        "k3-mini/layer1",
        baseline="route",
        candidate="route:row_blocks=2",
        rows=[8, 20],
        gate=False,
    )
    for width in result.record["widths"]:
        assert width["bits_equal"] == dict.fromkeys(("latent", "logits", "ids", "weights"), True)


def test_fused_rows_moves_the_line_between_two_arithmetics() -> None:
    at_8 = neartie.run_audit(
        "k3-mini/layer0", candidate="route:fused_rows=1", baseline="route", rows=[8], gate=False
    )
    at_9 = neartie.run_audit(
        "k3-mini/layer0", candidate="route:fused_rows=1", baseline="route", rows=[9], gate=False
    )
    assert at_8.record["widths"][0]["bits_equal"]["weights"] is False
    assert at_9.record["widths"][0]["bits_equal"]["weights"] is True


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": [21]}, "width=21, but should be 1..20 [rows]"),
        ({"rows": [0]}, "width=0, but should be 1..20 [rows]"),
        ({"rows": []}, "rows=none, but should be at least one width [run_audit]"),
        ({"rows": [9, 9]}, "rows=[9, 9], but should be each width once [run_audit]"),
        ({"ranks": 3}, "ranks=3, but should be a divisor of hidden 512 [k3-mini]"),
        ({"ranks": 0}, "ranks=0, but should be at least 1 [geometry k3-mini]"),
        ({"engine": "slurm"}, "engine=slurm, but should be local or ray [--engine]"),
        ({"workers": 0}, "workers=0, but should be at least 1 [--workers]"),
        ({"device": "tpu"}, "device=tpu, but should be cpu or cuda [run_audit]"),
        ({"banks": []}, "banks=none, but should be at least one [run_audit]"),
    ],
)
def test_bad_requests_are_refused_before_anything_runs(change: dict, message: str) -> None:  # type: ignore[type-arg]
    banks = change.pop("banks", "k3-mini/layer0")
    with pytest.raises(InputError) as caught:
        neartie.run_audit(banks, **{"rows": [9], **change})
    assert str(caught.value) == message


def test_a_width_of_21_is_an_envelope_error() -> None:
    with pytest.raises(EnvelopeError):
        neartie.run_audit("k3-mini/layer0", rows=[21])


def test_a_certificate_rebuilds_its_row() -> None:
    result = neartie.run_audit(
        "k3-mini/layer3", baseline="route", candidate="route:logits=bf16", rows=[20]
    )
    certificate = result.swaps.to_pylist()[0]
    row = eval(certificate["snippet"], {"neartie": neartie})
    assert certificate["dropped"][0] in row.ids["baseline"][0]
    assert certificate["added"][0] in row.ids["candidate"][0]
    assert certificate["added"][0] not in row.ids["baseline"][0]
    text = row.text()
    assert str(certificate["dropped"][0]) in text


def test_evidence_is_written_whole(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    result = neartie.run_audit(
        "k3-mini/tie-witness", baseline="route:select=fp64", candidate="recorded", rows=[20]
    )
    out = result.write(tmp_path / "evidence")
    assert sorted(p.name for p in out.iterdir()) == [
        "audit.json",
        "histograms.parquet",
        "junit.xml",
        "manifest.json",
        "report.html",
        "report.md",
        "results.sarif",
        "swaps.parquet",
        "values.parquet",
    ]
    assert json.loads((out / "audit.json").read_text()) == json.loads(result.to_json())
    assert pq.read_table(out / "swaps.parquet").equals(result.swaps)
    report = (out / "report.md").read_text()
    assert "drops 650" in report
    assert "exact\\_tie" in report
    with pytest.raises(InputError, match="but should be a new or empty directory"):
        result.write(out)


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = neartie.run_audit("k3-mini/tie-witness", rows=[20])

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", fail)
    with pytest.raises(InputError, match="No space left on device"):
        result.write(tmp_path / "evidence")
    assert list(tmp_path.iterdir()) == []


def test_a_notebook_shows_verdict_and_tables() -> None:
    html = neartie.run_audit("k3-mini/tie-witness", rows=[20])._repr_html_()
    assert "<table>" in html
    assert "INCONCLUSIVE" in html


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 16])
def test_every_rank_count_runs(ranks: int) -> None:
    result = neartie.run_audit("gaussian:geometry=mini,rows=20", rows=[9], ranks=ranks, gate=False)
    assert codes(result, "FAIL") == set()
    assert result.record["widths"][0]["rows"] == 20 * ranks


def test_the_snippet_of_a_users_own_bank_opens_its_directory(tmp_path: Path) -> None:
    from neartie.banks.manage import make_bank

    make_bank("k3-mini/tie-witness", tmp_path / "mine")
    result = neartie.run_audit(
        str(tmp_path / "mine"), baseline="route:select=fp64", candidate="recorded", rows=[20]
    )
    (certificate,) = result.swaps.to_pylist()
    row = eval(certificate["snippet"], {"neartie": neartie})
    assert 650 in row.ids["baseline"][0]
