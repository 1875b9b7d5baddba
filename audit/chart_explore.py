"""Charts for exploring: swaps with the row behind each, certificates, declared schedules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import altair as alt

from ..kernels.predict import PredictedTriangle
from .chart_style import FONT, LIGHT, Chart, Theme, chart_of, decades, styled
from .chart_triangle import triangle
from .metrics.ulp import ordered
from .replay import ReplayedRow
from .score_certificate import ScoreCertificate, bins_of

_AROUND: Final = 4
_SELECTED: Final = ("both", "baseline only", "candidate only", "neither")


def swap_explorer(rows: Sequence[ReplayedRow], theme: Theme = LIGHT, rank: int = 0) -> Chart | None:
    """Return a list of replayed rows beside the scores around the boundary of the one clicked.

    A place is an expert's rank by the reference's biased score; its steps are FP32 ULP from the
    K-th key, and the colour says which path selects it.

    Args:
        rows: of ``replay_row``, each another row of one bank.
        theme: colours.
        rank: whose selections are shown.
    """
    if not rows:
        return None
    pick = alt.selection_point(
        fields=["row"], value=[{"row": rows[0].row}], empty=False, name="picked"
    )
    listed = chart_of([_summary(row, rank) for row in rows]).encode(
        y=alt.Y("row:O", title="row", sort=None),
        x=alt.X("moved:Q", title="steps between the experts that moved (FP32 ULP)"),
        opacity=alt.condition(pick, alt.value(1.0), alt.value(0.35)),
        tooltip=["row:O", "bank:N", "dropped:N", "added:N", "moved:Q"],
    )
    bars = listed.mark_bar(color=theme.apart, cursor="pointer").add_params(pick)
    shown = chart_of([line for row in rows for line in _around(row, rank)])
    shown = shown.transform_filter(pick).encode(
        y=alt.Y("expert:N", title="expert, best first", sort=alt.SortField("place")),
        x=alt.X("steps:Q", title="steps from the K-th key (FP32 ULP)"),
        tooltip=["place:Q", "expert:N", "key:N", "score:N", "steps:Q", "selected:N"],
    )
    colours = [theme.good, theme.baseline, theme.candidate, theme.muted]
    points = shown.mark_point(filled=True, size=110, opacity=1).encode(
        color=alt.Color(
            "selected:N", scale=alt.Scale(domain=list(_SELECTED), range=colours),
            legend=alt.Legend(title=None, orient="top"),
        )
    )  # fmt: skip
    height = max(120, 16 * len(rows))
    panels = (
        bars.properties(width=260, height=height, title="click a row"),
        points.properties(width=300, height=220, title="its scores around the boundary"),
    )
    return styled(alt.hconcat(*panels, spacing=30).resolve_scale(color="independent"), theme)


def _chosen(row: ReplayedRow, rank: int) -> tuple[set[int], set[int]]:
    return set(row.ids["baseline"][rank].tolist()), set(row.ids["candidate"][rank].tolist())


def _summary(row: ReplayedRow, rank: int) -> dict[str, Any]:
    baseline, candidate = _chosen(row, rank)
    moved = baseline ^ candidate
    keys = [int(ordered(row.keys[expert])) for expert in sorted(moved)]
    return {
        "row": row.row,
        "bank": row.bank,
        "dropped": ", ".join(map(str, sorted(baseline - candidate))) or "-",
        "added": ", ".join(map(str, sorted(candidate - baseline))) or "-",
        "moved": max(keys) - min(keys) if keys else 0,
    }


def _around(row: ReplayedRow, rank: int) -> Iterator[dict[str, Any]]:
    """The experts near the boundary, and those that only one path selects."""
    baseline, candidate = _chosen(row, rank)
    edge = int(ordered(row.keys[row.order[row.top_k - 1]]))
    for place, expert in enumerate(row.order.tolist(), start=1):
        in_a, in_b = expert in baseline, expert in candidate
        if abs(place - row.top_k) > _AROUND and in_a == in_b:
            continue
        yield {
            "row": row.row,
            "place": place,
            "expert": str(expert),
            "steps": int(ordered(row.keys[expert])) - edge,
            "key": str(row.keys[expert]),
            "score": str(row.scores[expert]),
            "selected": _SELECTED[0 if in_a and in_b else 1 if in_a else 2 if in_b else 3],
        }


def score_histogram(
    certificate: ScoreCertificate, range_name: str = "abs16", theme: Theme = LIGHT
) -> Chart | None:
    """Return the FP32 inputs of a range by the distance of their two scores, both forms.

    Raises:
        InputError: another range than abs16, abs88 or all.
    """
    bands = _doubling(bins_of(certificate.range(range_name).histogram))
    if not bands:
        return None
    rows = [
        {"ulp": str(low) if low == high else f"{low:,}-{high:,}", "inputs": count, "floor": 0.5,
         "label": f"{count:.2g}"}
        for low, high, count in bands
    ]  # fmt: skip
    most = 10.0 ** len(str(max(count for _, _, count in bands)))
    base = chart_of(rows).encode(
        x=alt.X("ulp:N", sort=None, title="FP32 ULP apart", axis=alt.Axis(labelAngle=-60)),
        y=alt.Y(
            "inputs:Q", title="inputs (log)", scale=alt.Scale(type="log", domain=[0.5, most]),
            axis=alt.Axis(values=decades(1.0, most), format="~s"),
        ),
    )  # fmt: skip
    bars = base.mark_bar(color=theme.apart).encode(y2="floor:Q")
    text = base.mark_text(dy=-6, color=theme.ink, font=FONT).encode(text="label:N")
    title = f"{certificate.form_a} and {certificate.form_b}, {range_name}"
    return styled(alt.layer(bars, text).properties(width=420, height=220, title=title), theme)


def _doubling(bins: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Bins joined to 0, 1, 2, 3-4, 5-8, 9-16 and so on; (least, largest, inputs) of each."""
    joined: dict[int, int] = {}
    for _, high, inputs in bins:
        power = (high - 1).bit_length() if high else -1
        joined[power] = joined.get(power, 0) + inputs
    return [
        (0, 0, count) if power < 0 else ((1 << power) // 2 + 1 if power else 1, 1 << power, count)
        for power, count in sorted(joined.items())
    ]


def schedule_triangles(
    predicted: Mapping[str, PredictedTriangle], theme: Theme = LIGHT
) -> Chart | None:
    """Return the triangle of each schedule as baseline, against one rounding of the full sum."""
    if not predicted:
        return None
    panels = [triangle(name, sides._asdict(), theme) for name, sides in predicted.items()]
    return styled(alt.hconcat(*panels, spacing=20), theme)
