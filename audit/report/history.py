"""The history of audits, as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from ..evidence.history import DRIFT_CONFIDENCE, History, Series
from .shown import shown

_BARS: Final = "▁▂▃▄▅▆▇█"


def print_history(history: History, console: Console) -> None:
    """Print the runs, every figure over them with its limit, and which figures drift."""
    for number, run in enumerate(history.runs, 1):
        unlike = "" if run.alike else "  other rows, paths or windows than the newest"
        name = f"{run.date}  {run.directory}  sha256 {run.digest[:12]}"
        console.print(shown(f"{number:>3}  {name}  {run.verdict}  {run.numerics_class}{unlike}"))
    console.print()
    console.print(_table(history.series))
    drifting = _same_widths([series for series in history.series if series.drifts])
    for widths, series in drifting:
        p = f"p = {series.trend.p_value:.2g}, {series.trend.method}"
        console.print(shown(f"drift: {_name(series.metric, widths)} grows ({p})"))
    if not drifting:
        console.print(f"no drift at {DRIFT_CONFIDENCE:.0%} over {history.tested} figures that vary")
    console.print(
        f"by Mann-Kendall with Holm's correction over the last {history.compared} of "
        f"{len(history.runs)} runs, which are alike; so many figures need "
        f"{history.fewest_runs} runs at least"
    )


def _table(figures: Sequence[Series]) -> Table:
    title = "Larger is worse; one bar a run, oldest first, from the least to the largest figure"
    table = Table(title=title, title_justify="left", box=None, header_style="bold")
    for column in ("figure", "runs"):
        table.add_column(column)
    for column in ("first", "newest", "limit", "of limit", "rising for", "p"):
        table.add_column(column, justify="right")
    for widths, series in _same_widths(figures):
        known = [value for value in series.values if value is not None]
        limit, p_value = series.limits[-1], series.trend.p_value
        table.add_row(
            _name(series.metric, widths),
            sparkline(series.values),
            _number(known[0]) if known else "-",
            _number(series.values[-1]),
            _number(limit),
            "-" if series.used is None else f"{series.used:.0%}",
            str(series.trend.rising_for or "-"),
            "-" if p_value is None else f"{p_value:.2g}{', drift' if series.drifts else ''}",
        )
    return table


def sparkline(values: Sequence[float | None]) -> str:
    """Return one bar per value; a blank where there is none.

    Example:
        >>> sparkline([0, 1, None, 7])
        '▁▂ █'
        >>> sparkline([2, 2])
        '▁▁'
    """
    known = [value for value in values if value is not None]
    least, largest = min(known, default=0.0), max(known, default=0.0)
    scale = (len(_BARS) - 1) / (largest - least) if largest > least else 0.0
    return "".join(
        " " if value is None else _BARS[round((value - least) * scale)] for value in values
    )


def _same_widths(figures: Sequence[Series]) -> list[tuple[str, Series]]:
    """Widths with the same figures, as one line: (their list, one of them)."""
    merged: dict[tuple[object, ...], list[Series]] = {}
    for series in figures:
        key = (series.metric, tuple(series.values), tuple(series.limits))
        merged.setdefault(key, []).append(series)
    return [
        (", ".join(str(s.width) for s in group if s.width is not None), group[0])
        for group in merged.values()
    ]


def _name(metric: str, widths: str) -> str:
    return f"{metric}, width {widths}" if widths else metric


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3e}"
