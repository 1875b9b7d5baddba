"""The paired gather's kernel, all ranks in one process: on a GPU, or under TRITON_INTERPRET=1.

What is a peer's memory there is another tensor here; the addresses are taken the same way.
"""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from neartie.kernels.cuda import lang
from neartie.kernels.cuda.paired_gather_triton import Words, paired_gather

REASON = lang.unavailable()
runs = pytest.mark.skipif(REASON is not None, reason=str(REASON))
pytestmark = pytest.mark.gpu

POISON = -0x5A5A5A5B


@pytest.mark.skipif(REASON is None, reason="runs here itself")
@pytest.mark.skipif(not lang.INSTALLED, reason="triton is not installed")
def test_under_the_interpreter() -> None:
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        command,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def gathered(ranks: int, rows: int, row_blocks: int, push: bool, latent: int, logits: int) -> Any:
    """Shards [rank, word], wholes [rank, word] after the exchange, and where logits start."""
    height = rows + 1  # A row more than is used: what lies behind must stay as it was.
    words = Words(latent, logits, height * latent, height * ranks * latent)
    rng = np.random.default_rng(ranks * 100 + rows)
    low, high = -(2**31), 2**31
    shards = rng.integers(low, high, (ranks, height * (latent + logits))).astype(np.int32)
    near = torch.from_numpy(shards).to(lang.device())
    wholes = torch.full((ranks, height * ranks * (latent + logits)), POISON, dtype=torch.int32)
    wholes = wholes.to(lang.device())
    far = wholes if push else near
    peers = torch.tensor([part.data_ptr() for part in far], dtype=torch.int64)
    peers = peers.to(lang.device())
    for rank in range(ranks):
        mine = near[rank] if push else wholes[rank]
        paired_gather(peers, mine, words, rank, ranks, rows, row_blocks, push)
    return shards, wholes.cpu().numpy(), words


def expected(shards: Any, words: Words, ranks: int, rows: int) -> Any:
    """One rank's whole, by plain numpy."""
    latent, logits = words.latent, words.logits
    whole = np.full(len(shards[0]) * ranks, POISON, np.int32)
    for start, place, width in (
        (0, 0, latent),
        (words.shard_logits, words.whole_logits, logits),
    ):
        parts = [shard[start : start + rows * width].reshape(rows, width) for shard in shards]
        whole[place : place + rows * ranks * width] = np.concatenate(parts, axis=1).reshape(-1)
    return whole


@runs
@pytest.mark.parametrize("push", [True, False], ids=["push", "pull"])
@pytest.mark.parametrize("row_blocks", [1, 2])
@pytest.mark.parametrize(("ranks", "rows"), [(2, 1), (2, 8), (2, 20), (3, 9), (8, 13)])
def test_every_rank_holds_every_shard(push: Any, row_blocks: Any, ranks: Any, rows: Any) -> None:
    shards, wholes, words = gathered(ranks, rows, row_blocks, push, latent=28, logits=7)
    right = expected(shards, words, ranks, rows)
    for whole in wholes:
        assert np.array_equal(whole, right)


@runs
def test_more_words_than_a_tile() -> None:
    shards, wholes, words = gathered(2, 20, 2, True, latent=1792 // 2, logits=448)
    assert np.array_equal(wholes[1], expected(shards, words, 2, 20))
