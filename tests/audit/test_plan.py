"""Rows to rates and back, and figures that are out of range."""

from typing import Any

import pytest

from neartie.audit.plan import plan_rows
from neartie.banks.errors import InputError


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({"rows": 2**52 + 1}, "rows=4503599627370497, but should be 1..4503599627370496 [plan]"),
        ({"rows": 0}, "rows=0, but should be 1..4503599627370496 [plan]"),
        ({"rows": 3, "events": 4}, "events=4, but should be 0..3 [plan]"),
        ({"rate": 0.1, "events": -1}, "events=-1, but should be 0..4503599627370496 [plan]"),
        ({"rate": 0.1, "events": 10**30}, f"events={10**30}, but should be 0.."),
        ({"rate": 1e-300}, "rate=1e-300, but should be a rate within 4503599627370496 rows"),
        ({"rate": 0.1, "layers": -1}, "layers=-1, but should be at least 0 [plan]"),
        ({"rate": 0.1, "widths": 10**18}, "confidence=0.95, but should be a smaller one"),
        ({"rate": 0.1, "rows": 3}, "--rate and --rows=both"),
    ],
)
def test_figures_out_of_range(figures: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        plan_rows(**figures)
    assert str(error.value).startswith(message)


def test_the_largest_plan_and_the_smallest() -> None:
    assert 0 < plan_rows(rows=2**52).rate < 1e-15
    only = plan_rows(rows=1, events=1)
    assert (only.rate, only.allowed, only.tokens_touched) == (1.0, 1, 1.0)
