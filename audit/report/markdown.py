"""The report that is pasted into a pull request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jinja2

from ..record import AuditRecord
from .figures import (
    bank_table,
    certificate_text,
    class_line,
    schedule_line,
    set_table,
    triangle_table,
    weight_table,
    worst_certificates,
)
from .near_ties import audit_gate_lines, audit_gate_table

_CERTIFICATES_SHOWN = 5


def template(name: str) -> jinja2.Template:
    """Return a Markdown template of this folder."""
    # Markdown, not HTML: cells are escaped by the `cell` filter instead.
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("neartie.audit", "report"),
        autoescape=False,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters["cell"] = cell
    environment.filters["arithmetic"] = arithmetic
    return environment.get_template(name)


def render_markdown(result: AuditRecord) -> str:
    """Return GitHub Markdown made from the record; no sentence in it is typed by hand."""
    record = result.record
    shown = (set_table, triangle_table, weight_table, bank_table, audit_gate_table)
    tables = [table(record) for table in shown]
    certificates = [
        {"text": certificate_text(c), "snippet": c["snippet"]}
        for c in worst_certificates(result, _CERTIFICATES_SHOWN)
    ]
    not_run = [
        f"{item['bank']} at width {item['width']} ({item['reason']})"
        for item in record["coverage"]
        if not item["ran"]
    ]
    return template("report.md.j2").render(
        record=record,
        class_line=class_line(record),
        tables=tables,
        certificates=certificates,
        schedule=schedule_line(record),
        gate_lines=audit_gate_lines(record),
        swaps=f"{result.swaps.num_rows:,}",
        not_run=not_run,
    )


def cell(text: str) -> str:
    """Escape what would break a table or start markup."""
    escaped = text.replace("\\", "\\\\").replace("\n", " ").replace("\r", " ")
    for character in "|<>`*_[]":
        escaped = escaped.replace(character, "\\" + character)
    return escaped


def arithmetic(declared: Mapping[str, Any]) -> str:
    """Return what a path declares, in one line."""
    words = ("project", "exchange", "score", "weight_sum", "normalise", "slot_order")
    return "; ".join(f"{word.replace('_', ' ')} {declared[word]}" for word in words)
