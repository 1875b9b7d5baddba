"""The paired gather is a copy: no option and no order may change a bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neartie.banks.errors import InputError
from neartie.kernels.contract import BFLOAT16
from neartie.kernels.gather import gather

sizes = st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(1, 20), st.integers(1, 5))


@given(sizes, st.integers(0, 2**32 - 1), st.sampled_from(["float32", "bfloat16"]))
def test_row_blocks_and_rank_order_never_change_a_bit(
    size: tuple[int, int, int], seed: int, dtype: str
) -> None:
    """Any pattern, NaN payloads and signed zeros included."""
    ranks, rows, width = size
    random = np.random.default_rng(seed)
    kind = np.uint32 if dtype == "float32" else np.uint16
    bits = random.integers(0, np.iinfo(kind).max, size, kind, endpoint=True)
    shards = bits.view(np.float32 if dtype == "float32" else BFLOAT16)
    expected = np.concatenate(list(bits), axis=1)
    for row_blocks in (1, 2):
        out = np.empty((rows, ranks * width), shards.dtype)
        gather(shards, out, row_blocks)
        assert np.array_equal(out.view(kind), expected)
    # Ranks that arrive in another order write the same places.
    turned = np.empty((rows, ranks * width), shards.dtype)
    order = random.permutation(ranks)
    gather(np.ascontiguousarray(shards[order]), turned, 2)
    back = turned.view(kind).reshape(rows, ranks, width)[:, np.argsort(order)]
    assert np.array_equal(back.reshape(rows, -1), expected)


@pytest.mark.parametrize("bits", [0x7FA5A5A5, 0xFFC00001, 0x80000000, 0x7F800001, 0x00000001])
def test_special_patterns_survive(bits: int) -> None:
    shards = np.full((2, 3, 4), bits, np.uint32).view(np.float32)
    out = np.zeros((3, 8), np.float32)
    gather(shards, out, 2)
    assert (out.view(np.uint32) == bits).all()


def test_place_is_rank_major() -> None:
    """K3 at 8 ranks: 112 experts and 448 latent columns each."""
    shards = np.arange(8 * 20 * 112, dtype=np.float32).reshape(8, 20, 112)
    out = np.empty((20, 896), np.float32)
    gather(shards, out)
    assert out[13, 3 * 112 + 5] == shards[3, 13, 5]


def test_bad_input() -> None:
    shards = np.zeros((2, 3, 4), np.float32)
    with pytest.raises(InputError, match="row_blocks=3, but should be 1 or 2"):
        gather(shards, np.zeros((3, 8), np.float32), 3)
    with pytest.raises(InputError, match=r"out=float32\[3, 9\], but should be float32\[3, 8\]"):
        gather(shards, np.zeros((3, 9), np.float32))
