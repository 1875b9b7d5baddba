"""Whether a figure grows over successive audits: the Mann-Kendall test, on the side of growth.

Sources: H. B. Mann, "Nonparametric tests against trend", Econometrica 13, 1945; M. G. Kendall,
"Rank Correlation Methods", 1948: the test is Kendall's tau between the figures and their order.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.stats import kendalltau

_EXACT_WITH_TIES: Final = 7
"""Up to here all orders are counted (7! = 5,040); with ties above, the normal law stands in."""


@dataclass(frozen=True, slots=True)
class Trend:
    """Growth of a figure over audits in order.

    Attributes:
        p_value: chance of an order at least as rising, if every order of the figures is as likely;
            None below three figures.
        method: how it was computed; ``none`` with no p-value.
        rising_for: at the end, how many figures in a row each exceed the one before (0 or >= 2).
    """

    p_value: float | None
    method: str
    rising_for: int


def trend(values: Sequence[float]) -> Trend:
    """Return whether figures, oldest first, grow.

    Example:
        >>> trend([1.0, 2.0, 3.0, 4.0])
        Trend(p_value=0.0416..., method='exact', rising_for=4)
        >>> trend([1.0, 1.0, 1.0]).p_value
        1.0
    """
    rising = _rising_for(values)
    if len(values) < 3:
        return Trend(None, "none", rising)
    distinct = len(set(values))
    if distinct == 1:
        return Trend(1.0, "exact", rising)
    if distinct < len(values) <= _EXACT_WITH_TIES:
        return Trend(_counted(values), "exact", rising)
    # scipy counts orders where no two figures are equal and n is small, else takes the normal law.
    method = "exact" if distinct == len(values) and len(values) <= 33 else "asymptotic"
    order = range(len(values))
    found: Any = kendalltau(order, values, method=method, alternative="greater")
    return Trend(float(found.pvalue), method, rising)


def varies(values: Sequence[float]) -> bool:
    """Return whether some order of the figures would rise: three at least, not all equal."""
    return len(values) >= 3 and len(set(values)) > 1


def _counted(values: Sequence[float]) -> float:
    """Share of all orders whose Kendall score is at least the one that was seen."""
    ranks = np.searchsorted(np.unique(values), values)
    orders = np.array(list(itertools.permutations(ranks.tolist())), dtype=np.int64)
    scores = np.zeros(len(orders), dtype=np.int64)
    for i, j in itertools.combinations(range(len(values)), 2):
        scores += np.sign(orders[:, j] - orders[:, i])
    # The first permutation is the order as it was seen.
    return float(np.mean(scores >= scores[0]))


def _rising_for(values: Sequence[float]) -> int:
    count = 1
    while count < len(values) and values[-count - 1] < values[-count]:
        count += 1
    return count if count > 1 else 0
