"""The line of all FP32 values, and what a form's scores along it pin down."""

import hashlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neartie.kernels.exhaustive.float_line import (
    MINUS_INFINITY,
    PLACES,
    PLUS_INFINITY,
    RANGES,
    bits_at,
    place_of_bits,
    stretches,
    value_at,
)
from neartie.kernels.exhaustive.scan import FINITE_PLACES, blocks
from neartie.kernels.scores import FORM_VERSIONS, score


@given(st.integers(0, PLACES - 2))
def test_the_line_is_in_order_of_value(place: int) -> None:
    assert place_of_bits(bits_at(place)) == place
    low, high = value_at(place), value_at(place + 1)
    assert np.isnan(low) or np.isnan(high) or low < high or low == high == 0.0


def test_stretches_hold_each_finite_input_once() -> None:
    parts = sorted(stretches(), key=lambda part: part.start)
    assert parts[0].start == MINUS_INFINITY + 1
    assert parts[-1].stop == PLUS_INFINITY
    assert all(one.stop == other.start for one, other in pairwise(parts))
    for part in parts:
        ends = [abs(float(value_at(p))) for p in (part.start, part.stop - 1)]
        names = list(RANGES)
        assert max(ends) == RANGES[part.ring][0]
        if part.ring != names[0]:
            assert min(ends) > RANGES[names[names.index(part.ring) - 1]][0]
    cut = blocks(1 << 28)
    assert sum(block.stop - block.start for block in cut) == FINITE_PLACES
    assert cut == sorted(cut, key=lambda block: block.start)


PINNED = {
    "exp": (1, "6c1ec7a8329904d3"),
    "tanh": (1, "8d4559238e584a94"),
    "sigmoid": (1, "66a554ea06eb4260"),
    "sqrtsoftplus": (1, "ec2d1384237ffaa2"),
    "identity": (1, "1f6a8adde711a60e"),
}


@pytest.mark.parametrize("form", PINNED)
def test_a_form_whose_bits_change_needs_a_new_version(form: str) -> None:
    """Certificates are kept under form and version: new bits under an old version would lie."""
    line = np.arange(MINUS_INFINITY, PLUS_INFINITY + 1, 65521, dtype=np.int64)
    dense = np.linspace(-110, 110, 1 << 16, dtype=np.float32)
    x = np.concatenate([np.array([value_at(int(p)) for p in line], np.float32), dense])
    digest = hashlib.sha256(score(form, x[None]).tobytes()).hexdigest()[:16]
    assert (FORM_VERSIONS[form], digest) == PINNED[form]
