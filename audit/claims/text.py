"""Answers as text: one block per claim, with the figures behind it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ...banks.errors import printable
from .metrics import METRICS

Figure = Mapping[str, Any]


def claims_text(
    record: Mapping[str, Any], *, only: Collection[str] = (), short: bool = False
) -> str:
    """Return the answers as they are printed, from ``ClaimsResult.as_dict()``.

    Args:
        record: all answers.
        only: which are shown, by their names; all where empty. They are counted whatever is shown.
        short: one line a claim, without its figures.
    """
    evidence = ", ".join(record["evidence"]) or "no evidence"
    counts = ", ".join(f"{count} {answer.lower()}" for answer, count in record["counts"].items())
    lines = [f"claims {record['name']} on {evidence}: {counts}", ""]
    shown = [one for one in record["claims"] if not only or one["answer"] in only]
    if short:
        widest = max((len(one["id"]) for one in shown), default=0)
        lines += [f"{_answer(one)} {one['id']:<{widest}}  {one['reason']}" for one in shown]
        return _joined(lines)
    for answered in shown:
        lines += [*_block(answered), ""]
    return _joined(lines)


def _joined(lines: Sequence[str]) -> str:
    """Lines as one text; a directory that is named in them may have any name."""
    return "\n".join(map(printable, lines)).rstrip()


def metrics_text() -> str:
    """Return one line per metric: what it measures, of what, in which units, with what."""
    lines = []
    for metric in METRICS.values():
        takes = f" (takes {', '.join(metric.takes)})" if metric.takes else ""
        units = f", in {metric.units}" if metric.units else ""
        lines.append(f"{metric.name:<28} {'/'.join(metric.kinds)}: {metric.summary}{units}{takes}")
    return "\n".join(lines)


def _answer(answered: Mapping[str, Any]) -> str:
    # What was never run is told apart from what was run and is too little.
    not_run = " (NOT_RUN)" if answered["code"] in ("not_run", "not_measured") else ""
    return f"{answered['answer'] + not_run:<22}"


def _block(answered: Mapping[str, Any]) -> Iterator[str]:
    yield f"{_answer(answered)} {answered['id']}"
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
