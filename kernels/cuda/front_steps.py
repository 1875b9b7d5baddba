"""The steps of a device front on the device: enqueued once, or captured in a CUDA graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..contract import Launch, Routed
from .front_buffers import Buffers, Resident
from .gather_triton import paired_gather
from .products import latent_product, product_flags, router_product
from .reduce_triton import reduce_rank
from .selects import DeviceSelect
from .topk_triton import select_rows


@dataclass(frozen=True, eq=False)
class Steps:
    """What one launch shape enqueues.

    Attributes:
        buffers: where it reads and writes.
        resident: its weights.
        reduce: the all-reduce's schedule and islands; None: the latent is gathered.
        row_blocks: workers of the gather.
        select: the top-k's arithmetic.
        scale: factor of the weights.
        bf16_logits: whether the select scores logits rounded to BF16.
        wide_router: whether the router product has FP32 operands.
        reduced: whether cuBLAS may add split-K parts in BF16.
    """

    buffers: Buffers
    resident: Resident
    reduce: tuple[str, int] | None
    row_blocks: int
    select: DeviceSelect
    scale: float
    bf16_logits: bool
    wide_router: bool
    reduced: bool

    def enqueue(self) -> None:
        """Enqueue project, exchange and select of every virtual rank; allocates nothing."""
        self.project()
        for rank in range(self.buffers.shape.ranks):
            self.exchange(rank)
            self.select_rank(rank)

    def project(self) -> None:
        """Multiply as every rank does, one after the other, at the true width and shard shape."""
        shape, b = self.buffers.shape, self.buffers
        if self.wide_router and shape.logits_from == "hidden":
            b.hidden_wide.copy_(b.hidden)
        for rank in range(shape.ranks):
            if shape.latent_from == "hidden" and self.resident.latent is not None:
                x = b.hidden_columns[rank] if b.k_split else b.hidden
                latent_product(x, self.resident.latent[rank], b.latent_pieces[rank])
            if shape.logits_from == "hidden" and self.resident.router is not None:
                x = b.hidden_wide if self.wide_router else b.hidden
                router_product(x, self.resident.router[rank], b.logits_pieces[rank])

    def exchange(self, rank: int) -> None:
        """Bring latent and logits together in one rank's outputs."""
        b = self.buffers
        latent = logits = None
        if b.shape.latent_from is not None:
            latent = (b.latent_pieces, b.latent[rank])
        if b.shape.logits_from != "logits":
            logits = (b.logits_pieces, b.logits[rank])
        if self.reduce is not None and latent is not None:
            schedule, islands = self.reduce
            reduce_rank(schedule, *latent, rank, islands)
            latent = None
        paired_gather(latent, logits, self.row_blocks)

    def select_rank(self, rank: int) -> None:
        """Select one rank's rows."""
        b, logits = self.buffers, self.buffers.logits[rank]
        if self.bf16_logits:
            b.narrow.copy_(logits)
            b.selected.copy_(b.narrow)
            logits = b.selected
        top_k = b.shape.geometry.top_k
        select_rows(
            logits, self.resident.bias, self.select, top_k, self.scale, b.ids[rank], b.weights[rank]
        )


def run_steps(steps: Steps, launch: Launch, out: Routed) -> None:
    """Run a launch once, each step enqueued from here; ``out`` brings poison and gets results."""
    steps.buffers.load(launch)
    steps.buffers.set_outputs(out)
    with product_flags(steps.reduced):
        steps.enqueue()
    steps.buffers.fetch(out)


class CapturedSteps:
    """A front's steps in one CUDA graph, which reads and writes the memory of its buffers."""

    def __init__(self, graph: Any, buffers: Buffers) -> None:
        self._graph, self._buffers = graph, buffers

    def replay(self, launch: Launch, out: Routed) -> None:
        """Replay on another launch's inputs; the outputs start with the bits that ``out`` holds."""
        self._buffers.load(launch)
        self._buffers.set_outputs(out)
        self._graph.replay()
        self._buffers.fetch(out)


def capture_steps(steps: Steps, launch: Launch) -> CapturedSteps:
    """Capture the steps in a CUDA graph, after one run that compiles and chooses what it needs."""
    import torch

    # Half of what is called here has no types.
    cuda: Any = torch.cuda
    steps.buffers.load(launch)
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with product_flags(steps.reduced):
        with cuda.stream(side):
            steps.enqueue()
        cuda.current_stream().wait_stream(side)
        cuda.synchronize()
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            steps.enqueue()
    return CapturedSteps(graph, steps.buffers)
