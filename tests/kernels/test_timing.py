"""The statistics of times: order of blocks, slowest rank, median."""

from typing import Any

import numpy as np
import pytest

from neartie.kernels.timing import EagerReplay, abba, slowest, summary


@pytest.mark.parametrize(("blocks", "order"), [(1, "ABBA"), (2, "ABBA"), (5, "ABBAABBAABBA")])
def test_blocks_alternate_until_each_arm_has_enough(blocks: Any, order: Any) -> None:
    assert abba(blocks) == order
    assert min(order.count("A"), order.count("B")) >= blocks


def test_a_linear_drift_moves_both_arms_alike() -> None:
    order = abba(5)
    places = {arm: [i for i, letter in enumerate(order) if letter == arm] for arm in "AB"}
    assert np.mean(places["A"]) == np.mean(places["B"])


def test_the_slowest_rank_of_each_sample_counts() -> None:
    """The ranks' own medians are 2 and 3; each sample has one slow rank, and the median is 9."""
    samples = np.array([[9.0, 2.0, 2.0], [3.0, 9.0, 3.0]])
    assert slowest(samples).tolist() == [9.0, 9.0, 3.0]
    told = summary(samples)
    assert told.median_us == 9.0
    assert told.samples == 3
    assert told.low_us < told.median_us


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_no_time_is_made_of_what_is_none(bad: Any) -> None:
    with pytest.raises(ValueError, match="no positive number"):
        summary(np.array([[1.0, bad]]))
    with pytest.raises(ValueError, match="no positive number"):
        summary(np.zeros((2, 0)))


def test_a_host_replay_runs_its_work_once_a_sample() -> None:
    runs: list[int] = []
    times = EagerReplay(lambda: runs.append(1)).sample(7)
    assert len(runs) == len(times) == 7
    assert (times > 0).all()
