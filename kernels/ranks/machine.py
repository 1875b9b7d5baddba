"""What the ranks run on: devices and the version of the communication library."""

from __future__ import annotations

import platform
from typing import Any

import torch
from torch.cuda import nccl


def library_version(backend: str) -> str:
    """Return NCCL's version; gloo comes with torch and has torch's."""
    if backend != "nccl":
        return f"torch {torch.__version__}"
    version: Any = nccl.version
    return ".".join(str(part) for part in version())


def rank_devices(size: int, device: str) -> list[str]:
    """Return the device of each rank, by its name."""
    if device != "cuda":
        return [platform.machine()] * size
    return [torch.cuda.get_device_name(rank) for rank in range(size)]
