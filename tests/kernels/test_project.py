"""K-split and N-split projections against exact sums."""

import math
from typing import Any

import numpy as np
import pytest

from neartie.kernels.contract import BFLOAT16, F32
from neartie.kernels.gemm import _cache, forget_weights, multiply
from neartie.kernels.project import latent_partials, latent_shards, logits_shards

RANKS = 4


def _operands() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    hidden = random.normal(size=(3, 64)) * np.exp2(random.integers(-12, 12, 64))
    weight = random.normal(size=(16, 64))
    return hidden.astype(np.float32).astype(BFLOAT16), weight.astype(np.float32)


def _fsum(x: Any, weight: Any) -> F32:
    """Exact sums, rounded to FP64 and then to FP32."""
    rows = [[math.fsum(float(a) * float(b) for a, b in zip(r, w, strict=True)) for w in weight]
            for r in x]  # fmt: skip
    return np.array(rows).astype(np.float32)


def test_k_split_partials_are_rounded_exact_sums() -> None:
    hidden, weight = _operands()
    latent = weight.astype(BFLOAT16)
    got = latent_partials(hidden, latent, RANKS)
    for rank in range(RANKS):
        part = slice(rank * 16, rank * 16 + 16)
        expected = _fsum(hidden[:, part], latent[:, part]).astype(BFLOAT16)
        assert np.array_equal(got[rank], expected)


def test_n_split_shards_are_columns_of_the_full_product() -> None:
    hidden, weight = _operands()
    latent = weight.astype(BFLOAT16)
    whole = _fsum(hidden, latent)
    logits = logits_shards(hidden, latent, RANKS)
    assert np.array_equal(np.concatenate(list(logits), axis=1), whole)
    shards = latent_shards(hidden, latent, RANKS)
    assert np.array_equal(np.concatenate(list(shards), axis=1), whole.astype(BFLOAT16))
    assert shards.shape == (RANKS, 3, 4)


def test_master_weights_are_exact_too() -> None:
    hidden, weight = _operands()
    assert np.array_equal(multiply(hidden, weight, "router"), _fsum(hidden, weight))


def test_outputs_and_columns_cut_the_same_product() -> None:
    hidden, weight = _operands()
    part, columns = slice(4, 9), slice(16, 48)
    for accumulate in ("fp64", "fp32"):
        got = multiply(hidden, weight, "router", accumulate, columns, part)
        expected = _fsum(hidden[:, columns], weight[part, columns])
        assert np.allclose(got, expected, rtol=1e-5, atol=1e-3)
        assert accumulate == "fp32" or np.array_equal(got, expected)


@pytest.mark.parametrize("accumulate", ["fp64", "fp32"])
def test_prepared_weights_are_bounded_and_never_mixed_up(accumulate: str) -> None:
    forget_weights()
    hidden, weight = _operands()
    weights = [(weight + n).astype(BFLOAT16) for n in range(4)]
    for _ in range(2):
        for each in weights:
            got = multiply(hidden, each, "latent", accumulate)
            assert np.allclose(got, _fsum(hidden, each), rtol=1e-4, atol=1e-1)
    assert [len(kept) for kept in _cache._kept.values()] == [2]
    forget_weights()


def test_nan_row_stays_nan() -> None:
    hidden, weight = _operands()
    hidden[1, 5] = np.nan
    got = logits_shards(hidden, weight.astype(BFLOAT16), RANKS)
    assert np.isnan(got[:, 1]).all()
    assert np.isfinite(got[:, [0, 2]]).all()
