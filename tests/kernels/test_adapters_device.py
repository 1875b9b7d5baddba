"""The adapters on a GPU with FlashInfer; elsewhere each test says why it is skipped."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from neartie.banks.geometry import PRESETS
from neartie.kernels.adapters import flashinfer
from neartie.kernels.adapters.flashinfer_deepseek import ENTRY, FlashinferDeepseek
from neartie.kernels.adapters.torch_topk import TorchTopk
from neartie.kernels.cuda import lang
from neartie.kernels.known_scores import form_scores
from neartie.kernels.select import SELECTS, select

GEOMETRY, SCORING = PRESETS["deepseek-v3"]
NO_TRITON = lang.unavailable() or ("interpreted" if lang.INTERPRETED else None)
NO_CUDA = None if torch.cuda.is_available() else "no CUDA device"
NO_FLASHINFER = flashinfer.why_not(ENTRY)


def inputs(rows: int) -> Any:
    rng = np.random.default_rng(11)
    bias = (0.02 * rng.standard_normal(256)).astype(np.float32)
    return rng.standard_normal((rows, 256), np.float32), bias


def run(kernel: Any, x: Any, bias: Any, poison: int = -7) -> Any:
    ids = np.full((len(x), 8), poison, np.int32)
    weights = np.full((len(x), 8), np.nan, np.float32)
    kernel.select(x, bias, GEOMETRY, SCORING, ids, weights)
    return ids, weights


@pytest.mark.gpu
@pytest.mark.skipif(NO_FLASHINFER is not None, reason=str(NO_FLASHINFER))
def test_fused_topk_deepseek_gives_a_row_the_same_bits_at_any_width() -> None:
    kernel, (x, bias) = FlashinferDeepseek({}), inputs(4096)
    ids, weights = run(kernel, x, bias)
    assert (ids >= 0).all()
    assert np.isfinite(weights).all()
    for width in (1, 9, 16, 20):
        for start in range(0, 400, width):
            part = slice(start, start + width)
            one = run(kernel, x[part], bias, poison=-9)
            assert np.array_equal(one[0], ids[part])
            assert np.array_equal(one[1].view(np.uint32), weights[part].view(np.uint32))


@pytest.mark.gpu
@pytest.mark.skipif(NO_FLASHINFER is not None, reason=str(NO_FLASHINFER))
@pytest.mark.skipif(NO_TRITON is not None, reason=str(NO_TRITON))
def test_fused_topk_deepseek_is_its_twin_with_the_form_that_its_build_flags_give() -> None:
    assert "-use_fast_math" in FlashinferDeepseek({}).declare().notes
    x, bias = inputs(16384)
    ids, weights = run(FlashinferDeepseek({}), x, bias)
    twin = replace(SELECTS["noaux_tc"], score="identity", functions=())
    for form, same in (("tanh.approx", True), ("tanh.cuda", False)):
        expected = select(twin, form_scores(form, x), bias, GEOMETRY, SCORING)
        equal = np.array_equal(expected[1].view(np.uint32), weights.view(np.uint32))
        assert equal is same
        assert same is False or np.array_equal(expected[0], ids)


@pytest.mark.gpu
@pytest.mark.skipif(NO_CUDA is not None, reason=str(NO_CUDA))
def test_torch_topk_on_the_device_selects_by_torchs_own_scores() -> None:
    x, bias = inputs(512)
    ids, _ = run(TorchTopk({"device": "cuda"}), x, bias)
    scores = torch.sigmoid(torch.from_numpy(x).cuda()).cpu().numpy()
    rule = replace(SELECTS["hf"], score="identity")
    expected, _ = select(rule, scores, bias, GEOMETRY, SCORING)
    keys = np.take_along_axis(scores + bias, expected.astype(np.int64), axis=1)
    distinct = (keys[:, :-1] > keys[:, 1:]).all(axis=1)
    assert distinct.sum() > 400
    # Set and order follow wherever no two selected keys are equal.
    assert np.array_equal(ids[distinct], expected[distinct])
