"""The one style of all charts: colours of light and dark, axes, fonts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import altair as alt

Chart = alt.LayerChart | alt.HConcatChart

FONT: Final = "Liberation Sans, Arial, Helvetica, sans-serif"
"""Laid out with the first, which vl-convert brings along: the same bytes on every machine."""


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


def styled(chart: Any, theme: Theme) -> Chart:
    """Return the chart with the style; what is inside another chart is styled with it."""
    # In one call: each would copy the chart.
    result: Chart = chart.configure(
        background="transparent",
        font=FONT,
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(
            labelColor=theme.muted, titleColor=theme.muted, gridColor=theme.grid,
            domainColor=theme.grid, tickColor=theme.grid, titleFontWeight="normal",
            labelFontSize=12, titleFontSize=12,
        ),
        axisX=alt.AxisConfig(grid=False),
        legend=alt.LegendConfig(labelColor=theme.ink, labelFontSize=12, symbolType="square"),
        title=alt.TitleConfig(
            color=theme.ink, subtitleColor=theme.muted, fontSize=13, subtitleFontSize=12
        ),
        text=alt.MarkConfig(fontSize=12),
    )  # fmt: skip
    return result


def chart_of(rows: Sequence[Mapping[str, Any]]) -> alt.Chart:
    """Return an empty chart of these rows."""
    return alt.Chart(alt.InlineData(values=[dict(row) for row in rows]))


def two_colours(ordinary: str, colour: str, marked: str, marked_colour: str) -> alt.Color:
    """Return the colour, by the field ``place``, of what is ordinary and of what stands out."""
    return alt.Color(
        "place:N",
        scale=alt.Scale(domain=[ordinary, marked], range=[colour, marked_colour]),
        legend=alt.Legend(title=None, orient="top"),
    )


def decades(low: float, high: float) -> list[float]:
    """Return the powers of ten from low to high, both powers of ten themselves."""
    return [10.0**e for e in range(round(math.log10(low)), round(math.log10(high)) + 1)]
