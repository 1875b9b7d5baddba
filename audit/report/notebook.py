"""How results and certificates show themselves in Jupyter: HTML, all text escaped."""

from __future__ import annotations

import io
from collections.abc import Mapping
from html import escape
from typing import Any

from rich.console import Console

from ..gate.record import GateRecord
from ..record import AuditRecord
from ..score_certificate import ScoreCertificate
from .certificate import print_certificate
from .figures import Table, bank_table, class_line, set_table, triangle_table, weight_table
from .gate import reference_table, swap_text
from .near_ties import audit_gate_lines, audit_gate_table, near_tie_table

_PRE = '<pre style="line-height:1.25;font-size:85%">{code}</pre>'


def render_notebook(result: AuditRecord) -> str:
    """Return HTML: the verdict, the class and the tables; all text is escaped."""
    record = result.record
    head = _head(record, "name")
    tables = (set_table, triangle_table, weight_table, bank_table, audit_gate_table)
    lines = "".join(f"<p>{escape(line)}</p>" for line in audit_gate_lines(record))
    return head + "".join(table_html(table(record)) for table in tables) + lines


def render_notebook_gate(result: GateRecord) -> str:
    """Return HTML: the verdict, the swaps and the tables of a gate."""
    record = result.record
    tables = (set_table, near_tie_table, weight_table, reference_table)
    swaps = f"<p>swaps: {escape(swap_text(record))}</p>"
    return _head(record, "spec") + swaps + "".join(table_html(table(record)) for table in tables)


def render_notebook_certificate(certificate: ScoreCertificate) -> str:
    """Return what ``neartie certify`` prints, for keys without bias."""
    console = Console(record=True, width=150, file=io.StringIO(), highlight=False)
    print_certificate(certificate, 0.0, 0.0, console)
    return console.export_html(inline_styles=True, code_format=_PRE)


def _head(record: Mapping[str, Any], name: str) -> str:
    return (
        f"<p><b>{escape(record['verdict']['state'])}</b> &middot; {escape(class_line(record))} "
        f"&middot; {escape(record['baseline'][name])} against "
        f"{escape(record['candidate'][name])}</p>"
    )


def table_html(table: Table) -> str:
    """Return a table that folds away; nothing where it has no row."""
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
