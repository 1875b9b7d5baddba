"""The error triangle, drawn to scale: what is far apart on the page is far apart in RMS."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import altair as alt

from .chart_style import FONT, Theme, chart_of

_SIZE: Final = 225
Place = tuple[float, float]


def is_triangle(sides: Mapping[str, float | None] | None) -> bool:
    """Whether the corners are three.

    Equal bits make a line, and weights whose pairs were pooled over different rows (each pair
    over the rows where its sets are equal) need not close.
    """
    if sides is None or sides["rho"] is None or not sides["candidate_baseline"]:
        return False
    return abs(sides["rho"]) <= 1.0


def corners(sides: Mapping[str, float]) -> dict[str, Place]:
    """Return the corners: FP64 at the origin, the baseline on the x axis, rho the cosine there.

    The third side then has the length ``candidate_baseline``, by the law of cosines.
    """
    a, rho = sides["candidate_reference"], sides["rho"]
    return {
        "FP64": (0.0, 0.0),
        "baseline": (sides["baseline_reference"], 0.0),
        "candidate": (a * rho, a * math.sqrt(1 - rho * rho)),
    }


def triangle(title: str, sides: Mapping[str, float], theme: Theme) -> Any:
    """Return one triangle with the lengths of its sides."""
    places = corners(sides)
    axes = _axes(places)
    # Name, its two corners, length, colour, and where its label stands beside the middle.
    left = (-30, -8)
    lines = (
        ("baseline - FP64", "FP64", "baseline", "baseline_reference", theme.baseline, (0, 14)),
        ("candidate - FP64", "FP64", "candidate", "candidate_reference", theme.candidate, left),
        ("apart", "baseline", "candidate", "candidate_baseline", theme.apart, (34, 0)),
    )
    layers = []
    for name, start, end, field, colour, (dx, dy) in lines:
        (x0, y0), (x1, y1) = places[start], places[end]
        line = chart_of([{"x": x0, "y": y0, "x2": x1, "y2": y1, "side": name}])
        layers.append(
            line.mark_rule(strokeWidth=3, color=colour).encode(**axes, x2="x2:Q", y2="y2:Q")
        )
        middle = {"x": (x0 + x1) / 2, "y": (y0 + y1) / 2, "length": f"{sides[field]:.2e}"}
        text = chart_of([middle]).encode(**axes, text="length:N")
        layers.append(text.mark_text(dx=dx, dy=dy, color=colour, font=FONT, fontWeight="bold"))
    for name, (x, y) in places.items():
        corner = chart_of([{"x": x, "y": y, "label": name}]).encode(**axes)
        layers.append(corner.mark_point(filled=True, size=60, color=theme.ink, opacity=1))
        above = -14 if name == "candidate" else 30
        layers.append(corner.mark_text(dy=above, color=theme.ink, font=FONT).encode(text="label:N"))
    heading = alt.TitleParams(title, subtitle=f"rho {sides['rho']:.2f}", anchor="middle")
    return alt.layer(*layers).properties(width=_SIZE, height=_SIZE, title=heading)


def _axes(places: Mapping[str, Place]) -> dict[str, Any]:
    """Hidden axes of one scale: with two, the sides were not to scale."""
    xs, ys = zip(*places.values(), strict=True)
    span = 1.25 * max(max(xs) - min(xs), max(ys) - min(ys))
    scales = []
    for values in (xs, ys):
        low = (max(values) + min(values) - span) / 2
        scales.append(alt.Scale(domain=[low, low + span], nice=False))
    return {
        "x": alt.X("x:Q", axis=None, scale=scales[0]),
        "y": alt.Y("y:Q", axis=None, scale=scales[1]),
    }
