"""Reduction schedules against element-wise oracles with ml_dtypes rounding."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neartie.banks.errors import EnvelopeError
from neartie.kernels.contract import BFLOAT16, Bf16
from neartie.kernels.reduce import SCHEDULES, reduce_partials

NAMES = [name for name, schedule in SCHEDULES.items() if schedule.unavailable is None]


def _bf16(value: np.float32) -> np.float32:
    return np.float32(np.array(value).astype(BFLOAT16))


def _running(values: list[Any], *, each_hop: bool) -> np.float32:
    total = values[0]
    for value in values[1:]:
        total = np.float32(total + value)
        total = _bf16(total) if each_hop else total
    return _bf16(total)


def _tree(values: list[Any]) -> np.float32:
    while len(values) > 1:
        pairs = [_bf16(values[i] + values[i + 1]) for i in range(0, len(values) - 1, 2)]
        values = pairs + values[len(pairs) * 2 :]
    return np.float32(values[0])


def _oracle(name: str, values: list[Any], rank: int, owner: int) -> np.float32:
    """One element on one rank; ``owner`` is the rank that owns its slice in a ring."""
    ranks = len(values)
    if name == "tree_bf16":
        return _tree(values)
    if name == "two_level":
        half = ranks // 2
        islands = [_running(values[:half], each_hop=False), _running(values[half:], each_hop=False)]
        return _running(islands, each_hop=False)
    start = {"own_rank_first_fp32": rank, "ring_bf16": owner + 1}.get(name, 0)
    turned = [values[(start + step) % ranks] for step in range(ranks)]
    return _running(turned, each_hop=name in ("running_bf16", "ring_bf16"))


def _partials(ranks: int, rows: int, latent: int, seed: int) -> Bf16:
    random = np.random.default_rng(seed)
    values = random.normal(size=(ranks, rows, latent)) * np.exp2(random.integers(-4, 4, latent))
    return values.astype(np.float32).astype(BFLOAT16)


def _order_sensitive(rows: int, latent: int) -> Bf16:
    """Eight partials, of which the first column's sum is a BF16 tie plus what FP32 may lose.

    1 + 2^-8 lies in the middle of two BF16 values; six times 2^-25 are lost when each is added to
    it, and decide upwards when they are added first. Gaussian partials differ far less often.
    """
    partials = _partials(8, rows, latent, 1)
    column = [1.0, 2.0**-8, *[2.0**-25] * 6]
    partials[:, :, 0] = np.array(column, np.float32).astype(BFLOAT16)[:, None]
    return partials


def _reduce(name: str, partials: Bf16, width: int) -> Bf16:
    out = np.full(partials.shape, np.nan, BFLOAT16)
    reduce_partials(name, partials, out, width)
    return out


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("ranks", "width", "latent"), [(2, 1, 5), (4, 3, 6), (8, 2, 9), (6, 2, 7)])
def test_equals_elementwise_oracle(name: str, ranks: int, width: int, latent: int) -> None:
    partials = _partials(ranks, 2 * width, latent, ranks)
    got = _reduce(name, partials, width).astype(np.float32)
    values = partials.astype(np.float32)
    slice_length = -(-width * latent // ranks)
    for row in range(2 * width):
        for column in range(latent):
            # Position in the launch's flattened message: two launches here.
            owner = ((row % width) * latent + column) // slice_length
            for rank in range(ranks):
                expected = _oracle(name, list(values[:, row, column]), rank, owner)
                assert got[rank, row, column] == expected


def test_every_schedule_is_its_own_arithmetic() -> None:
    partials = _order_sensitive(4, 64)
    outputs = {name: _reduce(name, partials, 4)[3].tobytes() for name in NAMES}
    assert len(set(outputs.values())) == len(NAMES)


def test_ranks_agree_as_declared() -> None:
    partials = _order_sensitive(4, 64)
    for name in NAMES:
        out = _reduce(name, partials, 4)
        assert (out == out[:1]).all() == SCHEDULES[name].ranks_agree, name


def test_rows_are_independent_as_declared() -> None:
    partials = _partials(8, 4, 256, 3)
    for name in NAMES:
        together, alone = _reduce(name, partials, 4), _reduce(name, partials, 1)
        assert (together == alone).all() == SCHEDULES[name].row_independent, name


@pytest.mark.parametrize("name", NAMES)
def test_launches_in_one_call_equal_one_by_one(name: str) -> None:
    partials = _partials(4, 9, 40, 4)
    one_by_one = [_reduce(name, partials[:, start : start + 3], 3) for start in (0, 3, 6)]
    assert np.array_equal(_reduce(name, partials, 3), np.concatenate(one_by_one, axis=1))


@given(st.sampled_from(NAMES), st.sampled_from([2, 4, 8, 16]), st.data())
def test_small_integers_are_exact_in_any_order(name: str, ranks: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(-8, 8), min_size=ranks, max_size=ranks))
    partials = np.array(values, np.float32).astype(BFLOAT16).reshape(ranks, 1, 1)
    assert (_reduce(name, partials, 1).astype(np.float32) == sum(values)).all()


@pytest.mark.parametrize("name", NAMES)
def test_nonfinite_partials(name: str) -> None:
    partials = np.zeros((4, 1, 3), BFLOAT16)
    partials[1, 0] = [np.nan, np.inf, np.inf]
    partials[3, 0, 2] = -np.inf
    out = _reduce(name, partials, 1).astype(np.float32)
    assert np.isnan(out[:, 0, [0, 2]]).all()
    assert (out[:, 0, 1] == np.inf).all()


def test_single_rank_is_a_copy() -> None:
    partials = _partials(1, 2, 8, 5)
    for name in set(NAMES) - {"two_level"}:
        assert np.array_equal(_reduce(name, partials, 2), partials)


def test_islands() -> None:
    partials = _partials(8, 2, 64, 6)
    out = np.empty_like(partials)
    results = []
    for islands in (1, 2, 4, 8):
        reduce_partials("two_level", partials, out, 2, islands)
        results.append(out[0].copy())
    shot = _reduce("one_shot_fp32", partials, 2)[0]
    assert np.array_equal(results[0], shot)
    assert np.array_equal(results[3], shot)
    assert not np.array_equal(results[1], results[2])
    with pytest.raises(EnvelopeError, match="islands=3, but should be a divisor of 8 ranks"):
        reduce_partials("two_level", partials, out, 2, 3)


def test_nccl_is_not_run_here() -> None:
    partials = _partials(2, 1, 4, 7)
    with pytest.raises(EnvelopeError, match="reduce=nccl"):
        _reduce("nccl", partials, 1)
