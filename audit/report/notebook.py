"""How a result shows itself in Jupyter."""

from __future__ import annotations

from html import escape

from ..record import AuditRecord
from .figures import Table, bank_table, class_line, set_table, triangle_table, weight_table
from .near_ties import audit_gate_lines, audit_gate_table


def render_notebook(result: AuditRecord) -> str:
    """Return HTML: the verdict, the class and the tables; all text is escaped."""
    record = result.record
    head = (
        f"<p><b>{escape(record['verdict']['state'])}</b> &middot; {escape(class_line(record))} "
        f"&middot; {escape(record['baseline']['name'])} against "
        f"{escape(record['candidate']['name'])}</p>"
    )
    tables = (set_table, triangle_table, weight_table, bank_table, audit_gate_table)
    lines = "".join(f"<p>{escape(line)}</p>" for line in audit_gate_lines(record))
    return head + "".join(_html(table(record)) for table in tables) + lines


def _html(table: Table) -> str:
    if not table.rows:
        return ""
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return (
        f"<details open><summary>{escape(table.title)}</summary>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></details>"
    )
