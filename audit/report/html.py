"""The report as one HTML file: no network, no framework, the same bytes for the same record.

Charts are drawn to SVG when the file is written, with CSS variables for colours, so that one
drawing serves light and dark. Vega in the page would add 0.9 MB of JavaScript and compile its
expressions with ``eval``, which the page's content security policy forbids.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from importlib.resources import files
from typing import Any, Final

import altair as alt
import jinja2
import vl_convert
from altair.utils.schemapi import debug_mode
from markupsafe import Markup

from ...banks.errors import printable
from .. import charts
from ..gate.record import GateRecord
from ..record import AuditRecord
from .figures import worst_certificates
from .page import Figure, Page, audit_page, gate_page

MAX_CERTIFICATES: Final = 2000
"""Certificates in the page; more would make it slow, and swaps.parquet holds all."""

_NUMBER: Final = re.compile(r"[-+]?[\d,.]+(e[-+]\d+)?%?( \+- \S+| \([\d,]+\))?|-")
# One drawing for both themes: the page's style sheet gives the variables their values.
_CSS: Final = charts.Theme(*(f"var(--{field.name})" for field in fields(charts.Theme)))


def render_html(record: AuditRecord) -> str:
    """Return the report of an audit as one HTML document."""
    return _render(audit_page(record))


def render_gate_html(result: GateRecord) -> str:
    """Return the report of a gate as one HTML document."""
    return _render(gate_page(result))


def _render(page: Page) -> str:
    style, script = _theme_css() + _asset("report.css"), _asset("report.js")
    certificates = worst_certificates(page.swaps, MAX_CERTIFICATES)
    drawn = [(figure, _svg(figure, page.record)) for figure in page.figures]
    return _template().render(
        page=page,
        record=page.record,
        style=Markup(style),
        script=Markup(script),
        policy=f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'",
        figures=[(figure, svg) for figure, svg in drawn if svg],
        absent=[figure.absent for figure, svg in drawn if not svg and figure.absent],
        tables=[(table, _numeric(table.rows)) for table in page.tables if table.rows],
        data=Markup(_script_json(_columns(certificates))),
        shown=len(certificates),
        total=page.swaps.num_rows,
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("neartie.audit", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # Control and direction characters of a name would hide what stands there.
        finalize=_shown,
    )
    environment.filters["words"] = _words
    return environment.get_template("report.html.j2")


def _shown(value: Any) -> Any:
    return printable(value) if type(value) is str else value


def _words(name: str) -> str:
    return name.replace("_", " ")


def _asset(name: str) -> str:
    return (files("neartie.audit.report") / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """The text as a source of a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _theme_css() -> str:
    """The charts' colours as CSS variables, light and dark, for the switch and the system."""

    def variables(theme: charts.Theme) -> str:
        return "".join(f"--{f.name}:{getattr(theme, f.name)};" for f in fields(theme))

    dark = variables(charts.DARK) + "color-scheme:dark;"
    return (
        f":root{{{variables(charts.LIGHT)}color-scheme:light;}}\n"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}\n"
        f":root[data-theme=dark]{{{dark}}}\n"
    )


def _svg(figure: Figure, record: Mapping[str, Any]) -> Markup | None:
    """A chart as SVG that grows with the page and says what it is; None if there is none."""
    # altair holds each part of a chart against Vega-Lite's schema as it is made, which takes half
    # of the time of a report. Our charts are held against it by tests.
    with debug_mode(False):
        chart = figure.draw(record, _CSS)
        if chart is None:
            return None
        specification = chart.to_dict(validate=False)
    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    svg = vl_convert.vegalite_to_svg(specification, vl_version=version)
    label = Markup.escape(f"{figure.title}. {figure.caption}")
    head = f'<svg role="img" aria-label="{label}" '
    return Markup(svg.replace("<svg ", head, 1))


def _numeric(rows: Sequence[Sequence[str]]) -> list[bool]:
    """Which columns hold figures alone, and are set to the right; the first names the row."""
    _, *others = zip(*rows, strict=True)
    return [False, *(all(_NUMBER.fullmatch(cell) for cell in column) for column in others)]


def _columns(certificates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The certificates as names and rows: names are not repeated in each row."""
    names = list(certificates[0]) if certificates else []
    return {"columns": names, "rows": [[_plain(c[name]) for name in names] for c in certificates]}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return _shown(value)


def _script_json(data: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
