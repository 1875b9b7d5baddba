"""The tests that a signature names as passed, warned of and failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ...banks.errors import InputError
from ..histograms import HISTOGRAMS_SCHEMA
from ..report.checks import ALL_BANKS, checks_of
from ..verdict import State
from .load import Evidence
from .view import ReasonView, RecordView

RESULTS: Final[Mapping[State, str]] = {
    State.PASS: "PASSED",
    State.PASS_WITH_LIMITATIONS: "WARNED",
    State.FAIL: "FAILED",
    # in-toto knows three results, and a warned test has passed: what was not shown has not.
    State.INCONCLUSIVE: "FAILED",
    State.NOT_RUN: "FAILED",
}
"""in-toto's result of a whole audit; its tests have one too, but for those that were not run."""


@dataclass(frozen=True, slots=True)
class SignedTests:
    """Names of tests by their result; what was not run is in none."""

    passed: tuple[str, ...]
    warned: tuple[str, ...]
    failed: tuple[str, ...]


def signed_tests(evidence: Evidence, view: RecordView) -> SignedTests:
    """Return the tests of a record, from the checks that ``junit.xml`` shows.

    A (bank, width) is one test, with the gravest state of its checks and of the reasons about it;
    the set rate of a width is one, and the fit of the schedule. The verdict's reasons are tests by
    their codes: what no other test shows is there.

    Raises:
        InputError: ``histograms.parquet`` is missing or has other columns.
    """
    counts = evidence.tables.get("histograms")
    if counts is None or not counts.schema.equals(HISTOGRAMS_SCHEMA):
        got = "missing" if counts is None else "other columns"
        raise InputError("histograms.parquet", got, "a table of this version", evidence.name)
    record = view.model_dump(mode="json")
    found: dict[str, State] = {}
    order = list(State)
    for name, state in (*_of_checks(record, counts), *_of_reasons(view)):
        if state is not State.NOT_RUN:
            found[name] = min(found.get(name, state), state, key=order.index)
    return _by_result(found)


def first_form_tests(view: RecordView) -> SignedTests:
    """Return the tests of a statement of form 1: as passed, every (bank, width) that was run."""
    ran = [f"{c.bank} at width {c.width}" for c in view.coverage if c.ran]
    certified = [f"set_rate at width {w.width}" for w in view.widths if w.certified]
    failed = {r.code for r in view.verdict.reasons if RESULTS[r.state] == "FAILED"}
    warned = {r.code for r in view.verdict.reasons} - failed
    return SignedTests((*ran, *certified), tuple(sorted(warned)), tuple(sorted(failed)))


def _of_checks(record: Mapping[str, Any], counts: pa.Table) -> Iterator[tuple[str, State]]:
    for check in checks_of(record, counts):
        if check.bank != ALL_BANKS:
            yield f"{check.bank} at width {check.width}", check.state
        # The verdict is the result of the whole; its reasons follow.
        elif check.metric != "verdict":
            yield _at(check.metric, check.width), check.state


def _of_reasons(view: RecordView) -> Iterator[tuple[str, State]]:
    for reason in view.verdict.reasons:
        yield _at(reason.code, reason.width), reason.state
        for item in view.coverage:
            if item.ran and _is_about(reason, item.bank, item.width):
                yield f"{item.bank} at width {item.width}", reason.state


def _is_about(reason: ReasonView, bank: str, width: int) -> bool:
    """Whether a reason names this bank; one about all banks may not be about each."""
    return reason.bank == bank and reason.width in (None, width)


def _at(name: str, width: int | None) -> str:
    return name if width is None else f"{name} at width {width}"


def _by_result(found: Mapping[str, State]) -> SignedTests:
    def of(result: str) -> tuple[str, ...]:
        return tuple(name for name, state in found.items() if RESULTS[state] == result)

    return SignedTests(of("PASSED"), of("WARNED"), of("FAILED"))
