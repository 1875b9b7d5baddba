"""The Triton kernels on a GPU; on a machine without one each test says why it is skipped."""

from typing import Any

import numpy as np
import pytest
import torch

from neartie.banks.errors import EnvelopeError, InputError
from neartie.kernels.cuda import lang
from neartie.kernels.cuda.certify_triton import device_scan, screen_bound
from neartie.kernels.cuda.gate_triton import DeviceGate
from neartie.kernels.cuda.plain import plain_gate
from neartie.kernels.cuda.selects import DEVICE_SELECTS, SCREEN

REASON = lang.unavailable() or ("interpreted" if lang.INTERPRETED else None)
on_device = pytest.mark.skipif(REASON is not None, reason=str(REASON))
PAIR = (DEVICE_SELECTS["standalone"], DEVICE_SELECTS["fused"])


@pytest.mark.gpu
@on_device
@pytest.mark.parametrize("weights", [False, True])
def test_the_gate_is_the_plain_gate(weights: Any) -> None:
    bound = max(screen_bound(device_scan(SCREEN, select.form)) for select in PAIR)
    bias = (0.02 * np.random.default_rng(0).standard_normal(896)).astype(np.float32)
    x = torch.randn((50_000, 896), device="cuda")
    x[::7] = x[::7].to(torch.bfloat16).float()
    gate = DeviceGate(896, 16, bias, PAIR, bound, capacity=50_000, weights=weights)
    gate.launch(x)
    found = gate.result()
    expected = plain_gate(x, torch.from_numpy(bias).cuda(), PAIR, 16)
    assert np.array_equal(found.differing, expected.differing)
    assert np.array_equal(found.ids, expected.ids)
    if weights:
        assert found.histogram is not None
        assert expected.histogram is not None
        assert np.array_equal(found.histogram, expected.histogram)
        assert found.worst == expected.worst


@pytest.mark.skipif(REASON is None, reason="there is a device")
def test_without_a_device_the_reason_is_told() -> None:
    if lang.INTERPRETED:
        pytest.skip("the interpreter is a device")
    with pytest.raises(EnvelopeError, match=f"device={REASON}, but should be a CUDA device"):
        DeviceGate(896, 16, np.zeros(896, np.float32), PAIR, 1e-6, capacity=1)
    with pytest.raises(EnvelopeError, match="CUDA device"):
        device_scan("exp.cuda", "tanh.cuda")


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(InputError, match=r"form=exp, but should be one of exp\.cuda"):
        device_scan("exp", "tanh.cuda")
