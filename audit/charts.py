"""Charts of a record, one style for notebooks and reports: pure functions, record -> altair.Chart.

They take the record of an audit or of a gate and give None where it holds nothing to draw.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import altair as alt

from .metrics.margins import EXACT_STEPS
from .metrics.rates import lower_bound
from .value_table import TENSORS

Record = Mapping[str, Any]
Chart = alt.Chart | alt.LayerChart | alt.HConcatChart

FONT: Final = "Liberation Sans, Arial, Helvetica, sans-serif"
"""Laid out with the first, which vl-convert brings along: the same bytes on every machine."""

_LABELLED_BARS: Final = 8


@dataclass(frozen=True)
class Theme:
    """Colours of a chart, each as CSS writes it."""

    ink: str
    muted: str
    grid: str
    baseline: str
    candidate: str
    apart: str
    good: str
    bad: str


LIGHT: Final = Theme(
    ink="#1f2328", muted="#59636e", grid="#d8dee4", baseline="#9a6700", candidate="#0969da",
    apart="#8250df", good="#1a7f37", bad="#cf222e",
)  # fmt: skip
DARK: Final = Theme(
    ink="#e6edf3", muted="#9198a1", grid="#30363d", baseline="#e3b341", candidate="#58a6ff",
    apart="#bc8cff", good="#3fb950", bad="#ff7b72",
)  # fmt: skip


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
            if _is_triangle(width.get("triangle", {}).get(tensor))
        ]
        if found:
            width, sides = max(found, key=lambda item: item[1]["candidate_baseline"])
            same = [str(w) for w, other in found if other == sides]
            panels.append(_triangle(f"{tensor}, width {', '.join(same)}", sides, theme))
    if not panels:
        return None
    return _styled(alt.hconcat(*panels, spacing=20), theme)


def weight_histogram(record: Record, theme: Theme = LIGHT) -> Chart | None:
    """Return the share of expert weights by FP32 distance, per width; past the budget in red."""
    budget = record["policy"]["weight_budget_ulp"]
    rows = []
    for widths, bins in _by_width(record, "weight_ulp_histogram"):
        counts = {int(steps): count for steps, count in bins.items()}
        total = sum(counts.values())
        for low, high in _weight_bins(max(counts, default=0), budget):
            count = sum(c for steps, c in counts.items() if low <= steps <= high)
            place = "within the budget" if high <= budget else "past the budget"
            if count:
                share = count / total
                rows.append(
                    {"widths": widths, "bin": _range(low, high), "low": low, "share": share}
                    | {"least": 1.0, "place": place, "label": _percent(share)}
                )
    if not rows:
        return None
    # A log axis has no zero for the bars to stand on: they stand a decade below the smallest.
    floor = 10.0 ** (math.floor(math.log10(min(float(str(row["share"])) for row in rows))) - 1)
    for row in rows:
        row["least"] = floor
    order = [_range(low, high) for low, high in _weight_bins(max(_lows(rows)), budget)]
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X(
            "bin:N", title="FP32 ULP apart", scale=alt.Scale(domain=order),
            axis=alt.Axis(labelAngle=0 if len(order) <= _LABELLED_BARS else -90),
        ),
        xOffset=alt.XOffset("widths:N"),
    )  # fmt: skip
    share = alt.Y(
        "share:Q",
        title="share of weights (log)",
        scale=alt.Scale(type="log", domain=[floor, 1.0]),
        axis=alt.Axis(format=".0e", values=_decades(floor, 1.0)),
    )
    bars = base.mark_bar().encode(
        y=share, y2="least:Q", color=_places("within the budget", theme.candidate, "past the budget", theme.bad)
    )
    layers: list[alt.Chart] = [bars]
    if len({row["widths"] for row in rows}) == 1 and len(order) <= _LABELLED_BARS:
        layers.append(
            base.mark_text(dy=-6, color=theme.ink, font=FONT).encode(y=share, text="label:N")
        )
    return _styled(alt.layer(*layers).properties(width=420, height=190), theme)


def margin_density(record: Record, theme: Theme = LIGHT) -> Chart | None:
    """Return rows per FP32 step of the K/K+1 margin; bars within the swap window stand out.

    An audit's margins are the reference's, a gate's are those of the baseline's own keys.
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
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X(
            "band:N", sort=None, title="margin between slots K and K+1 (FP32 ULP)",
            axis=alt.Axis(labelAngle=0, labelOverlap=True),
        ),
        y=alt.Y("density:Q", title="rows per ULP", axis=alt.Axis(tickCount=5)),
    )  # fmt: skip
    bars = base.mark_bar().encode(
        color=_places("outside the window", theme.grid, "within the window", theme.apart)
    )
    text = base.mark_text(dy=-6, color=theme.ink, font=FONT).encode(text="label:N")
    layers = (bars, text) if len(rows) <= _LABELLED_BARS else (bars,)
    return _styled(alt.layer(*layers).properties(width=420, height=190), theme)


def set_rates(record: Record, theme: Theme = LIGHT) -> Chart | None:
    """Return per width the observed set rate between its one-sided bounds, and the limit."""
    policy = record["policy"]
    rows, points = [], []
    for width in record["widths"]:
        if not width["units"]:
            continue
        label, upper = str(width["width"]), width["set_rate_upper"]
        least = lower_bound(width["differing_units"], width["units"], policy["confidence"])
        certified = "certified" if width["certified"] else "not certified"
        rows.append({"width": label, "upper": upper, "lower": least, "place": certified})
        if width["set_rate"]:
            points.append({"width": label, "rate": width["set_rate"], "place": certified})
    if not rows:
        return None
    seen = [policy["set_rate"], *(float(row["upper"]) for row in rows)]
    seen += [row["lower"] for row in rows if row["lower"]]
    low = 10.0 ** (math.floor(math.log10(min(seen))) - 1)
    high = 10.0 ** math.ceil(math.log10(max(seen)) + 1e-9)
    for row in rows:
        row["lower"] = row["lower"] or low
    x = {"scale": alt.Scale(type="log", domain=[low, high]), "title": "share of units that differ"}
    y = alt.Y("width:N", sort=None, title="width")
    colour = _places("certified", theme.good, "not certified", theme.bad)
    data = alt.Chart(alt.Data(values=rows)).encode(y=y, color=colour)
    axis = alt.Axis(format=".0e", values=_decades(low, high))
    spans = data.mark_rule(strokeWidth=2).encode(
        x=alt.X("lower:Q", axis=axis, **x), x2="upper:Q"
    )
    uppers = data.mark_tick(thickness=3, size=16, opacity=1).encode(x=alt.X("upper:Q", **x))
    limit = alt.Chart(
        alt.Data(values=[{"limit": policy["set_rate"], "label": f"limit {policy['set_rate']:.0e}"}])
    ).encode(x=alt.X("limit:Q", **x))
    line = limit.mark_rule(strokeDash=[4, 3], strokeWidth=1.5, color=theme.ink)
    text = limit.mark_text(align="left", dx=5, color=theme.ink, font=FONT).encode(
        text="label:N", y=alt.value(8)
    )
    layers: list[alt.Chart] = [spans, uppers, line, text]
    if points:
        dots = alt.Chart(alt.Data(values=points)).mark_point(filled=True, size=70)
        layers.append(dots.encode(x=alt.X("rate:Q", **x), y=y, color=colour))
    chart = alt.layer(*layers).properties(width=420, height=30 * len(rows) + 20)
    return _styled(chart, theme)


def _is_triangle(sides: Mapping[str, float | None] | None) -> bool:
    """Whether the corners are three.

    Equal bits make a line, and weights whose pairs were pooled over different rows (each pair
    over the rows where its sets are equal) need not close.
    """
    if sides is None or sides["rho"] is None or not sides["candidate_baseline"]:
        return False
    return abs(sides["rho"]) <= 1.0


def _triangle(title: str, sides: Mapping[str, float], theme: Theme) -> alt.LayerChart:
    a, b = sides["candidate_reference"], sides["baseline_reference"]
    rho = max(-1.0, min(1.0, sides["rho"]))
    corners = {
        "FP64": (0.0, 0.0),
        "baseline": (b, 0.0),
        "candidate": (a * rho, a * math.sqrt(1 - rho * rho)),
    }
    lines = [
        ("baseline - FP64", "FP64", "baseline", b),
        ("candidate - FP64", "FP64", "candidate", a),
        ("apart", "baseline", "candidate", sides["candidate_baseline"]),
    ]
    xs, ys = zip(*corners.values(), strict=True)
    # One scale for both axes, or the sides are not to scale.
    span = 1.25 * max(max(xs) - min(xs), max(ys) - min(ys))
    left, bottom = (max(xs) + min(xs) - span) / 2, (max(ys) + min(ys) - span) / 2
    scale = {
        "x": alt.Scale(domain=[left, left + span], nice=False),
        "y": alt.Scale(domain=[bottom, bottom + span], nice=False),
    }
    x, y = (
        alt.X("x:Q", axis=None, scale=scale["x"]),
        alt.Y("y:Q", axis=None, scale=scale["y"]),
    )
    ends = [
        {"side": name, "x": corners[at][0], "y": corners[at][1], "order": n}
        for name, start, end, _ in lines
        for n, at in enumerate((start, end))
    ]
    sides_drawn = alt.Chart(alt.Data(values=ends)).mark_line(strokeWidth=3).encode(
        x=x, y=y, detail="side:N", order="order:Q",
        color=alt.Color(
            "side:N",
            scale=alt.Scale(
                domain=[name for name, *_ in lines],
                range=[theme.baseline, theme.candidate, theme.apart],
            ),
            legend=None,
        ),
    )  # fmt: skip
    layers: list[alt.Chart] = [sides_drawn]
    for colour, (name, start, end, length), (dx, dy) in zip(
        (theme.baseline, theme.candidate, theme.apart),
        lines,
        ((0, 14), (-30, 0), (34, 0)),
        strict=True,
    ):
        middle = [
            {
                "x": (corners[start][0] + corners[end][0]) / 2,
                "y": (corners[start][1] + corners[end][1]) / 2,
                "label": f"{length:.2e}",
            }
        ]
        note = alt.Chart(alt.Data(values=middle), description=name)
        layers.append(
            note.mark_text(dx=dx, dy=dy, color=colour, font=FONT, fontWeight="bold").encode(
                x=x, y=y, text="label:N"
            )
        )
    points = [
        {"x": px, "y": py, "label": name, "dy": -14 if name == "candidate" else 30}
        for name, (px, py) in corners.items()
    ]
    for point in points:
        corner = alt.Chart(alt.Data(values=[point])).encode(x=x, y=y)
        layers.append(corner.mark_point(filled=True, size=60, color=theme.ink, opacity=1))
        layers.append(
            corner.mark_text(dy=point["dy"], color=theme.ink, font=FONT).encode(text="label:N")
        )
    heading = alt.TitleParams(title, subtitle=f"rho {sides['rho']:.2f}", anchor="middle")
    return alt.layer(*layers).properties(width=225, height=225, title=heading)


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


def _lows(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    return [int(row["low"]) for row in rows]


def _margin_bands(record: Record) -> Iterator[tuple[int, int, int]]:
    """Yield (low, high, rows) by FP32 steps of the margin."""
    if "pooled" in record:
        steps = {int(k): n for k, n in record["pooled"]["margins"]["steps"].items()}
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


def _decades(low: float, high: float) -> list[float]:
    return [10.0**e for e in range(round(math.log10(low)), round(math.log10(high)) + 1)]


def _places(ordinary: str, colour: str, marked: str, marked_colour: str) -> alt.Color:
    """The colour of what is as it should be, and of what stands out."""
    return alt.Color(
        "place:N",
        scale=alt.Scale(domain=[ordinary, marked], range=[colour, marked_colour]),
        legend=alt.Legend(title=None, orient="top"),
    )


def _styled(chart: Any, theme: Theme) -> Any:
    """Give a chart the one style of all."""
    axis = {"labelColor": theme.muted, "titleColor": theme.muted, "gridColor": theme.grid}
    return (
        chart.configure(background="transparent", font=FONT)
        .configure_view(stroke=None)
        .configure_axis(
            **axis, domainColor=theme.grid, tickColor=theme.grid, titleFontWeight="normal",
            labelFontSize=12, titleFontSize=12,
        )
        .configure_axisX(grid=False)
        .configure_legend(labelColor=theme.ink, labelFontSize=12, symbolType="square")
        .configure_title(
            color=theme.ink, subtitleColor=theme.muted, fontSize=13, subtitleFontSize=12
        )
        .configure_text(fontSize=12)
    )  # fmt: skip
