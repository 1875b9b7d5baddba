"""What one rank computes: its part of the projection, the exchange with the others, the select."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from ...banks.errors import EnvelopeError
from ..contract import Bf16, FrontWeights, Launch, Routed
from ..gemm import multiply
from ..rounding import narrow
from .exchange import AllGather, PairedGather, all_reduce, fill_bits, make_gather
from .group import RankGroup
from .select import check_on, select_on
from .spec import RankSpec
from .tensors import to_array, to_tensor

_SLOTS = 2


class Poisons(NamedTuple):
    """What the caller filled the outputs with: an int32, and the bits of a float32 and a BF16."""

    ids: int
    float32_bits: int
    bfloat16_bits: int


class Shards:
    """The own parts of the weights, and products with them; on CUDA cuBLAS, else exact sums."""

    def __init__(self, group: RankGroup, kind: str, weights: FrontWeights) -> None:
        assert weights.latent is not None
        assert weights.router is not None
        self._cuda = group.device.type == "cuda"
        self._device, self._weights, self._kind = group.device, weights, kind
        self._outputs = _part(len(weights.router), group)
        axis = 1 if kind == "general" else 0
        self._columns = _part(weights.latent.shape[axis], group)
        if self._cuda:
            # Split-K sums stay FP32, and the router's product is FP32 throughout: no TF32.
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
            torch.backends.cuda.matmul.allow_tf32 = False
            latent = weights.latent[:, self._columns] if axis else weights.latent[self._columns]
            self._latent = to_tensor(latent, self._device)
            self._router = to_tensor(weights.router[self._outputs], self._device).float()

    def latent(self, hidden: Bf16) -> torch.Tensor:
        """K-split partial [row, latent] (general), or N-split shard [row, latent / ranks] BF16."""
        split = self._kind == "general"
        if self._cuda:
            rows = to_tensor(hidden[:, self._columns] if split else hidden, self._device)
            return torch.mm(rows, self._latent.T)
        assert self._weights.latent is not None
        everything = slice(None)
        product = multiply(
            hidden,
            self._weights.latent,
            "latent",
            columns=self._columns if split else everything,
            outputs=everything if split else self._columns,
        )
        return to_tensor(narrow(product), self._device)

    def logits(self, hidden: Bf16) -> torch.Tensor:
        """N-split shard [row, expert / ranks] float32."""
        if self._cuda:
            return torch.mm(to_tensor(hidden, self._device).float(), self._router.T)
        assert self._weights.router is not None
        product = multiply(hidden, self._weights.router, "router", outputs=self._outputs)
        return to_tensor(product, self._device)


def _part(length: int, group: RankGroup) -> slice:
    width = length // group.size
    return slice(group.rank * width, (group.rank + 1) * width)


class RankFront:
    """One path on one rank; every rank makes it and runs it at the same time."""

    def __init__(self, group: RankGroup, spec: RankSpec, launch: Launch) -> None:
        self._group, self._spec = group, spec
        self._shards = Shards(group, spec.kind, launch.weights)
        self._bias = to_tensor(launch.weights.bias, group.device)
        self._gather: PairedGather | None = None
        self._slot = 0
        if spec.kind == "route":
            blocks = int(spec.options["row_blocks"])
            transport = spec.options["transport"]
            self._gather = make_gather(group, launch.geometry, transport, blocks, _SLOTS)

    def run(self, launch: Launch, poisons: Poisons) -> Routed:
        """Return the own outputs [1, row, ...] of every launch of ``width`` rows, on the host."""
        assert launch.hidden is not None
        parts = [
            self._one(launch, launch.hidden[first : first + launch.width], poisons)
            for first in range(0, launch.rows, launch.width)
        ]
        latent, logits, ids, weights = (
            np.concatenate(pieces)[None] for pieces in zip(*parts, strict=True)
        )
        return Routed(ids=ids, weights=weights, latent=latent, logits=logits)

    def _one(self, launch: Launch, hidden: Bf16, poisons: Poisons) -> tuple[Any, ...]:
        latent, logits = self._exchanged(hidden, poisons)
        shape, device = (len(hidden), launch.geometry.top_k), self._group.device
        ids = torch.full(shape, poisons.ids, dtype=torch.int32, device=device)
        weights = torch.empty(shape, dtype=torch.float32, device=device)
        fill_bits(weights, poisons.float32_bits)
        rule = self._spec.rule(launch.width)
        select_on(rule, launch.geometry, launch.scoring, logits, self._bias, ids, weights)
        return to_array(latent), to_array(logits), to_array(ids), to_array(weights)

    def _exchanged(self, hidden: Bf16, poisons: Poisons) -> tuple[torch.Tensor, torch.Tensor]:
        latent, logits = self._shards.latent(hidden), self._shards.logits(hidden)
        if self._gather is None:
            whole = AllGather(logits, self._group.size)
            whole.poison(poisons.float32_bits)
            whole.run()
            return all_reduce(latent), whole.whole
        slot, self._slot = self._slot, (self._slot + 1) % _SLOTS
        self._gather.load(slot, latent, logits)
        self._gather.poison(slot, poisons.bfloat16_bits, poisons.float32_bits)
        self._gather.run(slot, len(hidden))
        return self._gather.result(slot, len(hidden))


def check_front(spec: RankSpec, launch: Launch, size: int) -> None:
    """Refuse a launch that real ranks do not compute.

    Raises:
        EnvelopeError: the stage, the number of ranks, or what the device's select refuses.
    """
    if launch.ranks != size:
        raise EnvelopeError("ranks", launch.ranks, f"{size}, as launched", spec.name)
    if launch.hidden is None or launch.weights.latent is None or launch.weights.router is None:
        expected = "hidden rows with router and latent weights"
        raise EnvelopeError("bank", "a later stage", expected, spec.name)
    check_on(spec.device, spec.rule(launch.width), launch.geometry, launch.scoring)
