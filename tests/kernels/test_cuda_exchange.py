"""The exchange kernels, reductions and paired gather, against the CPU's, bit for bit.

On a GPU, or under TRITON_INTERPRET=1 in a process of its own (see ``test_cuda_topk``).
"""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from neartie.banks.errors import EnvelopeError, InputError
from neartie.kernels.contract import BFLOAT16
from neartie.kernels.cuda import lang
from neartie.kernels.cuda.gather_triton import paired_gather
from neartie.kernels.cuda.reduce_triton import DEVICE_SCHEDULES, reduce_rank
from neartie.kernels.gather import gather
from neartie.kernels.reduce import SCHEDULES, reduce_partials

REASON = lang.unavailable()
runs = pytest.mark.skipif(REASON is not None, reason=str(REASON))
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


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


def test_the_kernel_has_every_schedule_that_runs_without_a_library() -> None:
    assert set(DEVICE_SCHEDULES) == set(SCHEDULES) - {"nccl", "gloo"}


def partials_of(kind: str, ranks: int, rows: int, latent: int) -> Any:
    rng = np.random.default_rng(ranks * 1000 + rows)
    x = rng.standard_normal((ranks, rows, latent)).astype(np.float32)
    if kind == "wide":
        x *= np.exp2(rng.integers(-20, 20, x.shape)).astype(np.float32)
    elif kind == "subnormal":
        x *= np.float32(2.0**-130)
    elif kind == "huge":
        x *= np.float32(2.0**126)
    elif kind == "ties":
        # Sums that lie half way between two BF16 values.
        x = rng.integers(-512, 512, x.shape).astype(np.float32)
    elif kind == "zeros":
        x = np.where(x > 0, np.float32(0.0), np.float32(-0.0))
    elif kind == "not_finite":
        chance = rng.random(x.shape)
        x[chance < 0.05], x[chance > 0.95] = np.nan, np.inf
    return x.astype(BFLOAT16)


def on_device(array: Any) -> Any:
    kind = {2: np.int16, 4: np.int32}[array.dtype.itemsize]
    back = {2: torch.bfloat16, 4: torch.float32}[array.dtype.itemsize]
    return torch.from_numpy(array.view(kind).copy()).to(lang.device()).view(back)


def bits(tensor: Any) -> Any:
    kind = {2: torch.int16, 4: torch.int32}[tensor.element_size()]
    return tensor.view(kind).cpu().numpy()


KINDS = ("normal", "wide", "subnormal", "huge", "ties", "zeros", "not_finite")


@runs
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("schedule", DEVICE_SCHEDULES)
def test_every_schedule_has_the_bits_of_the_cpu(schedule: Any, kind: Any) -> None:
    for ranks, rows, latent in ((8, 3, 448), (6, 5, 30), (16, 1, 64), (1, 2, 8)):
        partials = partials_of(kind, ranks, rows, latent)
        expected = np.empty_like(partials)
        islands = 2 if ranks % 2 == 0 else 1
        reduce_partials(schedule, partials, expected, rows, islands)
        for rank in range(ranks) if schedule == "own_rank_first_fp32" else (ranks - 1,):
            out = torch.full((rows, latent), torch.nan, dtype=torch.bfloat16, device=lang.device())
            reduce_rank(schedule, on_device(partials), out, rank, islands)
            found = bits(out).view(np.uint16)
            same = found == expected[rank].view(np.uint16)
            mine = found.view(BFLOAT16).astype(np.float32)
            both_nan = np.isnan(expected[rank].astype(np.float32)) & np.isnan(mine)
            assert (same | both_nan).all()


@runs
def test_a_planted_fault_in_the_order_is_seen() -> None:
    """Another schedule's bits are not this one's: the comparison above can fail."""
    partials = partials_of("wide", 8, 20, 448)
    results = []
    for schedule in DEVICE_SCHEDULES:
        out = torch.empty((20, 448), dtype=torch.bfloat16, device=lang.device())
        reduce_rank(schedule, on_device(partials), out, 3)
        results.append(bits(out).tobytes())
    assert len(set(results)) == len(DEVICE_SCHEDULES)


@runs
def test_an_unknown_schedule_and_uneven_islands_are_refused() -> None:
    partials = on_device(partials_of("normal", 6, 1, 8))
    out = torch.empty((1, 8), dtype=torch.bfloat16, device=lang.device())
    with pytest.raises(EnvelopeError, match="reduce=nccl, but should be one of one_shot_fp32"):
        reduce_rank("nccl", partials, out, 0)
    with pytest.raises(EnvelopeError, match="islands=4"):
        reduce_rank("two_level", partials, out, 0, islands=4)


def shards_of(ranks: int, rows: int) -> tuple[Any, Any]:
    """Latent and logits shards of any bits: NaN payloads and signed zeros among them."""
    rng = np.random.default_rng(rows)
    latent = rng.integers(0, 1 << 16, (ranks, rows, 448), dtype=np.uint16).view(BFLOAT16)
    logits = rng.integers(0, 1 << 32, (ranks, rows, 112), dtype=np.uint32).view(np.float32)
    return latent, logits


@runs
@pytest.mark.parametrize("row_blocks", [1, 2])
@pytest.mark.parametrize("rows", [1, 2, 8, 9, 20])
def test_the_gather_is_a_copy_of_bits_for_any_row_blocks(rows: Any, row_blocks: Any) -> None:
    latent, logits = shards_of(8, rows)
    where = lang.device()
    for present in ((True, True), (True, False), (False, True)):
        pairs = []
        for shards, given in zip((latent, logits), present, strict=True):
            wide = np.empty((rows, 8 * shards.shape[2]), shards.dtype)
            gather(shards, wide)
            dtype = {2: torch.bfloat16, 4: torch.float32}[shards.dtype.itemsize]
            out = torch.full(wide.shape, torch.nan, dtype=dtype, device=where)
            pairs.append(((on_device(shards), out) if given else None, wide))
        paired_gather(pairs[0][0], pairs[1][0], row_blocks)
        for pair, wide in pairs:
            if pair is not None:
                kind = {2: np.int16, 4: np.int32}[wide.dtype.itemsize]
                assert np.array_equal(bits(pair[1]), wide.view(kind))


@runs
def test_what_the_gather_does_not_cover_is_refused() -> None:
    latent, logits = (on_device(one) for one in shards_of(8, 2))
    out = torch.empty((2, 3584), dtype=torch.bfloat16, device=lang.device())
    with pytest.raises(InputError, match="row_blocks=3, but should be 1 or 2"):
        paired_gather((latent, out), None, 3)
    with pytest.raises(InputError, match="logits="):
        paired_gather((latent, out), (logits, out.float()), 1)
