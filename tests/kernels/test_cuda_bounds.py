"""The gap beyond which a screen decides: simulated on keys that err as much as they may."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neartie.kernels.cuda.bounds import ScreenConstants, float_constants, packed_constants

MAKERS = (float_constants, packed_constants)


def screen_keys(scores: Any, constants: ScreenConstants, packed: bool) -> Any:
    """The screen's keys as the kernels compute them; 48 bits of product fit FP64's sum here."""
    if not packed:
        return (scores + constants.shifts).astype(np.float64)
    y = scores.astype(np.float64) * constants.stretch + constants.shifts.astype(np.float64)
    bits = y.astype(np.float32).view(np.uint32)
    assert np.all(bits >> 23 == 127)
    return ((bits & 0x7FFFFF) >> 1).astype(np.float64)


@pytest.mark.parametrize("packed", [False, True])
@given(
    seed=st.integers(0, 2**32 - 1),
    spread=st.sampled_from([0.0, 1e-6, 0.02, 1.0, 40.0]),
    bound_ulp=st.integers(0, 6),
)
def test_a_larger_gap_orders_the_real_keys(
    packed: Any, seed: int, spread: Any, bound_ulp: int
) -> None:
    rng = np.random.default_rng(seed)
    bound = bound_ulp * 2.0**-24
    bias = (spread * rng.standard_normal(64)).astype(np.float32)
    constants = MAKERS[packed](bias, bound)
    # Scores whose keys crowd around one value, so that gaps near the limit occur.
    centre = np.float32(bias.max() + 0.5)
    step = 0.5 * constants.gap / (2.0**22 * constants.stretch if packed else 1.0)
    exact = np.clip(centre - bias + step * rng.integers(-4, 5, 64), 0.0, 1.0).astype(np.float32)
    screen = np.clip(exact + rng.choice([-bound, 0.0, bound], 64), 0.0, 1.0).astype(np.float32)
    screen = np.where(np.abs(screen.astype(np.float64) - exact) <= bound, screen, exact)
    seen = screen_keys(screen, constants, packed)
    keys = exact + bias
    # [expert, expert]: the first is far enough above the second
    above = seen[:, None] - seen[None, :] > constants.gap
    assert np.all((keys[:, None] > keys[None, :])[above])


@given(
    seed=st.integers(0, 2**32 - 1),
    spread=st.sampled_from([0.0, 0.02, 1.0, 40.0]),
    bound_ulp=st.integers(0, 6),
    margin_ulp=st.integers(0, 1024),
)
def test_a_larger_gap_proves_a_margin(
    seed: int, spread: Any, bound_ulp: int, margin_ulp: int
) -> None:
    rng = np.random.default_rng(seed)
    bound, margin = bound_ulp * 2.0**-24, margin_ulp * 2.0**-24
    bias = (spread * rng.standard_normal(64)).astype(np.float32)
    constants = packed_constants(bias, bound, margin)
    centre = np.float32(bias.max() + 0.5)
    step = 0.25 * constants.gap / (2.0**22 * constants.stretch)
    exact = np.clip(centre - bias + step * rng.integers(-6, 7, 64), 0.0, 1.0).astype(np.float32)
    screen = np.clip(exact + rng.choice([-bound, 0.0, bound], 64), 0.0, 1.0).astype(np.float32)
    screen = np.where(np.abs(screen.astype(np.float64) - exact) <= bound, screen, exact)
    seen = screen_keys(screen, constants, packed=True)
    keys = (exact + bias).astype(np.float64)
    above = seen[:, None] - seen[None, :] > constants.gap
    assert np.all((keys[:, None] - keys[None, :] > margin)[above])


def test_a_margin_needs_its_own_gap() -> None:
    """The planted fault: the gap of margin 0 decides keys that are nearer than the margin."""
    bias, margin = np.zeros(2, np.float32), 2.0**-14
    scores = np.array([0.5, 0.5 + 2.0**-15], np.float32)
    plain, wide = packed_constants(bias, 0.0), packed_constants(bias, 0.0, margin)
    seen = screen_keys(scores, plain, packed=True)
    assert plain.gap < seen[1] - seen[0] < wide.gap


def test_a_gap_of_the_bound_alone_would_not_do() -> None:
    """The planted fault: without the roundings two equal keys are called decided."""
    bias = np.array([2.0**-25, 0.0], np.float32)
    scores = np.array([0.5, 0.5], np.float32)
    constants = packed_constants(bias, 0.0)._replace(gap=0)
    seen = screen_keys(scores + np.array([0.0, 2.0**-24], np.float32), constants, packed=True)
    assert packed_constants(bias, 0.0).gap > abs(seen[0] - seen[1])


def test_keys_fill_the_binade_and_stay_in_it() -> None:
    bias = np.linspace(-3.0, 5.0, 896, dtype=np.float32)
    constants = packed_constants(bias, 1e-3)
    for score in (0.0, 1.0):
        y = np.float64(score) * constants.stretch + constants.shifts.astype(np.float64)
        assert np.all((y >= 1.0) & (y < 2.0))
    assert y.max() > 1.98
