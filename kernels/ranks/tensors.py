"""Numpy arrays as torch tensors and back, bit for bit; numpy has no BF16 of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..contract import BFLOAT16


def to_tensor(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """Return a copy of a BF16, float32 or int32 array on ``device``."""
    own = np.array(array, order="C")
    if own.dtype == BFLOAT16:
        return torch.from_numpy(own.view(np.int16)).view(torch.bfloat16).to(device)
    return torch.from_numpy(own).to(device)


def to_array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Return a copy of a tensor as a numpy array of the same bits.

    A copy on the CPU too: the buffers of an exchange are used again.
    """
    host = tensor.detach().to("cpu", copy=True).contiguous()
    if host.dtype == torch.bfloat16:
        return host.view(torch.int16).numpy().view(BFLOAT16)
    array: npt.NDArray[Any] = host.numpy()
    return array
