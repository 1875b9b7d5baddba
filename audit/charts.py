"""Charts of a record, one style for notebooks and reports: pure functions, record -> altair.Chart.

They take the record of an audit or of a gate and give None where it holds nothing to draw.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import altair as alt

from .chart_explore import schedule_triangles, score_histogram, swap_explorer
from .chart_style import DARK, FONT, LIGHT, Chart, Theme, chart_of, decades, styled, two_colours
from .chart_triangle import is_triangle, triangle
from .metrics.margins import EXACT_STEPS
from .metrics.rates import lower_bound
from .value_table import TENSORS

__all__ = (
    "DARK", "LIGHT", "Chart", "Theme",
    "error_triangle", "margin_density", "schedule_triangles", "score_histogram", "set_rates",
    "swap_explorer", "weight_histogram",
)  # fmt: skip

Record = Mapping[str, Any]

_LABELLED_BARS: Final = 8


def error_triangle(record: Record, theme: Theme = LIGHT) -> Chart | None:
    """Return the triangle of FP64, baseline and candidate, drawn to scale, per tensor.

    The sides are the relative RMS between its corners; the angle at FP64 has rho as its cosine.
    Where widths differ, each tensor is drawn at the width where the paths are farthest apart.
    """
    panels = []
    for tensor in TENSORS:
        found = [
            (width["width"], width["triangle"][tensor])
            for width in record["widths"]
            if is_triangle(width.get("triangle", {}).get(tensor))
        ]
        if found:
            sides = max((s for _, s in found), key=lambda s: float(s["candidate_baseline"]))
            same = [str(w) for w, other in found if other == sides]
            panels.append(triangle(f"{tensor}, width {', '.join(same)}", sides, theme))
    if not panels:
        return None
    return styled(alt.hconcat(*panels, spacing=20), theme)


def weight_histogram(record: Record, theme: Theme = LIGHT) -> Chart | None:
    """Return the share of expert weights by FP32 distance, per width; past the budget in red."""
    rows = _weight_rows(record)
    if not rows:
        return None
    # A log axis has no zero for the bars to stand on: they stand a decade below the smallest.
    floor = 10.0 ** (math.floor(math.log10(min(row["share"] for row in rows))) - 1)
    largest = max(row["low"] for row in rows)
    order = [_range(*span) for span in _weight_bins(largest, record["policy"]["weight_budget_ulp"])]
    few = len(order) <= _LABELLED_BARS
    base = chart_of([{**row, "floor": floor} for row in rows]).encode(
        x=alt.X(
            "bin:N", title="FP32 ULP apart", scale=alt.Scale(domain=order),
            axis=alt.Axis(labelAngle=0 if few else -90),
        ),
        xOffset=alt.XOffset("widths:N"),
        y=alt.Y(
            "share:Q", title="share of weights (log)",
            scale=alt.Scale(type="log", domain=[floor, 1.0]),
            axis=alt.Axis(format=".0e", values=decades(floor, 1.0)),
        ),
    )  # fmt: skip
    colour = two_colours("within the budget", theme.candidate, "past the budget", theme.bad)
    layers = [base.mark_bar().encode(y2="floor:Q", color=colour)]
    if few and len({row["widths"] for row in rows}) == 1:
        layers.append(base.mark_text(dy=-6, color=theme.ink, font=FONT).encode(text="label:N"))
    return styled(alt.layer(*layers).properties(width=420, height=190), theme)


def margin_density(record: Record, theme: Theme = LIGHT) -> Chart | None:
    """Return rows per FP32 step of the K/K+1 margin; bars within the swap window stand out.

    Margins of a gate, also of one that an audit started, are those of the baseline's own keys;
    an audit without one shows its banks' margins by the reference.
    """
    window = record["policy"]["window_ulp"]
    bands = list(_margin_bands(record))
    rows = [
        {
            "band": _range(low, high), "rows": count, "density": count / (high - low + 1),
            "place": "within the window" if high <= window else "outside the window",
            "label": f"{count:,}",
        }
        for low, high, count in bands
    ]  # fmt: skip
    if not any(count for _, _, count in bands):
        return None
    base = chart_of(rows).encode(
        x=alt.X(
            "band:N", sort=None, title="margin between slots K and K+1 (FP32 ULP)",
            axis=alt.Axis(labelAngle=0, labelOverlap=True),
        ),
        y=alt.Y("density:Q", title="rows per ULP", axis=alt.Axis(tickCount=5)),
    )  # fmt: skip
    bars = base.mark_bar().encode(
        color=two_colours("outside the window", theme.muted, "within the window", theme.apart)
    )
    text = base.mark_text(dy=-6, color=theme.ink, font=FONT).encode(text="label:N")
    layers = (bars, text) if len(rows) <= _LABELLED_BARS else (bars,)
    return styled(alt.layer(*layers).properties(width=420, height=190), theme)


def set_rates(record: Record, theme: Theme = LIGHT) -> Chart | None:
    """Return per width the observed set rate between its one-sided bounds, and the limit."""
    rows = _rate_rows(record)
    if not rows:
        return None
    limit = record["policy"]["set_rate"]
    seen = [limit, *(row[name] for row in rows for name in ("upper", "lower") if row[name])]
    # A decade of room to the left: there a rate without a lower bound begins.
    low = 10.0 ** (math.floor(math.log10(min(seen))) - 1)
    high = 10.0 ** math.ceil(math.log10(max(seen)))
    scale = alt.Scale(type="log", domain=[low, max(high, 10 * low)])
    axis = alt.Axis(format=".0e", values=decades(low, max(high, 10 * low)))

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=scale, axis=axis, title="share of units that differ")

    drawn = [{**row, "lower": row["lower"] or low} for row in rows]
    base = chart_of(drawn).encode(
        y=alt.Y("width:N", sort=None, title="width"),
        color=two_colours("certified", theme.good, "not certified", theme.bad),
    )
    line = chart_of([{"limit": limit, "label": f"limit {limit:.0e}"}])
    text = line.mark_text(align="left", dx=5, color=theme.ink, font=FONT)
    layers = [
        base.mark_rule(strokeWidth=2).encode(x=x("lower"), x2="upper:Q"),
        base.mark_tick(thickness=3, size=16, opacity=1).encode(x=x("upper")),
        base.transform_filter("datum.rate > 0")
        .mark_point(filled=True, size=70)
        .encode(x=x("rate")),
        line.mark_rule(strokeDash=[4, 3], strokeWidth=1.5, color=theme.ink).encode(x=x("limit")),
        text.encode(x=x("limit"), y=alt.value(8), text="label:N"),
    ]
    chart = alt.layer(*layers).properties(width=420, height=30 * len(rows) + 20)
    return styled(chart, theme)


def _weight_rows(record: Record) -> list[dict[str, Any]]:
    """A row per group of widths and bin of distances that holds weights."""
    budget = record["policy"]["weight_budget_ulp"]
    rows = []
    for widths, bins in _by_width(record, "weight_ulp_histogram"):
        counts = {int(steps): count for steps, count in bins.items()}
        total = sum(counts.values())
        for low, high in _weight_bins(max(counts, default=0), budget):
            count = sum(c for steps, c in counts.items() if low <= steps <= high)
            if count:
                place = "within the budget" if high <= budget else "past the budget"
                share = count / total
                rows.append(
                    {"widths": widths, "bin": _range(low, high), "low": low, "share": share}
                    | {"place": place, "label": _percent(share)}
                )
    return rows


def _rate_rows(record: Record) -> list[dict[str, Any]]:
    """A row per width that has units; a width without is told by the verdict's reasons."""
    return [
        {
            "width": str(width["width"]),
            "rate": width["set_rate"],
            "upper": width["set_rate_upper"],
            "lower": lower_bound(
                width["differing_units"], width["units"], record["policy"]["confidence"]
            ),
            "place": "certified" if width["certified"] else "not certified",
        }
        for width in record["widths"]
        if width["units"]
    ]


def _by_width(record: Record, field: str) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Yield (widths, figures): neighbouring widths with the same figures are one."""
    groups: list[tuple[list[str], Mapping[str, int]]] = []
    for width in record["widths"]:
        if groups and groups[-1][1] == width[field]:
            groups[-1][0].append(str(width["width"]))
        else:
            groups.append(([str(width["width"])], width[field]))
    for widths, figures in groups:
        yield ", ".join(widths), figures


def _weight_bins(largest: int, budget: int) -> list[tuple[int, int]]:
    """Bins 0, 1, 2, 3-4, 5-8, ... up to the largest; the budget always ends one."""
    ends, end = {0, budget}, 1
    while end < max(largest, 1):
        ends.add(end)
        end *= 2
    ends.add(end)
    ordered = [value for value in sorted(ends) if value <= end]
    return list(zip([0, *(value + 1 for value in ordered)], ordered, strict=False))


def _margin_bands(record: Record) -> Iterator[tuple[int, int, int]]:
    """Yield (low, high, rows) by FP32 steps of the margin."""
    gate = record if "pooled" in record else record.get("gate")
    if gate is not None:
        steps = {int(k): n for k, n in gate["pooled"]["margins"]["steps"].items()}
        yield from ((low, low, steps.get(low, 0)) for low in range(EXACT_STEPS + 1))
        return
    before = -1
    known = 0
    boundaries = [bank["boundary"] for bank in record["banks"] if bank["boundary"]]
    names = [name for name in (boundaries[0] if boundaries else {}) if name.startswith("at_most_")]
    for name in names:
        high = int(name.removeprefix("at_most_"))
        total = sum(boundary[name] for boundary in boundaries)
        yield before + 1, high, total - known
        before, known = high, total


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 1e-3 else f"{share:.0e}"
