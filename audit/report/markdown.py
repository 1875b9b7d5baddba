"""The report that is pasted into a pull request."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import jinja2

from ...banks.errors import printable
from ..record import AuditRecord
from .explanations import explanation_table
from .figures import (
    bank_table,
    certificate_text,
    claims_table,
    class_line,
    differences,
    not_run,
    schedule_line,
    set_table,
    triangle_table,
    weight_table,
    worst_certificates,
)
from .mechanism import mechanism
from .near_ties import audit_gate_lines, audit_gate_table

MAX_CHARACTERS: Final = 65_536
"""GitHub refuses a comment with more."""

_CERTIFICATES_SHOWN: Final = 5
_TABLES: Final = (
    set_table, triangle_table, weight_table, bank_table, audit_gate_table, explanation_table,
    claims_table,
)  # fmt: skip


@dataclass(frozen=True)
class Cut:
    """How much a report may hold: lines of each list or table, and characters of each text."""

    lines: int
    characters: int

    def shown(self, items: Sequence[Any]) -> Sequence[Any]:
        """The first items."""
        return items[: self.lines]

    def left_out(self, items: Sequence[Any]) -> str:
        """What is said of the others; nothing if there are none."""
        more = len(items) - self.lines
        return f"{more:,} more of {len(items):,} lines are in report.html" if more > 0 else ""


_CUTS: Final = (
    Cut(10_000, 20_000), Cut(200, 2_000), Cut(50, 1_000), Cut(20, 500), Cut(5, 300), Cut(2, 200),
)  # fmt: skip


def render_markdown(result: AuditRecord) -> str:
    """Return GitHub Markdown made from the record; no sentence in it is typed by hand.

    It has at most ``MAX_CHARACTERS``; what had to be cut is said where it was cut.
    """
    record = result.record
    tables = [table(record) for table in _TABLES]
    context = {
        "record": record,
        "class_line": class_line(record),
        "mechanism": mechanism(record),
        "tables": tables,
        "certificates": certificate_lines(worst_certificates(result.swaps, _CERTIFICATES_SHOWN)),
        "schedule": schedule_line(record),
        "gate_lines": audit_gate_lines(record),
        "swaps": f"{result.swaps.num_rows:,}",
        "reasons": differences(record),
        "not_run": not_run(record),
    }
    return render_cut("report.md.j2", context)


def certificate_lines(certificates: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return sentence and snippet of each certificate."""
    return [{"text": certificate_text(c), "snippet": c["snippet"]} for c in certificates]


def render_cut(name: str, context: Mapping[str, Any]) -> str:
    """Return a template's text, with as little cut as ``MAX_CHARACTERS`` allows."""
    text = ""
    for cut in _CUTS:
        text = _template(name, cut).render(context)
        if len(text) <= MAX_CHARACTERS:
            return text
    # Thousands of columns or policy fields would be needed; a cut end is better than no comment.
    end = "\n\n(cut here: see report.html)\n"
    return text[: MAX_CHARACTERS - len(end)] + end


@cache
def _template(name: str, cut: Cut) -> jinja2.Template:
    # Markdown, not HTML: texts are escaped by the filters `cell` and `code` instead.
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("neartie.audit", "report"),
        autoescape=False,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )

    def shortened(escape: Callable[[str], str]) -> Callable[[str], str]:
        return lambda text: escape(_shortened(text, cut.characters))

    environment.filters["cell"] = shortened(cell)
    environment.filters["code"] = shortened(code)
    environment.filters["arithmetic"] = arithmetic
    environment.globals.update(shown=cut.shown, left_out=cut.left_out)
    return environment.get_template(name)


def _shortened(text: str, characters: int) -> str:
    if len(text) <= characters:
        return text
    return f"{text[:characters]}... ({len(text) - characters:,} characters cut)"


def cell(text: str) -> str:
    """Escape what would break a table or start markup."""
    escaped = printable(text).replace("\\", "\\\\")
    for character in "|<>`*_[]~$&#":
        escaped = escaped.replace(character, "\\" + character)
    return escaped


def code(text: str) -> str:
    """Return a code span; a fence longer than any run of backticks in the text holds it."""
    text = printable(text)
    runs = [len(run) for run in re.findall(r"`+", text)]
    fence = "`" * (max(runs, default=0) + 1)
    space = " " if runs or text.strip() == "" else ""
    return f"{fence}{space}{text}{space}{fence}"


def arithmetic(declared: Mapping[str, Any]) -> str:
    """Return what a path declares, in one line."""
    words = ("project", "exchange", "score", "weight_sum", "normalise", "slot_order")
    return "; ".join(f"{word.replace('_', ' ')} {declared[word]}" for word in words)
