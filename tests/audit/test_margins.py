"""Margins and the swap rate they predict, against a simulation with known answer."""

import numpy as np
import pytest

from neartie.audit.metrics.margins import MarginTally, check_sample, predict
from neartie.banks.errors import InputError


def tally(margin: np.ndarray, shift: np.ndarray) -> MarginTally:
    found = MarginTally()
    found.add(np.round(margin * 2**24).astype(np.int64), margin, shift)
    return found


def test_the_prediction_agrees_with_ties_that_swap() -> None:
    rng = np.random.default_rng(0)
    margin = np.round(rng.exponential(0.003, 2_000_000) * 2**24) / 2**24
    shift = rng.integers(-40, 41, len(margin)) * 2.0**-24
    swapped = (shift > margin) | ((shift == margin) & (rng.random(len(margin)) < 0.5))
    found = predict(tally(margin, shift), int(swapped.sum()), len(margin))
    assert found.agreement == "agrees"
    assert found.rate is not None
    assert abs(found.rate - swapped.mean()) < 5 * (found.rate_error or 0)
    assert found.density == pytest.approx(1 / 0.003, rel=0.05)
    surplus = predict(tally(margin, shift), int(swapped.sum()) * 2, len(margin))
    assert surplus.agreement == "surplus"
    assert predict(tally(margin, shift), 0, len(margin)).agreement == "deficit"


def test_tallies_merge_in_any_order_and_miss_nothing() -> None:
    rng = np.random.default_rng(1)
    margin = np.concatenate([rng.exponential(0.001, 500), [0.0, np.nan]])
    shift = np.concatenate([rng.standard_normal(500) * 1e-7, [0.0, np.nan]])
    steps = np.where(np.isnan(margin), -1, np.nan_to_num(margin * 2**24)).astype(np.int64)
    whole, parts = MarginTally(), MarginTally()
    whole.add(steps, margin, shift)
    for part in (slice(300, None), slice(0, 300)):
        one = MarginTally()
        one.add(steps[part], margin[part], shift[part])
        parts.merge(one)
    assert parts == whole
    assert whole.rows == 501
    assert whole.undefined == 1
    assert sum(whole.steps.values()) == sum(whole.exponents.values()) == 501
    assert whole.below == int(np.count_nonzero(margin < 2.0**-14))
    assert whole.within(63) == int(np.count_nonzero((steps >= 0) & (steps <= 63)))


def test_nothing_is_predicted_from_nothing() -> None:
    assert predict(MarginTally(), 0, 0).agreement == "unknown"


def test_a_rate_above_one_is_no_rate() -> None:
    """Margins of one FP32 step and shifts of a quarter: nothing near 0 says anything of them."""
    rows = 1000
    tally = MarginTally()
    tally.add(np.full(rows, 1), np.full(rows, 2.0**-24), np.full(rows, 0.25))
    found = predict(tally, 900, rows)
    assert found.density is not None
    assert found.rate is None
    assert found.agreement == "unknown"


def test_small_samples() -> None:
    assert check_sample(1, 960, 32, 3_200_000).contradicts
    assert not check_sample(0, 960, 32, 3_200_000).contradicts
    assert check_sample(1, 960, 32, 3_200_000).p_value == pytest.approx(0.0098, rel=0.02)
    with pytest.raises(InputError, match="sample=2/1"):
        check_sample(2, 1, 0, 10)
