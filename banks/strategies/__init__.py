"""Hypothesis strategies of router rows, rank partials, edge values and small banks.

They shrink to the smallest witness: few experts, one row, zero biases, the lowest slot. Needs the
extra ``test`` (hypothesis); nothing else of neartie imports this package.
"""

from __future__ import annotations

try:
    import hypothesis as _hypothesis
except ModuleNotFoundError as error:
    if error.name != "hypothesis":
        raise
    raise ModuleNotFoundError(
        "neartie.banks.strategies needs hypothesis: pip install '.[test]' in a clone of neartie",
        name="hypothesis",
    ) from None

from .edges import edge_rows, named_biases, named_logits
from .partials import SumOrder, order_partials
from .rows import near_ties, tie_groups
from .small_banks import small_banks

del _hypothesis

__all__ = [
    "SumOrder",
    "edge_rows",
    "named_biases",
    "named_logits",
    "near_ties",
    "order_partials",
    "small_banks",
    "tie_groups",
]
