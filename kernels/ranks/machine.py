"""What the ranks run on: devices and the version of the communication library."""

from __future__ import annotations

import platform

import torch


def library_version(backend: str) -> str:
    """Return NCCL's version; gloo comes with torch and has torch's."""
    if backend != "nccl":
        return f"torch {torch.__version__}"
    return ".".join(str(part) for part in torch.cuda.nccl.version())


def rank_devices(size: int, device: str) -> list[str]:
    """Return the device of each rank, by its name."""
    if device != "cuda":
        return [platform.machine()] * size
    return [torch.cuda.get_device_name(rank) for rank in range(size)]
