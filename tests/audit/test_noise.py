"""Noise: sigma of a row, which swaps it explains, and a few swaps that it does not."""

from typing import Any

import numpy as np
import pytest

from neartie.audit.metrics.margins import MarginTally, predict, predicted_interval
from neartie.audit.metrics.noise import (
    NEAR,
    RowNoise,
    judge_swaps,
    near_boundary,
    reach,
    row_noise,
    separate,
)
from neartie.audit.metrics.swaps import SET_CODE, SetClass
from neartie.banks.errors import InputError

ROWS = 200_000
QUIET = RowNoise(np.zeros(3))


def simulated(seed: int) -> tuple[Any, Any, Any]:
    """Margins, sigmas and swaps of rows that only noise moves."""
    rng = np.random.default_rng(seed)
    margin = rng.exponential(1e-3, ROWS)
    sigma = rng.lognormal(-12.0, 0.5, ROWS)
    return margin, sigma, rng.standard_normal(ROWS) * sigma > margin


def test_sigma_is_that_of_a_difference_and_forgets_what_moves_all() -> None:
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((4, 50, 600)) * np.linspace(1e-6, 5e-6, 50)[None, :, None]
    found = row_noise(noise)
    assert found.degrees == 4 * 599
    # A standard error of 1 / sqrt(2 * 2396) = 1.4%; five of them.
    assert np.allclose(found.sigma, np.sqrt(2) * np.linspace(1e-6, 5e-6, 50), rtol=0.072, atol=0)
    shifted = row_noise(noise + rng.standard_normal((4, 50, 1)))
    assert np.allclose(shifted.sigma, found.sigma, rtol=1e-6, atol=0)
    assert row_noise(np.zeros((1, 2, 3))).sigma.tolist() == [0.0, 0.0]
    odd = noise[:, :2].copy()
    odd[0, 0, 7] = np.nan
    assert np.isnan(row_noise(odd).sigma).tolist() == [True, False]


def test_noise_is_measured_where_it_swaps() -> None:
    rng = np.random.default_rng(4)
    keys = np.sort(rng.random((30, 200)), axis=1)[:, ::-1].copy()
    keys[0, 5] = np.nan
    near = near_boundary(keys, 12)
    assert near.shape == (30, 2 * NEAR)
    assert near[1].tolist() == list(range(12 - NEAR, 12 + NEAR))
    assert 5 not in near[0]
    assert near_boundary(keys, 2).shape == (30, 2 + NEAR)
    # Experts far from the boundary are a hundred times as loud.
    size = np.where(np.arange(200) < 12 + NEAR, 1e-6, 1e-4)
    noise = rng.standard_normal((20, 30, 200)) * size
    found = row_noise(noise, near_boundary(np.broadcast_to(keys[1], keys.shape), 12))
    assert found.degrees == 20 * (2 * NEAR - 1)
    assert found.sigma.max() < 2e-6 < row_noise(noise).sigma.min()


def test_a_sigma_that_was_measured_may_be_too_small() -> None:
    # 13 degrees of freedom: by the normal law, noise alone would be called a surplus.
    rng = np.random.default_rng(6)
    margin = rng.exponential(1e-3, ROWS)
    true = 1e-4
    measured = true * np.sqrt(rng.chisquare(13, ROWS) / 13)
    swapped = rng.standard_normal(ROWS) * true > margin
    assert judge_swaps(margin, RowNoise(measured, 13.0), swapped).answer == "agrees"
    assert judge_swaps(margin, RowNoise(measured), swapped).answer == "surplus"
    assert reach(ROWS, degrees=13.0) > 1.5 * reach(ROWS)


def test_a_swap_is_judged_by_its_own_rows_sigma() -> None:
    codes = np.array([SET_CODE[SetClass.IDENTICAL]] * 6, np.int8)
    rows = np.array([1, 2, 3, 4, 5])
    near, far, many = (
        SET_CODE[k] for k in (SetClass.NEAR_TIE, SetClass.FAR_SWAP, SetClass.MULTI_SWAP)
    )
    codes[rows] = [far, far, near, many, far]
    limit = reach(6)
    sigma = np.array([1.0, 1e-6, 1e-8, 1e-8, 1.0, np.nan])
    gap = np.array([limit * 1e-6, limit * 1e-6, 1.0, 1e-9, 1e-9])
    found = separate(codes, rows, gap, RowNoise(sigma))
    noise = SET_CODE[SetClass.NOISE_SWAP]
    # The same gap: noise in a loud row, far in a quiet one; the window and groups are kept.
    assert found[1:].tolist() == [noise, far, near, many, far]
    assert separate(codes, rows, np.nextafter(gap, 1), RowNoise(sigma))[1] == far
    # What was told by a constant is told again by the row.
    told = np.where(codes == far, noise, codes).astype(np.int8)
    again = separate(told, rows, gap, RowNoise(sigma))
    assert again.tolist() == found.tolist()


def test_noise_alone_agrees_and_injected_swaps_are_a_surplus() -> None:
    margin, sigma, swapped = simulated(1)
    clean = judge_swaps(margin, RowNoise(sigma), swapped)
    assert clean.answer == "agrees"
    assert clean.observed == swapped.sum() > 100
    assert clean.low <= clean.observed <= clean.high
    assert sum(b.rows for b in clean.bands) == clean.rows == ROWS
    assert sum(b.observed for b in clean.bands) == clean.observed
    # Two rows of 200,000 (1e-5) that swap at an ordinary margin.
    wrong = swapped.copy()
    wrong[np.argsort(margin)[[ROWS // 2, ROWS // 3]]] = True
    found = judge_swaps(margin, RowNoise(sigma), wrong)
    assert found.answer == "surplus"
    assert found.bands[-1].observed == 2
    assert found.bands[-1].expected < 1e-3
    assert found.low <= found.observed <= found.high, "the total alone would not tell"
    assert judge_swaps(margin, RowNoise(sigma), np.zeros(ROWS, np.bool_)).answer == "deficit"
    assert judge_swaps(margin, RowNoise(sigma / 2), swapped).answer == "surplus"


def test_rows_that_nothing_moves() -> None:
    margin, sigma = np.array([0.0, 1.0, np.nan]), np.zeros(3)
    found = judge_swaps(margin, RowNoise(sigma), np.array([True, False, True]))
    assert (found.rows, found.undefined, found.exact, found.expected) == (2, 1, 2, 0.5)
    assert found.answer == "agrees"
    wrong = judge_swaps(margin, RowNoise(sigma), np.array([False, True, False]))
    assert wrong.answer == "surplus"
    none = judge_swaps(margin[2:], RowNoise(sigma[2:]), np.ones(1, np.bool_))
    assert none.answer == "unknown"


def test_the_predicted_rate_has_an_interval() -> None:
    margin, sigma, _ = simulated(2)
    shift = np.random.default_rng(3).standard_normal(ROWS) * sigma
    tally = MarginTally()
    tally.add(np.round(margin * 2**24).astype(np.int64), margin, shift)
    rate, found = predict(tally, 0, ROWS).rate, predicted_interval(tally)
    assert found is not None
    assert rate is not None
    true = np.exp(-12 + 0.125) / 1e-3 / np.sqrt(2 * np.pi)
    assert found[0] < rate < found[1]
    assert found[0] < true < found[1] < 1.2 * found[0]
    assert predicted_interval(MarginTally()) is None
    wider = predicted_interval(tally, 0.999)
    assert wider is not None
    assert wider[0] < found[0] < found[1] < wider[1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: row_noise(np.zeros((2, 3))), "perturbations.shape=(2, 3)"),
        (lambda: row_noise(np.zeros((2, 3, 1))), "perturbations=(2, 1)"),
        (lambda: reach(0), "rows=0"),
        (lambda: reach(3, 0.0), "confidence=0.0"),
        (lambda: RowNoise(-np.ones(1)), "sigma=-1.0"),
        (lambda: RowNoise(np.ones(1), 0.0), "degrees=0.0"),
        (lambda: judge_swaps(np.zeros(2), QUIET, np.zeros(2, np.bool_)), "one length"),
        (lambda: judge_swaps(-np.ones(3), QUIET, np.zeros(3, np.bool_)), "margin=-1.0"),
        (
            lambda: separate(np.zeros(2, np.int8), np.zeros(1, np.int64), np.ones(1), QUIET),
            "sigma, gap_abs=((3,), (1,))",
        ),
        (lambda: predicted_interval(MarginTally(), 2.0), "confidence=2.0"),
    ],
)
def test_bad_input_is_named(call: Any, message: str) -> None:
    with pytest.raises(InputError) as told:
        call()
    assert message in str(told.value)
