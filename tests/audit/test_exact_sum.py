"""Exact sums: what fsum gives, whatever the parts."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neartie.audit.metrics.exact_sum import ExactSum

VALUES = st.lists(
    st.floats(allow_nan=False, allow_infinity=False, width=64, max_value=1e300, min_value=-1e300),
    max_size=40,
)


@given(VALUES, st.lists(st.integers(0, 40), max_size=5))
def test_any_parts_give_the_bits_of_fsum(values: list[float], cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    total = ExactSum()
    for start, stop in reversed(list(itertools.pairwise(places))):
        part = ExactSum()
        part.add(np.array(values[start:stop], np.float64))
        total.merge(part)
    assert total.value() == math.fsum(values)


def test_small_and_large_values_of_both_signs() -> None:
    values = [5e-324, -5e-324, 2.0**-1022, 1e300, -1e300, 3 * 5e-324, 2.0**-1060 * 3, 1.0, 2.0**-53]
    total = ExactSum()
    total.add(np.array(values))
    assert total.value() == math.fsum(values)
    assert ExactSum().value() == 0.0


def test_what_is_no_number_stays_one() -> None:
    total = ExactSum()
    total.add(np.array([1.0, np.inf]))
    assert total.value() == np.inf
    other = ExactSum()
    other.add(np.array([-np.inf, 2.0]))
    total.merge(other)
    assert np.isnan(total.value())
    huge = ExactSum()
    huge.add(np.array([1.7e308, 1.7e308]))
    with pytest.raises(OverflowError):
        huge.value()
