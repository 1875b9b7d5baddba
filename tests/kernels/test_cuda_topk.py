"""The top-k kernel against plain torch, bit for bit: on a GPU, or under TRITON_INTERPRET=1.

``test_under_the_interpreter`` runs this file again in a process of its own, as
``test_cuda_interpreted`` does; there, numpy's functions stand for the device's own.
"""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from neartie.banks.errors import EnvelopeError, InputError
from neartie.kernels.cuda import lang
from neartie.kernels.cuda.plain import plain_select
from neartie.kernels.cuda.selects import DEVICE_SELECTS, NORMALISATIONS, SUMS, DeviceSelect
from neartie.kernels.cuda.topk_triton import select_rows

REASON = lang.unavailable()
runs = pytest.mark.skipif(REASON is not None, reason=str(REASON))
# Numpy stands for the device under the interpreter and warns of infinities and NaN.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

KINDS = (
    "normal", "bf16", "saturated", "subnormal", "few_values", "all_equal", "signed_zeros",
    "not_finite", "none_left",
)  # fmt: skip
NAMED = tuple(DEVICE_SELECTS)


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


def logits_of(kind: str, rows: int, experts: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    x: Any = rng.standard_normal((rows, experts)).astype(np.float32)
    if kind == "bf16":
        x = (x.view(np.uint32) & 0xFFFF0000).view(np.float32)
    elif kind == "saturated":
        x *= 60
    elif kind == "subnormal":
        x = x - 100
    elif kind == "few_values":
        x = np.round(x * 2) / 2
    elif kind == "all_equal":
        x[:] = x[:, :1]
    elif kind == "signed_zeros":
        x = np.where(x > 0, np.float32(0.0), np.float32(-0.0))
    elif kind == "not_finite":
        chance = rng.random(x.shape)
        x[chance < 0.05] = np.nan
        x[(chance > 0.05) & (chance < 0.1)] = np.inf
        x[(chance > 0.1) & (chance < 0.15)] = -np.inf
    elif kind == "none_left":
        x[:] = np.array([np.nan, np.inf, -np.inf], np.float32)[np.arange(experts) % 3]
    return torch.from_numpy(x)


def bias_of(kind: str, experts: int) -> Any:
    rng = np.random.default_rng(7)
    bias = (0.02 * rng.standard_normal(experts)).astype(np.float32)
    if kind == "zero":
        bias[:] = 0
    elif kind == "not_finite":
        bias[:9] = [np.inf, -np.inf, np.nan] * 3
    elif kind == "large":
        bias *= 1e6
    return torch.from_numpy(bias)


def selected(logits: Any, bias: Any, select: DeviceSelect, top_k: int, scale: float = 1.0) -> Any:
    """The kernel's ids and weights, from outputs that were poisoned."""
    where = lang.device()
    ids = torch.full((len(logits), top_k), -7, dtype=torch.int32, device=where)
    weights = torch.full((len(logits), top_k), torch.nan, device=where)
    select_rows(logits.to(where), bias.to(where), select, top_k, scale, ids, weights)
    return ids.cpu(), weights.cpu()


def assert_plain(
    logits: Any, bias: Any, select: DeviceSelect, top_k: int, scale: float = 1.0
) -> None:
    ids, weights = selected(logits, bias, select, top_k, scale)
    where = lang.device()
    plain_ids, plain_weights = plain_select(select, logits.to(where), bias.to(where), top_k, scale)
    assert torch.equal(ids, plain_ids.cpu().to(torch.int32))
    mine, other = weights.view(torch.int32), plain_weights.cpu().contiguous().view(torch.int32)
    # Every NaN is one value: which payload an operation leaves is the compiler's.
    assert bool(((mine == other) | (weights.isnan() & plain_weights.cpu().isnan())).all())


@runs
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMED)
def test_the_kernel_is_plain_torch(name: str, kind: str) -> None:
    for bias in ("usual", "zero", "not_finite", "large"):
        assert_plain(logits_of(kind, 3, 896), bias_of(bias, 896), DEVICE_SELECTS[name], 16)


@runs
@pytest.mark.parametrize("weight_sum", SUMS)
@pytest.mark.parametrize("normalise", NORMALISATIONS)
def test_every_sum_and_normalisation_is_plain_torch(weight_sum: str, normalise: str) -> None:
    rule = DeviceSelect("tanh.cuda", weight_sum=weight_sum, normalise=normalise, epsilon=1e-20)
    for top_k in (1, 5, 8, 16):
        assert_plain(logits_of("normal", 2, 100), bias_of("usual", 100), rule, top_k, 2.5)


@runs
@pytest.mark.parametrize("rows", range(1, 21))
def test_every_width_gives_each_row_the_same_bits(rows: int) -> None:
    logits, bias = logits_of("normal", 20, 896), bias_of("usual", 896)
    for name in ("fused", "standalone"):
        whole = selected(logits, bias, DEVICE_SELECTS[name], 16)
        part = selected(logits[:rows], bias, DEVICE_SELECTS[name], 16)
        for mine, all_rows in zip(part, whole, strict=True):
            assert torch.equal(mine, all_rows[:rows])


@runs
def test_ties_go_to_the_lower_id() -> None:
    logits = torch.zeros((2, 896))
    logits[1, 500:] = 1.0
    for name in NAMED:
        ids, _ = selected(logits, torch.zeros(896), DEVICE_SELECTS[name], 16)
        assert ids.tolist() == [list(range(16)), list(range(500, 516))]


@runs
def test_a_planted_fault_is_seen() -> None:
    """Another order of the sum, and another rule for NaN, are no plain torch of this select."""
    logits, bias = logits_of("not_finite", 8, 896), bias_of("not_finite", 896)
    right = DEVICE_SELECTS["standalone"]
    where = lang.device()
    plain_ids, plain_weights = plain_select(right, logits.to(where), bias.to(where), 16)
    ids, _ = selected(logits, bias, right._replace(nan_key="highest"), 16)
    assert not torch.equal(ids, plain_ids.cpu().to(torch.int32))
    _, weights = selected(logits, bias, right._replace(weight_sum="fold"), 16)
    assert not torch.equal(weights, plain_weights.cpu())


@runs
def test_what_the_kernel_does_not_cover_is_refused() -> None:
    where = lang.device()
    select = DEVICE_SELECTS["fused"]
    ids = torch.empty((2, 16), dtype=torch.int32, device=where)
    weights = torch.empty((2, 16), device=where)
    bias = torch.zeros(2000, device=where)
    with pytest.raises(EnvelopeError, match=r"experts=2000, but should be 17\.\.1024"):
        select_rows(torch.zeros((2, 2000), device=where), bias, select, 16, 1.0, ids, weights)
    logits = torch.zeros((2, 896), device=where)
    with pytest.raises(EnvelopeError, match=r"top_k=17, but should be 1\.\.16"):
        select_rows(logits, bias[:896], select, 17, 1.0, ids, weights)
    with pytest.raises(InputError, match=r"ids_out=int32\[2, 8\], strided"):
        select_rows(logits, bias[:896], select, 8, 1.0, ids[:, :8], weights[:, :8])
    with pytest.raises(InputError, match=r"logits=float64\[2, 896\]"):
        select_rows(logits.double(), bias[:896], select, 16, 1.0, ids, weights)
