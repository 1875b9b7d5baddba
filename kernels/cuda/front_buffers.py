"""Device memory of a front: one launch's inputs, pieces and outputs of all virtual ranks; weights.

Rank r's part is the r-th of each tensor's first axis. Everything that a run may write is poisoned
before it, the pieces between the stages too.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...banks.geometry import Geometry
from ..contract import F32, FrontWeights, Launch, Routed
from .lang import device

_TORCH_BITS: Final = {2: "int16", 4: "int32"}


class Shape(NamedTuple):
    """What decides the sizes of the buffers, and which stages run."""

    geometry: Geometry
    ranks: int
    rows: int
    latent_from: str | None
    """``hidden``, ``pieces`` (partials or shards of the bank), or None: no latent."""
    logits_from: str
    """``hidden``, ``pieces`` or ``logits``."""


def shape_of(launch: Launch) -> Shape:
    """Return the shape of a launch."""
    latent = None
    if launch.hidden is not None and launch.weights.latent is not None:
        latent = "hidden"
    elif launch.latent_partials is not None or launch.latent_shards is not None:
        latent = "pieces"
    logits = "logits" if launch.logits_shards is None else "pieces"
    if launch.hidden is not None:
        logits = "hidden"
    return Shape(launch.geometry, launch.ranks, launch.rows, latent, logits)


def to_device(array: npt.NDArray[Any]) -> Any:
    """Return a copy on the device of float32, int32 or BF16 values, the same bits."""
    import torch

    bits = np.array(array, order="C").view(np.dtype(f"i{array.dtype.itemsize}"))
    kind = torch.float32 if array.dtype == np.float32 else torch.bfloat16
    return torch.from_numpy(bits).to(device()).view(kind)


def _bits(tensor: Any) -> Any:
    import torch

    return tensor.view(getattr(torch, _TORCH_BITS[tensor.element_size()]))


def _host_bits(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array.view(np.dtype(f"i{array.dtype.itemsize}"))


class Buffers:
    """Tensors of one ``Shape``.

    Attributes:
        hidden: [row, hidden] BF16; None where the launch starts later.
        hidden_columns: [rank, row, hidden / ranks] BF16, of the K-split.
        hidden_wide: [row, hidden] float32, for a router product of FP32 operands.
        latent_pieces: [rank, row, latent] partials or [rank, row, latent / ranks] shards, BF16.
        logits_pieces: [rank, row, expert / ranks] float32.
        latent: [rank, row, latent] BF16.
        logits: [rank, row, expert] float32 after the exchange.
        selected: [row, expert] float32, what the select scores where that is rounded to BF16.
        narrow: [row, expert] BF16, between the two.
        ids, weights: [rank, row, slot].
    """

    def __init__(self, shape: Shape, k_split: bool) -> None:
        import torch

        geometry, ranks, rows = shape.geometry, shape.ranks, shape.rows

        def bf16(*sizes: int) -> Any:
            return torch.empty(sizes, dtype=torch.bfloat16, device=device())

        def fp32(*sizes: int) -> Any:
            return torch.empty(sizes, device=device())

        self.shape, self.k_split = shape, k_split
        columns = geometry.latent if k_split else geometry.latent // ranks
        self.hidden = bf16(rows, geometry.hidden)
        self.hidden_columns = bf16(ranks, rows, geometry.hidden // ranks)
        self.hidden_wide = fp32(rows, geometry.hidden)
        self.latent_pieces = bf16(ranks, rows, columns)
        self.logits_pieces = fp32(ranks, rows, geometry.experts // ranks)
        self.latent = bf16(ranks, rows, geometry.latent)
        self.logits = fp32(ranks, rows, geometry.experts)
        self.selected = fp32(rows, geometry.experts)
        self.narrow = bf16(rows, geometry.experts)
        self.ids = torch.empty((ranks, rows, geometry.top_k), dtype=torch.int32, device=device())
        self.weights = fp32(ranks, rows, geometry.top_k)

    def load(self, launch: Launch) -> None:
        """Copy a launch's inputs to the device, after poisoning all that a run computes."""
        for tensor in (self.latent_pieces, self.logits_pieces, self.selected, self.narrow):
            tensor.fill_(math.nan)
        if launch.hidden is not None:
            self.hidden.copy_(to_device(launch.hidden))
            ranks, rows = self.shape.ranks, self.shape.rows
            columns = self.hidden.view(rows, ranks, -1).transpose(0, 1)
            self.hidden_columns.copy_(columns)
            return
        pieces = launch.latent_partials if self.k_split else launch.latent_shards
        if self.shape.latent_from == "pieces" and pieces is not None:
            self.latent_pieces.copy_(to_device(pieces))
        if launch.logits_shards is not None:
            self.logits_pieces.copy_(to_device(launch.logits_shards))
        elif launch.logits is not None:
            self.logits.copy_(to_device(launch.logits).expand_as(self.logits))

    def set_outputs(self, out: Routed) -> None:
        """Give the outputs on the device the bits that ``out`` holds, poison or an older result."""
        import torch

        for mine, array in self._outputs(out):
            mine.copy_(torch.from_numpy(np.ascontiguousarray(_host_bits(array))))

    def fetch(self, out: Routed) -> None:
        """Copy the outputs from the device to ``out``."""
        for mine, array in self._outputs(out):
            _host_bits(array)[:] = mine.cpu().numpy()

    def _outputs(self, out: Routed) -> list[tuple[Any, npt.NDArray[Any]]]:
        """Device bits and host array of every output that ``out`` has."""
        pairs = [(self.ids, out.ids), (self.weights, out.weights)]
        if out.latent is not None:
            pairs.append((self.latent, out.latent))
        if out.logits is not None:
            pairs.append((self.logits, out.logits))
        return [(_bits(mine), array) for mine, array in pairs]


class Resident:
    """A front's weights on the device, one contiguous part for each rank.

    Attributes:
        latent: by rank, [latent, hidden / ranks] (K-split) or [latent / ranks, hidden], BF16; None
            where the bank has none.
        router: by rank, [expert / ranks, hidden], BF16 or float32; None likewise.
        bias: [expert] float32, as the select adds it.
    """

    def __init__(
        self,
        weights: FrontWeights,
        router: npt.NDArray[Any] | None,
        bias: F32,
        ranks: int,
        *,
        k_split: bool,
        wide_router: bool,
    ) -> None:
        # Kept, so that the next launch can tell whether these are its weights.
        self.of = weights
        self.ranks = ranks
        self.bias = to_device(bias)
        self.latent: list[Any] | None = None
        self.router: list[Any] | None = None
        if weights.latent is not None:
            whole = to_device(weights.latent)
            parts = whole.chunk(ranks, dim=1 if k_split else 0)
            self.latent = [part.contiguous() for part in parts]
        if router is not None:
            whole = to_device(router)
            if wide_router:
                whole = whole.float()
            self.router = [part.contiguous() for part in whole.chunk(ranks, dim=0)]
