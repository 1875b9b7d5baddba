"""What a notebook shows: swaps with their rows, certificates, schedules; all text escaped."""

import json
from typing import Any

import pytest
from chart_values import values

import neartie
from neartie.audit import charts
from neartie.audit.certify import load_certificate
from neartie.audit.gate.result import GateResult
from neartie.audit.replay import ReplayedRow
from neartie.banks.errors import InputError
from neartie.kernels.predict import predicted_triangle

CANDIDATE = "route:bias=bf16"


@pytest.fixture(scope="module")
def rows() -> list[ReplayedRow]:
    return [
        neartie.replay_row("k3-mini/layer3", row=row, width=1, ranks=1, candidate=CANDIDATE)
        for row in (35, 36, 39)
    ]


def test_the_explorer_shows_who_selects_what(rows: list[ReplayedRow]) -> None:
    chart = charts.swap_explorer(rows)
    assert chart is not None
    shown = values(chart)
    summaries = {line["row"]: line for line in shown if "moved" in line}
    assert [summaries[row]["dropped"] for row in (35, 36, 39)][:2] == ["519", "-"]
    assert summaries[35]["added"] == "846"
    around = {line["expert"]: line for line in shown if "place" in line and line["row"] == 35}
    assert around["519"]["selected"] == "baseline only"
    assert around["846"]["selected"] == "candidate only"
    assert around["464"]["selected"] == "both"
    assert around["826"]["selected"] == "neither"
    assert around["519"]["steps"] == 0
    assert summaries[35]["moved"] == -around["846"]["steps"] == 14_631
    # Only the rows of the click are drawn, and one is clicked from the start.
    written = json.dumps(chart.to_dict(validate=True))
    assert '"filter": {"param": "picked", "empty": false}' in written
    assert '"value": [{"row": 35}]' in written


def test_nothing_to_show_is_no_chart() -> None:
    assert charts.swap_explorer([]) is None
    assert charts.schedule_triangles({}) is None


def test_the_histogram_of_a_certificate_holds_every_input() -> None:
    certificate = load_certificate("exp", "tanh")
    assert certificate is not None
    chart = charts.score_histogram(certificate, "abs16")
    assert chart is not None
    bars = {line["ulp"]: line["inputs"] for line in values(chart)}
    pair = certificate.range("abs16").pair
    assert sum(bars.values()) == pair.inputs - pair.undefined
    assert bars["0"] == certificate.range("abs16").histogram[0]
    assert bars["3-4"] == sum(certificate.range("abs16").histogram[3:5])
    with pytest.raises(InputError, match="abs16"):
        charts.score_histogram(certificate, "abs17")


def test_schedules_are_drawn_with_their_sides() -> None:
    predicted = {name: predicted_triangle(name, 4) for name in ("one_shot_fp32", "tree_bf16")}
    chart = charts.schedule_triangles(predicted)
    assert chart is not None
    lengths = {line["length"] for line in values(chart) if "length" in line}
    assert f"{predicted['tree_bf16'].baseline_reference:.2e}" in lengths


def test_html_of_a_row_a_bank_a_gate_and_a_certificate(
    rows: list[ReplayedRow], gate: GateResult, hostile_name: str
) -> None:
    certificate = load_certificate("exp", "tanh")
    assert certificate is not None
    assert "<td>846</td>" in rows[0]._repr_html_()
    assert "14631" in rows[0]._repr_html_()
    assert "Near ties" in gate._repr_html_() or "near ties" in gate._repr_html_()
    assert "all 2^32 FP32 inputs" in certificate._repr_html_()
    bank = neartie.open_bank("gaussian:rows=2")
    assert "1,024" in neartie.open_bank("k3-mini/layer0")._repr_html_()
    bad: Any = bank
    object.__setattr__(bad.header, "name", hostile_name)
    assert "<script" not in bad._repr_html_()
    assert "&lt;script" in bad._repr_html_()


@pytest.fixture
def hostile_name() -> str:
    return "<script>alert(1)</script>"
