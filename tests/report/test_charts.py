"""Charts show the record's figures, to scale, and give nothing where there is nothing."""

import json
import math

import altair as alt
import pytest
from chart_values import values

from neartie.audit import charts
from neartie.audit.gate.result import GateResult
from neartie.audit.record import AuditRecord

DRAW = (charts.error_triangle, charts.weight_histogram, charts.margin_density, charts.set_rates)


def test_every_chart_is_valid_vega_lite_in_both_themes(
    record: AuditRecord, clean: AuditRecord, gate: GateResult
) -> None:
    drawn = 0
    for content in (record.record, clean.record, gate.record):
        for draw in DRAW:
            for theme in (charts.LIGHT, charts.DARK):
                chart = draw(content, theme)
                if chart is not None:
                    assert json.dumps(chart.to_dict(validate=True), allow_nan=False)
                    drawn += 1
    # All but two: a gate has no triangle, and no unit of `record` bounds a rate.
    assert drawn == 2 * (3 * len(DRAW) - 2)


def test_the_triangle_is_to_scale(clean: AuditRecord) -> None:
    # The latent alone: the triangle of each tensor names the same corners.
    widths = [
        {**w, "triangle": {"latent": w["triangle"]["latent"]}} for w in clean.record["widths"]
    ]
    sides = widths[0]["triangle"]["latent"]
    chart = charts.error_triangle({**clean.record, "widths": widths})
    assert chart is not None
    places = {row["label"]: (row["x"], row["y"]) for row in values(chart) if "label" in row}
    fp64, a, b = places["FP64"], places["candidate"], places["baseline"]
    assert math.dist(fp64, a) == pytest.approx(sides["candidate_reference"], rel=1e-12)
    assert math.dist(fp64, b) == pytest.approx(sides["baseline_reference"], rel=1e-12)
    # rho is the cosine that closes the triangle, so its third side comes out by itself.
    assert math.dist(a, b) == pytest.approx(sides["candidate_baseline"], rel=1e-12)


@pytest.mark.parametrize("rho", [None, 61.9])
def test_what_is_no_triangle_is_not_drawn(clean: AuditRecord, rho: float | None) -> None:
    sides = {"candidate_reference": 1.0, "baseline_reference": 1.0, "candidate_baseline": 1.0}
    widths = [{"width": 9, "triangle": {"weights": {**sides, "rho": rho}}}]
    assert charts.error_triangle({**clean.record, "widths": widths}) is None


def test_weight_shares_sum_to_one_and_the_budget_parts_them(record: AuditRecord) -> None:
    chart = charts.weight_histogram(record.record)
    assert chart is not None
    rows = [row for row in values(chart) if "share" in row]
    unique = {row["bin"]: row for row in rows}
    assert math.fsum(row["share"] for row in unique.values()) == pytest.approx(1.0, rel=1e-12)
    for row in unique.values():
        high = int(row["bin"].split("-")[-1])
        assert (row["place"] == "past the budget") == (high > 8)


def test_a_budget_within_a_bin_ends_it(record: AuditRecord) -> None:
    content = {**record.record, "policy": {**record.record["policy"], "weight_budget_ulp": 6}}
    chart = charts.weight_histogram(content)
    assert chart is not None
    ends = {int(row["bin"].split("-")[-1]) for row in values(chart) if "share" in row}
    starts = {int(row["bin"].split("-")[0]) for row in values(chart) if "share" in row}
    assert not any(
        start <= 6 < end for start, end in zip(sorted(starts), sorted(ends), strict=True)
    )


def test_margins_are_the_boundary_counts(record: AuditRecord, gate: GateResult) -> None:
    chart = charts.margin_density(record.record)
    assert chart is not None
    rows = {row["band"]: row["rows"] for row in values(chart) if "band" in row}
    total = sum(bank["boundary"]["at_most_64"] for bank in record.record["banks"])
    assert sum(rows.values()) == total
    near = sum(bank["boundary"]["at_most_2"] for bank in record.record["banks"])
    assert rows["0"] + rows["1"] + rows["2"] == near
    started = {**record.record, "gate": {"pooled": gate.record["pooled"]}}
    drawn = charts.margin_density(started)
    assert drawn is not None
    chart = charts.margin_density(gate.record)
    assert chart is not None
    assert values(drawn) == values(chart)
    assert chart is not None
    steps = gate.record["pooled"]["margins"]["steps"]
    shown = {row["band"]: row["rows"] for row in values(chart) if "band" in row}
    assert {k: v for k, v in shown.items() if v} == {k: v for k, v in steps.items() if int(k) < 64}


def test_rates_stand_between_their_bounds(clean: AuditRecord) -> None:
    content = json.loads(clean.to_json())
    content["widths"][0] |= {"units": 1000, "differing_units": 3, "set_rate": 3e-3,
                             "set_rate_upper": 7.7e-3}  # fmt: skip
    chart = charts.set_rates(content)
    assert isinstance(chart, alt.LayerChart)
    (span, *_) = [row for row in values(chart) if "upper" in row]
    assert 0 < span["lower"] < 3e-3 < span["upper"] == 7.7e-3
    assert [row["rate"] for row in values(chart) if row.get("rate")] == [3e-3]
    assert {row["limit"] for row in values(chart) if "limit" in row} == {2e-3}


def test_nothing_gives_nothing(clean: AuditRecord) -> None:
    empty = {**clean.record, "widths": [], "banks": [], "gate": None}
    assert [draw(empty) for draw in DRAW] == [None] * 4
