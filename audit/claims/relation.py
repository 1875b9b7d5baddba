"""Whether a figure stands to a claimed number as the claim says."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from scipy.stats import fisher_exact

from .measure import Measure
from .model import Claim

ALPHA: Final = 0.05
"""Of the exact test behind ``count``: the level of every bound in neartie's default policy."""

_ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "==": operator.eq,
}


def tolerance_of(claim: Claim) -> tuple[Decimal, str]:
    """Return how far a figure may be from a number ``within``, and what the distance means."""
    number = Decimal(str(claim.number))
    given = claim.tolerance
    if given is None:
        exponent = number.as_tuple().exponent
        assert isinstance(exponent, int)
        if isinstance(claim.number, int):
            return Decimal(0), "a whole number, exactly"
        return Decimal(5).scaleb(exponent - 1), "half a unit of the last digit quoted"
    if given.relative is not None:
        share = Decimal(given.relative)
        return abs(number) * share, f"{float(100 * share):.3g}%: {given.meaning}"
    return Decimal(str(given.absolute)), given.meaning


def holds(claim: Claim, measure: Measure) -> tuple[bool | None, str]:
    """Return whether a figure is as claimed, and what the test says; None decides nothing.

    A ``count`` is held against other rows by Fisher's exact test on independent rows: the same
    count out of the same number of rows is the claim itself, a share that differs (p below
    ``ALPHA``) refutes it, and anything between neither supports nor refutes.
    """
    value, number = measure.value, claim.number
    if value is None:
        return None, measure.note
    if claim.relation == "is":
        return value == number, ""
    if isinstance(value, str):
        return False, "a word, where a number is claimed"
    assert number is not None
    assert not isinstance(number, str)
    if claim.relation == "count":
        return _count(claim, int(value), measure.trials or 0)
    figure = Decimal(value)
    if claim.relation == "within":
        return abs(figure - Decimal(number)) <= tolerance_of(claim)[0], ""
    return _ORDER[str(claim.relation)](figure, Decimal(number)), ""


def _count(claim: Claim, events: int, trials: int) -> tuple[bool | None, str]:
    assert isinstance(claim.number, int)
    assert claim.of_rows is not None
    if (events, trials) == (claim.number, claim.of_rows):
        return True, ""
    if not trials:
        return None, "no independent row"
    table = [[claim.number, claim.of_rows - claim.number], [events, trials - events]]
    test: Any = fisher_exact(table)
    p_value = float(test.pvalue)
    if p_value < ALPHA:
        return False, f"the shares differ: Fisher's exact p = {p_value:.1e}"
    return None, f"not told apart, nor reproduced: Fisher's exact p = {p_value:.2g}"


def expected_text(claim: Claim, units: str) -> str:
    """Return what the figure should be, with the tolerance and its meaning."""
    unit = f" {units}" if units else ""
    if claim.relation == "within":
        size, meaning = tolerance_of(claim)
        return f"{_quoted(claim.number)}{unit} +- {float(size):.2g} ({meaning})"
    if claim.relation == "count":
        return f"{claim.number} out of {claim.of_rows:,} independent rows"
    return f"{claim.relation} {_quoted(claim.number)}{unit}"


def _quoted(number: int | Decimal | str | None) -> str:
    """A number with the digits that the source quotes."""
    if isinstance(number, Decimal) and number and number.adjusted() < -2:
        return f"{number:.{len(number.as_tuple().digits) - 1}e}"
    return f"{number:,}" if isinstance(number, int) else str(number)
