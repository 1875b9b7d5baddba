"""Values that reach a limit are found by vectors as by numpy."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from neartie.kernels.fast.reach import WORD, find_sums, find_values

VALUES = [0.0, -0.0, 1e-45, 1.0, np.nextafter(np.float32(1), np.float32(2)), -2.0, 3.4e38]
SPECIAL = [np.inf, -np.inf, np.nan]


def found(function: Any, *arguments: Any) -> list[int]:
    """The places that a search writes, from memory filled with a value that is none."""
    room = np.full(len(arguments[0]) + 1, 0xFFFFFFFF, np.uint32)
    count = function(*arguments, room)
    return [int(place) for place in room[:count]]


def drawn(rng: np.random.Generator, size: int, share: float) -> npt.NDArray[np.float32]:
    """Values of which ``share`` are taken from the lists above."""
    values = rng.standard_normal(size).astype(np.float32)
    picked = rng.random(size) < share
    values[picked] = rng.choice(np.array(VALUES + SPECIAL, np.float32), int(picked.sum()))
    return values


@settings(max_examples=120)
@given(
    size=st.integers(1, 4 * WORD + 3),
    limit=st.one_of(st.sampled_from(VALUES + SPECIAL), st.floats(-2, 3, width=32)),
    share=st.sampled_from([0.0, 0.2, 1.0]),
    seed=st.integers(0, 2**31),
)
@example(size=896, limit=-np.inf, share=0.0, seed=0)
def test_vectors_find_what_numpy_finds(size: int, limit: float, share: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    left, right = drawn(rng, size, share), drawn(rng, size, share) / np.float32(8)
    with np.errstate(all="ignore"):
        sums = left + right
    bound = np.float32(limit)
    assert found(find_values, left, bound) == np.flatnonzero(left >= bound).tolist()
    assert found(find_sums, left, right, bound) == np.flatnonzero(sums >= bound).tolist()


@pytest.mark.parametrize("offset", [0, 1, 3])
def test_a_row_may_begin_anywhere(offset: int) -> None:
    """Rows of a matrix are aligned as one float is."""
    matrix = np.random.default_rng(offset).standard_normal((5, 130 + offset)).astype(np.float32)
    for row in matrix:
        values = row[offset:]
        expected = np.flatnonzero(values >= 1).tolist()
        assert found(find_values, values, np.float32(1)) == expected
