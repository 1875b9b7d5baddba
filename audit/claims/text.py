"""Answers as text: one block per claim, with the figures behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...banks.errors import printable
from .metrics import METRICS

Figure = Mapping[str, Any]


def claims_text(record: Mapping[str, Any]) -> str:
    """Return the answers as they are printed, from ``ClaimsResult.as_dict()``."""
    evidence = ", ".join(record["evidence"]) or "no evidence"
    lines = [f"claims {record['name']} on {evidence}", ""]
    for answered in record["claims"]:
        lines += [*_block(answered), ""]
    counts = ", ".join(f"{count} {answer.lower()}" for answer, count in record["counts"].items())
    # A directory may have any name.
    return "\n".join([*map(printable, lines), counts])


def metrics_text() -> str:
    """Return one line per metric: what it measures, of what, in which units, with what."""
    lines = []
    for metric in METRICS.values():
        takes = f" (takes {', '.join(metric.takes)})" if metric.takes else ""
        units = f", in {metric.units}" if metric.units else ""
        lines.append(f"{metric.name:<28} {'/'.join(metric.kinds)}: {metric.summary}{units}{takes}")
    return "\n".join(lines)


def _block(answered: Mapping[str, Any]) -> Iterator[str]:
    # What was never run is told apart from what was run and is too little.
    not_run = " (NOT_RUN)" if answered["code"] in ("not_run", "not_measured") else ""
    yield f"{answered['answer'] + not_run:<22} {answered['id']}"
    yield f"    claim     {answered['text']} [{answered['source']}]"
    if answered["expected"]:
        yield f"    expected  {answered['expected']}"
    for line in _figures(answered["figures"]):
        yield f"    found     {line}"
    if answered["answer"] == "UNSUPPORTED":
        yield f"    because   {answered['reason']}"
        yield f"    needed    {answered['needed']}"
    if answered["note"]:
        yield f"    note      {answered['note']}"


def _figures(figures: Sequence[Figure]) -> Iterator[str]:
    """One line for neighbouring figures that say the same of other widths."""
    start = 0
    for end in range(1, len(figures) + 1):
        if end < len(figures) and _same(figures[start], figures[end]):
            continue
        first, where = figures[start], [figure["where"] for figure in figures[start:end]]
        if len(where) > 1:
            where = ["width " + ", ".join(one.removeprefix("width ") for one in where)]
        note = f" ({first['note']})" if first["note"] else ""
        mark = "" if first["holds"] is not False else "  <- against"
        yield f"{first['evidence']}, {where[0]}: {_value(first['value'])}{note}{mark}"
        start = end


def _same(a: Figure, b: Figure) -> bool:
    widths = all(one["where"].startswith("width ") for one in (a, b))
    return widths and all(a[key] == b[key] for key in ("evidence", "value", "holds", "note"))


def _value(value: float | int | str | None) -> str:
    if value is None:
        return "not measured"
    if isinstance(value, float):
        return f"{value:.3e}" if 0 < abs(value) < 0.01 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else value
