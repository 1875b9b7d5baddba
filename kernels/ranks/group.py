"""The processes of one launch: who this one is, and how they talk to rank 0."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from ...banks.errors import EnvelopeError
from ..contract import PathsLost

DEFAULT_TIMEOUT_S: Final = 60.0
"""An exchange of at most 20 rows takes microseconds; only a lost rank takes a minute."""

_IDLE: Final = timedelta(days=30)
"""Ranks wait for rank 0, which judges in between and may take as long as it likes."""

_SETTINGS: Final[Mapping[str, str]] = {
    # Multicast stays off in NCCL and in symmetric memory: a plain exchange is what is audited.
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    # A collective that waits for a lost rank ends its process instead of hanging.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
}


class RanksLost(PathsLost):
    """A rank failed or did not answer in time: the launch computes nothing more."""


@dataclass(frozen=True, eq=False)
class RankGroup:
    """One process of a launch.

    Attributes:
        rank, size: its place, and how many there are.
        device: where its tensors live.
        backend: ``nccl`` or ``gloo``, of the exchanges (the default process group).
        idle: a gloo group on which the ranks wait for the next order.
        reply: a gloo group for answers, with the launch's timeout.
    """

    rank: int
    size: int
    device: torch.device
    backend: str
    idle: Any
    reply: Any

    def order(self, message: object | None = None) -> Any:
        """Send rank 0's message to every rank, and return it; other ranks pass nothing.

        Raises:
            RanksLost: a rank is gone.
        """
        box = [message]
        try:
            dist.broadcast_object_list(box, src=0, group=self.idle)
        except RuntimeError as error:
            raise RanksLost(_told(self, error)) from error
        return box[0]

    def answers(self, mine: object) -> list[Any] | None:
        """Gather a small object of every rank at rank 0; None on the others.

        Raises:
            RanksLost: a rank is gone, or the timeout passed.
        """
        boxes: list[Any] | None = [None] * self.size if self.rank == 0 else None
        try:
            dist.gather_object(mine, boxes, dst=0, group=self.reply)
        except RuntimeError as error:
            raise RanksLost(_told(self, error)) from error
        return boxes

    def gather(self, mine: npt.NDArray[Any]) -> list[npt.NDArray[np.uint8]] | None:
        """Gather the bytes of an array of equal size on every rank at rank 0; None on the others.

        Raises:
            RanksLost: a rank is gone, or the timeout passed.
        """
        flat = np.ascontiguousarray(mine).reshape(-1).view(np.uint8)
        into = None
        if self.rank == 0:
            into = [torch.empty(flat.size, dtype=torch.uint8) for _ in range(self.size)]
        try:
            dist.gather(torch.from_numpy(flat.copy()), into, dst=0, group=self.reply)
        except RuntimeError as error:
            raise RanksLost(_told(self, error)) from error
        return None if into is None else [piece.numpy() for piece in into]

    def meet(self) -> None:
        """Wait until every rank is here.

        Raises:
            RanksLost: a rank is gone, or the timeout passed.
        """
        try:
            dist.barrier(group=self.reply)
        except RuntimeError as error:
            raise RanksLost(_told(self, error)) from error


def _told(group: RankGroup, error: BaseException) -> str:
    first = str(error).strip().splitlines() or [type(error).__name__]
    return f"rank {group.rank} lost another one: {first[0]}"


def why_not(device: str, size: int) -> str | None:
    """Why ``size`` ranks cannot run on this machine, or None where they can."""
    if not dist.is_available():
        return "this torch has no torch.distributed"
    if device == "cpu":
        return None
    if not torch.cuda.is_available():
        return f"no CUDA device, and each of {size} ranks needs one"
    count = torch.cuda.device_count()
    if count < size:
        return f"{count} CUDA devices, and each of {size} ranks needs one"
    if not dist.is_nccl_available():
        return "this torch has no NCCL"
    return None


def join_group(device: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> RankGroup:
    """Join the launch that torchrun's variables describe (RANK, WORLD_SIZE, LOCAL_RANK).

    Raises:
        EnvelopeError: the launch cannot run on ``device`` here.
    """
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    reason = why_not(device, size)
    if reason is not None:
        raise EnvelopeError("ranks", size, "as many as can run here", reason)
    os.environ.update(_SETTINGS)
    if sys.platform == "linux":
        # All ranks are on this machine, whose name may resolve to nothing.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    timeout = timedelta(seconds=timeout_s)
    place = torch.device("cpu")
    if device == "cuda":
        place = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(place)
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timeout)
    idle = dist.new_group(backend="gloo", timeout=_IDLE)
    reply = dist.new_group(backend="gloo", timeout=timeout)
    return RankGroup(rank, size, place, backend, idle, reply)


def leave_group() -> None:
    """Leave the launch in good order."""
    dist.destroy_process_group()
