"""Closer to the reference: the ratio's interval, and when an answer is given at all."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from neartie.audit.metrics import closeness
from neartie.audit.metrics.closeness import (
    FP64_OF_FP32,
    Evidence,
    closer,
    decide,
    ratio_interval,
)
from neartie.banks.errors import InputError


def evidence(candidate: Any, baseline: Any, **changes: Any) -> Evidence:
    found = Evidence(
        sign=closer(candidate, baseline),
        interval=ratio_interval(candidate, baseline),
        rms=(math.sqrt(candidate.sum()), math.sqrt(baseline.sum())),
        worst=(math.sqrt(candidate.max()), math.sqrt(baseline.max())),
    )
    return replace(found, **changes)


def errors(seed: int, rows: int = 400) -> Any:
    return np.random.default_rng(seed).chisquare(40, rows)


def test_the_interval_is_the_same_bits_and_holds_the_ratio() -> None:
    mine, other = errors(0), errors(1) * 1.44
    found = ratio_interval(mine, other)
    assert found == ratio_interval(mine, other)
    assert found != ratio_interval(mine, other, seed=1)
    assert found.ratio == math.sqrt(math.fsum(mine) / math.fsum(other))
    assert found.low is not None
    assert found.high is not None
    # The true ratio is 1 / 1.2; the errors of 400 rows of 40 elements leave it within 3%.
    assert found.low < 1 / 1.2 < found.high < found.low * 1.06
    assert found.answer == "closer"
    swapped = ratio_interval(other, mine)
    assert swapped.answer == "farther"


def test_the_interval_is_that_of_a_plain_loop() -> None:
    # Integers, so that sums are exact in any order.
    mine, other = [3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8]
    n, resamples, seed = len(mine), 200, 5
    words = iter(np.random.Philox(key=seed).random_raw(n * resamples).tolist())
    quotients = []
    for _ in range(resamples):
        drawn = [(next(words) >> 32) * n >> 32 for _ in range(n)]
        quotients.append(sum(mine[i] for i in drawn) / sum(other[i] for i in drawn))
    quotients.sort()
    # t(7) at 97.5% is 2.3646; times sqrt(8/7) = 2.5279, which a normal exceeds at 0.574%.
    first = int(0.00574 * (resamples - 1))
    found = ratio_interval(
        np.array(mine, np.float64), np.array(other, np.float64), resamples=resamples, seed=seed
    )
    assert found.ratio == math.sqrt(31 / 37)
    assert found.low == math.sqrt(quotients[first])
    assert found.high == math.sqrt(quotients[resamples - 1 - first])


def test_pieces_draw_the_same_units(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = errors(12), errors(13)
    whole = ratio_interval(mine, other)
    monkeypatch.setattr(closeness, "_PIECE", 1000)
    assert ratio_interval(mine, other) == whole


def test_rows_of_one_unit_stay_together() -> None:
    # Ten documents of 40 rows that err alike: 400 rows hold no more than ten samples.
    units = np.repeat(np.arange(10), 40)
    factor = np.random.default_rng(3).lognormal(0.0, 0.5, 10)
    mine, other = errors(4) * factor[units], errors(5)
    by_row, by_unit = ratio_interval(mine, other), ratio_interval(mine, other, units)
    assert (by_row.units, by_unit.units) == (400, 10)
    assert by_row.ratio == pytest.approx(by_unit.ratio, rel=1e-12)
    assert None not in (by_row.low, by_row.high, by_unit.low, by_unit.high)
    width = [float(f.high or 0) - float(f.low or 0) for f in (by_row, by_unit)]
    assert width[1] > 3 * width[0]


def test_what_has_no_interval() -> None:
    one = np.ones(1)
    assert ratio_interval(one, one).low is None
    assert ratio_interval(np.ones(5), np.zeros(5)).ratio is None
    assert ratio_interval(np.ones(5), np.zeros(5)).answer == "not distinguishable"
    known = ratio_interval(np.array([1.0, np.nan, 2.0]), np.array([1.0, 1.0, 2.0]))
    assert (known.units, known.ratio) == (2, 1.0)
    # A resample in which only the candidate errs.
    rare = ratio_interval(np.ones(3), np.array([1.0, 0.0, 0.0]))
    assert rare.high == math.inf


def test_both_tests_must_agree() -> None:
    mine, other = errors(6), errors(7) * 1.44
    assert decide(evidence(mine, other)).answer == "closer"
    assert decide(evidence(other, mine)).answer == "farther"
    assert decide(evidence(mine, mine)).answer == "not distinguishable"
    # Closer on most rows, by very little; a few rows carry the error.
    few = mine.copy()
    few[:20] *= 50
    found = decide(evidence(few, mine * 1.001))
    assert found.answer == "not distinguishable"
    assert found.reasons == ("the sign test says closer, the ratio of RMS errors farther",)


def test_errors_that_are_no_numbers_are_the_reason() -> None:
    mine = np.full(9, np.nan)
    found = decide(evidence(mine, mine, rms=(None, None), worst=(None, None)))
    assert found.answer == "not distinguishable"
    assert found.reasons == ("no row has an error on both sides (on 9 rows it is no number)",)


def test_one_bad_row_takes_closer_away() -> None:
    mine, other = errors(8), errors(9) * 2
    mine[7] = 1.5 * other.max()
    found = decide(evidence(mine, other))
    assert found.answer == "not distinguishable"
    assert found.reasons[0].startswith("the worst row errs by ")
    assert decide(evidence(mine, other), worst_factor=1.3).answer == "closer"
    # Farther needs no such row.
    assert decide(evidence(other, mine)).answer == "farther"


def test_the_reference_comes_first() -> None:
    mine, other = errors(10), errors(11) * 1.44
    sides = evidence(mine, other)
    assert None not in sides.rms
    apart = abs(float(sides.rms[0] or 0) - float(sides.rms[1] or 0))
    for error, answer in ((0.49 * apart, "closer"), (0.5 * apart, "not distinguishable")):
        found = decide(replace(sides, reference_error=error))
        assert found.answer == answer
        assert bool(found.reasons) == (answer != "closer")
    assert found.reasons[0].startswith("reference_invalid: the reference's own error ")
    assert decide(replace(evidence(other, mine), reference_error=apart)).reasons
    # Nothing was concluded, so nothing is taken back.
    assert decide(replace(evidence(mine, mine), reference_error=1.0)).reasons == ()
    assert FP64_OF_FP32 == 2.0**-53 / 2.0**-24


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ratio_interval(np.ones(2), np.ones(3)), "err_sq_baseline.shape=(3,)"),
        (lambda: ratio_interval(np.ones(2), np.ones(2), np.zeros(3, np.int64)), "units.shape"),
        (lambda: ratio_interval(np.ones(2), -np.ones(2)), "squared error=below 0"),
        (lambda: ratio_interval(np.ones(2), np.ones(2), resamples=0), "resamples=0"),
        (lambda: ratio_interval(np.ones(2), np.ones(2), confidence=1.0), "confidence=1.0"),
        (lambda: decide(evidence(np.ones(9), np.ones(9)), worst_factor=0.0), "worst_factor=0.0"),
    ],
)
def test_bad_input_is_named(call: Any, message: str) -> None:
    with pytest.raises(InputError) as told:
        call()
    assert message in str(told.value)
