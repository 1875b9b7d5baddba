"""Tests of growth: published intervals, exact counts, and agreement with brute force."""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import fisher_exact

from neartie.audit.metrics.rate_change import mcnemar_p, rate_change
from neartie.audit.metrics.trend import trend, varies
from neartie.banks.errors import InputError


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # Newcombe 1998, table II, method 10: intervals of first minus second.
        ((56, 70), (48, 80), (0.0524, 0.3339)),
        ((9, 10), (3, 10), (0.1705, 0.8090)),
        ((10, 10), (0, 20), (0.6791, 1.0000)),
        ((10, 10), (0, 10), (0.6075, 1.0000)),
    ],
)
def test_the_interval_of_the_difference_is_newcombes(
    first: tuple[int, int], second: tuple[int, int], expected: tuple[float, float]
) -> None:
    change = rate_change(first, second)
    assert change.difference_bounds is not None
    low, high = change.difference_bounds
    assert (round(-high, 4), round(-low, 4)) == expected


counts = st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(counts, counts)
def test_fishers_p_value_is_scipys_and_exchanging_the_runs_mirrors(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    (x, m), (y, n) = first, second
    change, back = rate_change(first, second), rate_change(second, first)
    expected: Any = fisher_exact([[y, n - y], [x, m - x]], alternative="greater")
    assert change.fisher_p == pytest.approx(expected.pvalue, rel=1e-9)
    assert change.difference == y / n - x / m
    assert change.difference is not None
    assert change.difference_bounds is not None
    assert back.difference_bounds is not None
    mirrored = tuple(-bound for bound in reversed(back.difference_bounds))
    assert change.difference_bounds == pytest.approx(mirrored, abs=1e-12)
    assert change.difference_bounds[0] <= change.difference <= change.difference_bounds[1]


def test_nothing_tried_says_nothing() -> None:
    change = rate_change((0, 0), (5, 10))
    assert (change.difference, change.difference_bounds, change.fisher_p) == (None, None, 1.0)
    with pytest.raises(InputError):
        rate_change((2, 1), (0, 1))


@given(st.integers(0, 40), st.integers(0, 40))
def test_mcnemar_counts_coin_throws(only_first: int, only_second: int) -> None:
    n = only_first + only_second
    exact = Fraction(sum(math.comb(n, k) for k in range(only_second, n + 1)), 2**n)
    assert mcnemar_p(only_first, only_second) == pytest.approx(float(exact), rel=1e-12)


@given(st.lists(st.integers(0, 3), min_size=3, max_size=6))
def test_the_p_value_of_a_trend_counts_orders(values: list[int]) -> None:
    def score(order: tuple[int, ...]) -> int:
        return sum(int(np.sign(b - a)) for a, b in itertools.combinations(order, 2))

    orders = list(itertools.permutations(values))
    at_least = sum(score(order) >= score(tuple(values)) for order in orders)
    found = trend([float(v) for v in values])
    assert found.p_value == pytest.approx(at_least / len(orders), rel=1e-12)
    assert found.method == "exact"
    assert varies(values) == (len(set(values)) > 1)


def test_many_figures_with_ties_take_the_normal_law_and_say_so() -> None:
    found = trend([1, 1, 2, 2, 3, 3, 4, 4])
    assert found.method == "asymptotic"
    assert found.p_value is not None
    assert found.p_value < 0.005


@pytest.mark.parametrize(
    ("values", "rising"),
    [
        ([], 0),
        ([1], 0),
        ([2, 1], 0),
        ([1, 2], 2),
        ([3, 1, 2, 4], 3),
        ([1, 2, 2], 0),
        ([1, 1, 2], 2),
    ],
)
def test_how_long_a_figure_rises(values: list[float], rising: int) -> None:
    assert trend(values).rising_for == rising
    assert (trend(values).p_value is None) == (len(values) < 3)
