"""The effect of swaps, against sums over dense weight vectors."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neartie.audit.metrics.effect import mass_moved, model_rate, output_bound, swap_effect
from neartie.banks.errors import InputError


def dense(ids: Any, weights: Any, experts: int) -> Any:
    found = np.zeros((len(ids), experts))
    np.put_along_axis(found, ids.astype(np.int64), weights.astype(np.float64), axis=1)
    return found


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 5))
def test_mass_and_bound_are_those_of_dense_vectors(seed: int, rows: int, slots: int) -> None:
    rng = np.random.default_rng(seed)
    experts = 8
    sides = [
        (
            np.argsort(rng.random((rows, experts)), axis=1)[:, :slots].astype(np.int32),
            rng.random((rows, slots)).astype(np.float32),
        )
        for _ in range(2)
    ]
    (ids_a, a), (ids_b, b) = sides
    apart = np.abs(dense(ids_a, a, experts) - dense(ids_b, b, experts))
    # Sums of at most 2 * 5 terms below 1 in another order: 10 roundings of 2^-53 each.
    assert np.allclose(mass_moved(ids_a, a, ids_b, b), apart.sum(axis=1), rtol=0, atol=1e-14)
    norms = rng.random((rows, experts))
    bound = output_bound(ids_a, a, ids_b, b, norms)
    assert np.allclose(bound, (apart * norms).sum(axis=1), rtol=0, atol=1e-14)
    one = output_bound(ids_a, a, ids_b, b, norms[0])
    assert np.allclose(one, (apart * norms[0]).sum(axis=1), rtol=0, atol=1e-14)
    # What it bounds: outputs that are sums of expert outputs.
    outputs = rng.standard_normal((experts, 3))
    moved = (dense(ids_a, a, experts) - dense(ids_b, b, experts)) @ outputs
    limit = output_bound(ids_a, a, ids_b, b, np.linalg.norm(outputs, axis=1))
    assert (np.linalg.norm(moved, axis=1) <= limit + 1e-12).all()


def test_a_known_swap() -> None:
    ids_a = np.array([[3, 1, 7], [0, 1, 2], [4, 5, 6]])
    ids_b = np.array([[1, 3, 9], [2, 1, 0], [4, 5, 8]])
    a = np.array([[0.5, 0.375, 0.125], [0.5, 0.25, 0.25], [0.5, 0.25, np.nan]])
    b = np.array([[0.375, 0.5, 0.125], [0.25, 0.25, 0.5], [0.5, 0.25, 0.25]])
    found = swap_effect(ids_a, a, ids_b, b, np.full(10, 4.0))
    # Expert 7 loses 1/8 and expert 9 gains 1/8; the second row has the same set.
    assert (found.rows, found.differing, found.undefined) == (3, 1, 1)
    assert (found.mean_mass, found.max_mass, found.max_mass_row) == (0.25, 0.25, 0)
    assert (found.max_output, found.max_output_row) == (1.0, 0)
    none = swap_effect(ids_a[1:2], a[1:2], ids_b[1:2], b[1:2])
    assert (none.differing, none.mean_mass, none.max_mass, none.max_output) == (0, None, None, None)


def test_the_rate_of_a_model() -> None:
    found = model_rate(0, 59_914, 92)
    assert found.rate == 0.0
    # 5e-5 a layer touches 0.46% of the tokens of 92 layers.
    assert found.upper == pytest.approx(1 - (1 - 5e-5) ** 92, rel=1e-4)
    assert f"{found.upper:.2%}" == "0.46%"
    assert model_rate(0, 0, 92).rate is None
    assert model_rate(0, 0, 92).upper == 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda i, w: mass_moved(i, w[:, :1], i, w), "weights_a.shape=(1, 1)"),
        (lambda i, w: mass_moved(i * 0, w, i, w), "ids_a[row 0]=[0, 0], but should be distinct"),
        (lambda i, w: output_bound(i, w, i, w, np.ones(1)), "ids=0..1, but should be 0..0"),
        (lambda i, w: output_bound(i, w, i, w, np.ones((2, 2))), "expert_norms.shape=(2, 2)"),
    ],
)
def test_bad_input_is_named(call: Any, message: str) -> None:
    with pytest.raises(InputError) as told:
        call(np.array([[0, 1]]), np.array([[0.5, 0.5]]))
    assert message in str(told.value)
