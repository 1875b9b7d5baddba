"""Exchanges between real ranks: an all-reduce, and the paired gather in each transport."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch
import torch.distributed as dist

from ...banks.errors import EnvelopeError
from ...banks.geometry import MAX_WIDTH, Geometry
from ..cuda.paired_gather_triton import Words, paired_gather
from .group import RankGroup

LIBRARY_TRANSPORTS: Final = ("nccl", "gloo")
SYMMETRIC_TRANSPORTS: Final = ("push", "pull")
_BARRIER_MS: Final = 30_000


def _all_gather(whole: torch.Tensor, shard: torch.Tensor) -> None:
    """``all_gather_into_tensor`` under the name that this torch has not deprecated."""
    gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    gather(whole, shard)


def all_reduce(partial: torch.Tensor) -> torch.Tensor:
    """Sum [row, latent] BF16 over the ranks in place, in the library's own order."""
    dist.all_reduce(partial)
    return partial


class AllGather:
    """Shards [row, w] of all ranks to [row, rank * w]: a library's all-gather and a layout copy.

    Attributes:
        shard: the own part.
        whole: the result.
    """

    def __init__(self, shard: torch.Tensor, ranks: int) -> None:
        rows, width = shard.shape
        self.shard = shard.contiguous()
        self._pieces = shard.new_zeros((ranks, rows, width))
        self.whole = shard.new_zeros((rows, ranks * width))

    def run(self) -> None:
        """Enqueue both."""
        _all_gather(self._pieces.view(-1), self.shard.view(-1))
        ranks, rows, width = self._pieces.shape
        self.whole.view(rows, ranks, width).copy_(self._pieces.transpose(0, 1))

    def poison(self, bits: int) -> None:
        """Fill what ``run`` writes."""
        fill_bits(self._pieces, bits)
        fill_bits(self.whole, bits)


def fill_bits(tensor: torch.Tensor, bits: int) -> None:
    """Set every element of a BF16 or float32 tensor to one bit pattern."""
    kind = torch.int16 if tensor.element_size() == 2 else torch.int32
    half = 1 << (8 * tensor.element_size() - 1)
    tensor.view(kind).fill_(bits - 2 * half if bits >= half else bits)


class PairedGather(Protocol):
    """The route path's exchange; ``slot`` tells consecutive ones apart."""

    def load(self, slot: int, latent: torch.Tensor, logits: torch.Tensor) -> None:
        """Put the own shards [row, w] where a projection would write them."""
        ...

    def poison(self, slot: int, latent_bits: int, logits_bits: int) -> None:
        """Fill what the exchange writes; call it on every rank before any of them runs it."""
        ...

    def run(self, slot: int, rows: int) -> None:
        """Enqueue the exchange of what was loaded."""
        ...

    def result(self, slot: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return latent [row, latent] and logits [row, expert] of that slot, not copied."""
        ...


class LibraryGather:
    """Two all-gathers of NCCL or gloo, each with a copy to the rank-major layout."""

    def __init__(self, group: RankGroup, slots: int) -> None:
        self._ranks = group.size
        self._gathers: list[tuple[AllGather, AllGather] | None] = [None] * slots

    def load(self, slot: int, latent: torch.Tensor, logits: torch.Tensor) -> None:
        """Put the own shards [row, w] where a projection would write them."""
        mine = self._gathers[slot]
        if mine is None or mine[0].shard.shape != latent.shape:
            pair = AllGather(latent.clone(), self._ranks), AllGather(logits.clone(), self._ranks)
            self._gathers[slot] = pair
            return
        mine[0].shard.copy_(latent)
        mine[1].shard.copy_(logits)

    def poison(self, slot: int, latent_bits: int, logits_bits: int) -> None:
        """Fill what the exchange writes; call it on every rank before any of them runs it."""
        latent, logits = self._pair(slot)
        latent.poison(latent_bits)
        logits.poison(logits_bits)

    def run(self, slot: int, rows: int) -> None:
        """Enqueue the exchange of what was loaded."""
        for gather in self._pair(slot):
            gather.run()

    def result(self, slot: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return latent [row, latent] and logits [row, expert] of that slot, not copied."""
        latent, logits = self._pair(slot)
        return latent.whole, logits.whole

    def _pair(self, slot: int) -> tuple[AllGather, AllGather]:
        pair = self._gathers[slot]
        assert pair is not None, "load comes first"
        return pair


@dataclass(frozen=True, slots=True)
class _Layout:
    """Words of a slot: [MAX_WIDTH, latent] BF16, then [MAX_WIDTH, logits] FP32."""

    latent: int
    logits: int

    @property
    def start_of_logits(self) -> int:
        return MAX_WIDTH * self.latent

    @property
    def words(self) -> int:
        return MAX_WIDTH * (self.latent + self.logits)

    def views(self, slot: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        latent = slot[: rows * self.latent].view(torch.bfloat16).view(rows, 2 * self.latent)
        start = self.start_of_logits
        logits = slot[start : start + rows * self.logits].view(torch.float32)
        return latent, logits.view(rows, self.logits)


class SymmetricGather:
    """The paired gather over symmetric memory: one barrier and one kernel.

    Push: the kernel writes the own shards into every rank's buffer, then a barrier. Pull: a
    barrier, then the kernel reads every rank's shards. With two slots or more used in turn, one
    barrier is enough: a slot is written again only after the barrier of the next exchange, which
    every rank reaches after it has read this one.
    """

    def __init__(
        self, group: RankGroup, geometry: Geometry, slots: int, transport: str, row_blocks: int
    ) -> None:
        check_symmetric(group.size, geometry, transport)
        if slots < 2:
            raise EnvelopeError("slots", slots, "at least 2", "one barrier for each exchange")
        self._group, self._push, self._row_blocks = group, transport == "push", row_blocks
        self._shard = _Layout(geometry.latent // group.size // 2, geometry.experts // group.size)
        self._whole = _Layout(geometry.latent // 2, geometry.experts)
        shared, own = (self._whole, self._shard) if self._push else (self._shard, self._whole)
        self._shared, self._handle = _symmetric(group, slots * shared.words)
        self._shared = self._shared.view(slots, shared.words)
        self._own = torch.zeros((slots, own.words), dtype=torch.int32, device=group.device)
        self._peers = [self._addresses(slot * shared.words, group) for slot in range(slots)]
        self._words = Words(
            self._shard.latent,
            self._shard.logits,
            self._shard.start_of_logits,
            self._whole.start_of_logits,
        )

    def _addresses(self, offset: int, group: RankGroup) -> torch.Tensor:
        addresses = [
            self._handle.get_buffer(peer, (1,), torch.int32, offset).data_ptr()
            for peer in range(group.size)
        ]
        return torch.tensor(addresses, dtype=torch.int64, device=group.device)

    def load(self, slot: int, latent: torch.Tensor, logits: torch.Tensor) -> None:
        """Put the own shards [row, w] where a projection would write them."""
        place = self._own if self._push else self._shared
        to_latent, to_logits = self._shard.views(place[slot], len(latent))
        to_latent.copy_(latent)
        to_logits.copy_(logits)

    def poison(self, slot: int, latent_bits: int, logits_bits: int) -> None:
        """Fill what the exchange writes; call it on every rank before any of them runs it."""
        place = self._shared if self._push else self._own
        latent, logits = self._whole.views(place[slot], MAX_WIDTH)
        fill_bits(latent, latent_bits)
        fill_bits(logits, logits_bits)
        # A push of another rank must not come before this rank's poison.
        self._handle.barrier(0, _BARRIER_MS)

    def run(self, slot: int, rows: int) -> None:
        """Enqueue the exchange of what was loaded."""
        if not self._push:
            self._handle.barrier(0, _BARRIER_MS)
        paired_gather(
            self._peers[slot],
            self._own[slot],
            self._words,
            self._group.rank,
            self._group.size,
            rows,
            self._row_blocks,
            self._push,
        )
        if self._push:
            self._handle.barrier(0, _BARRIER_MS)

    def result(self, slot: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return latent [row, latent] and logits [row, expert] of that slot, not copied."""
        place = self._shared if self._push else self._own
        return self._whole.views(place[slot], rows)


def check_symmetric(ranks: int, geometry: Geometry, transport: str) -> None:
    """Refuse a geometry whose shards are no whole words.

    Raises:
        EnvelopeError: a rank's latent shard has an odd number of BF16.
    """
    if geometry.latent // ranks % 2:
        got = geometry.latent // ranks
        raise EnvelopeError("latent per rank", got, "an even number", f"transport {transport}")


def _symmetric(group: RankGroup, words: int) -> tuple[torch.Tensor, Any]:
    """Memory of ``words`` int32 that every rank can reach, and its handle."""
    import torch.distributed._symmetric_memory as symmetric

    memory: Any = symmetric
    buffer = memory.empty(words, dtype=torch.int32, device=group.device)
    world: Any = dist.group.WORLD
    handle = memory.rendezvous(buffer, world.group_name)
    buffer.zero_()
    torch.cuda.synchronize()
    group.meet()
    return buffer, handle


def make_gather(
    group: RankGroup, geometry: Geometry, transport: str, row_blocks: int, slots: int
) -> PairedGather:
    """Return the paired gather of a transport, ready for up to ``MAX_WIDTH`` rows.

    Every rank must call this, with the same arguments.

    Raises:
        EnvelopeError: the shards are no whole words.
    """
    if transport in LIBRARY_TRANSPORTS:
        return LibraryGather(group, slots)
    return SymmetricGather(group, geometry, slots, transport, row_blocks)
