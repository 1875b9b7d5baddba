"""``junit.xml``: the checks of an audit or gate as the test results that every CI server shows.

JUnit has four outcomes. A check that PASSes, with limitations or not, is a test that passed; FAIL
is a ``failure``, the condition was tried and does not hold. NOT_RUN is ``skipped``. INCONCLUSIVE is
an ``error``: the check was run and could not come to an answer, which must not look like a pass,
since neartie's exit status is then 3. A verdict of NOT_RUN is an error for the same reason.

Source: the schema that Jenkins' xunit plugin publishes as ``junit-10.xsd``.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import groupby
from typing import Final

from ...banks.errors import printable
from ..gate.record import GateRecord
from ..record import AuditRecord
from ..verdict import State
from .check import Check
from .checks import ALL_WIDTHS, checks

_OUTCOMES: Final = {
    State.FAIL: "failure",
    State.INCONCLUSIVE: "error",
    State.NOT_RUN: "skipped",
}


def render_junit(record: AuditRecord | GateRecord) -> str:
    """Return the document: a suite per width, a test per bank and metric."""
    suites = [
        _suite(_width(width), list(group))
        for width, group in groupby(checks(record), key=lambda check: check.width)
    ]
    kind = "gate" if isinstance(record, GateRecord) else "audit"
    root = ET.Element("testsuites", {"name": f"neartie {kind}"})
    for name in ("tests", "failures", "errors"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in suites)))
    root.extend(suites)
    properties = ET.Element("properties")
    for name in ("command", "numerics_class", "device"):
        entry = {"name": name, "value": printable(str(record.record[name]))}
        ET.SubElement(properties, "property", entry)
    suites[-1].insert(0, properties)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(name: str, found: list[Check]) -> ET.Element:
    suite = ET.Element("testsuite", {"name": name, "tests": str(len(found))})
    outcomes = [_outcome(check) for check in found]
    counted = (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    for attribute, outcome in counted:
        suite.set(attribute, str(outcomes.count(outcome)))
    for check, element_name in zip(found, outcomes, strict=True):
        # A dot would split a bank's name into packages.
        bank = printable(check.bank).replace(".", "\N{ONE DOT LEADER}")
        case = ET.SubElement(
            suite, "testcase", {"classname": f"neartie.{name}.{bank}", "name": check.metric}
        )
        lines = [printable(line) for line in check.text.split("\n")]
        if element_name is None:
            if check.text:
                ET.SubElement(case, "system-out").text = "\n".join(lines)
            continue
        element = ET.SubElement(case, element_name, {"message": lines[0], "type": str(check.state)})
        element.text = "\n".join(lines)
    return suite


def _outcome(check: Check) -> str | None:
    if check.metric == "verdict" and check.state is State.NOT_RUN:
        return "error"
    return _OUTCOMES.get(check.state)


def _width(width: int | None) -> str:
    return ALL_WIDTHS if width is None else f"width {width}"
