"""What a bench times on each rank: exchange and select of a path, step after step.

Each step has inputs and outputs of its own, so that one replay checks all of them. The projection
is left out: a step starts from the shards or partials that it would have written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch

from ...banks.geometry import Geometry, ScoringRule
from ..cuda.plain import plain_select
from ..device_select import device_select, parse_device_select
from ..select import SelectArithmetic
from .exchange import AllGather, PairedGather, all_reduce, fill_bits
from .group import RankGroup
from .select import select_on

_POISON_IDS: Final = -0x5A5A5A5B
_POISON_32: Final = 0x7FA5A5A5
_POISON_16: Final = 0x7FA5
_BF16_UNIT: Final = float.fromhex("0x1p-8")


class StepInputs(NamedTuple):
    """Inputs of one step on all ranks, the same on each of them.

    Attributes:
        partials: [rank, row, latent] BF16.
        latent: [rank, row, latent / ranks] BF16.
        logits: [rank, row, expert / ranks] float32.
    """

    partials: torch.Tensor
    latent: torch.Tensor
    logits: torch.Tensor


@dataclass(frozen=True, eq=False)
class BenchShape:
    """Sizes of what is timed.

    Attributes:
        width: rows per step.
        steps: steps of one replay, at least 2.
        bias: [expert] float32 on the rank's device.
    """

    geometry: Geometry
    scoring: ScoringRule
    width: int
    steps: int
    bias: torch.Tensor

    def inputs(self, group: RankGroup, seed: int) -> list[StepInputs]:
        """Return normal inputs of every step, by a seed that all ranks share."""
        random = torch.Generator().manual_seed(seed)
        ranks, geometry = group.size, self.geometry

        def normal(columns: int, dtype: torch.dtype) -> torch.Tensor:
            values = torch.randn((ranks, self.width, columns), generator=random)
            return values.to(dtype).to(group.device)

        return [
            StepInputs(
                normal(geometry.latent, torch.bfloat16),
                normal(geometry.latent // ranks, torch.bfloat16),
                normal(geometry.experts // ranks, torch.float32),
            )
            for _ in range(self.steps)
        ]


class Arm:
    """Steps of one path; ``exchange`` is what a path adds, this class has the select and checks.

    Args:
        group: the ranks.
        shape: sizes.
        rule: the select.
    """

    reduces = False
    """Whether the latent is a sum over the ranks, and not a copy."""

    def __init__(self, group: RankGroup, shape: BenchShape, rule: SelectArithmetic) -> None:
        self.group, self.shape, self.rule = group, shape, rule
        slots = (shape.steps, shape.width, shape.geometry.top_k)
        self.ids = torch.zeros(slots, dtype=torch.int32, device=group.device)
        self.weights = torch.zeros(slots, dtype=torch.float32, device=group.device)

    def load(self, inputs: Sequence[StepInputs]) -> None:
        """Put the own inputs of every step where the work reads them."""
        raise NotImplementedError

    def poison(self) -> None:
        """Fill everything that the work writes."""
        self.ids.fill_(_POISON_IDS)
        fill_bits(self.weights, _POISON_32)

    def exchange(self, step: int) -> None:
        """Enqueue one step's exchange."""
        raise NotImplementedError

    def exchanged(self, step: int) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Return latent [row, latent] (None where there is none) and logits [row, expert]."""
        raise NotImplementedError

    def settle(self) -> None:
        """Make the inputs such that any number of replays keeps them finite."""

    def work(self) -> None:
        """Enqueue every step."""
        shape = self.shape
        for step in range(shape.steps):
            self.exchange(step)
            logits = self.exchanged(step)[1]
            select_on(
                self.rule, shape.geometry, shape.scoring, logits, shape.bias,
                self.ids[step], self.weights[step],
            )  # fmt: skip

    def problems(self, inputs: Sequence[StepInputs]) -> list[str]:
        """Return what is wrong with the outputs, given what was loaded; nothing where all is right.

        Copies must have the shards' bits, ids and weights those of plain torch (on a CPU: of a run
        of its own). The sum of two BF16 partials must be the FP32 sum rounded once, bit for bit;
        of P partials it may be off by P - 1 roundings of a partial sum, (P - 1) 2^-8 sum |partial|.
        """
        found = []
        for step, one in enumerate(inputs):
            latent, logits = self.exchanged(step)
            whole = _beside(one.logits)
            if not _same(logits, whole):
                found.append(f"step {step}: logits are not the shards")
            if latent is not None and not self._right_latent(latent, one):
                found.append(
                    f"step {step}: latent is not the {'sum' if self.reduces else 'shards'}"
                )
            ids, weights = self._selected(whole)
            if not (_same(self.ids[step], ids) and _same(self.weights[step], weights)):
                found.append(f"step {step}: ids or weights are not those of the logits")
        return found

    def _right_latent(self, latent: torch.Tensor, one: StepInputs) -> bool:
        if not self.reduces:
            return _same(latent, _beside(one.latent))
        ranks = len(one.partials)
        if ranks == 2:
            exact = one.partials[0].float() + one.partials[1].float()
            return _same(latent, exact.to(torch.bfloat16))
        wide = one.partials.double()
        bound = (ranks - 1) * _BF16_UNIT * wide.abs().sum(0)
        return bool(((latent.double() - wide.sum(0)).abs() <= bound).all())

    def _selected(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        shape = self.shape
        if logits.device.type == "cuda":
            _, form = parse_device_select(self.rule.name, {}, "bench")
            kernel = device_select(self.rule, form, shape.geometry, shape.scoring)
            top_k, scale = shape.geometry.top_k, shape.scoring.scale
            ids, weights = plain_select(kernel, logits, shape.bias, top_k, scale)
            return ids.to(torch.int32), weights
        ids, weights = torch.empty_like(self.ids[0]), torch.empty_like(self.weights[0])
        rule, geometry = self.rule, shape.geometry
        select_on(rule, geometry, shape.scoring, logits, shape.bias, ids, weights)
        return ids, weights


class GeneralArm(Arm):
    """All-reduce of the latent in place, all-gather of the logits with its copy, top-k."""

    reduces = True

    def __init__(self, group: RankGroup, shape: BenchShape, rule: SelectArithmetic) -> None:
        super().__init__(group, shape, rule)
        geometry, device = shape.geometry, group.device
        latent = (shape.steps, shape.width, geometry.latent)
        self._latent = torch.zeros(latent, dtype=torch.bfloat16, device=device)
        logits = torch.zeros((shape.width, geometry.experts // group.size), device=device)
        self._logits = [AllGather(logits.clone(), group.size) for _ in range(shape.steps)]

    def load(self, inputs: Sequence[StepInputs]) -> None:
        """Put the own inputs of every step where the work reads them."""
        for step, one in enumerate(inputs):
            self._latent[step].copy_(one.partials[self.group.rank])
            self._logits[step].shard.copy_(one.logits[self.group.rank])

    def poison(self) -> None:
        """Fill everything that the work writes; the sum is written over its own input."""
        super().poison()
        for gather in self._logits:
            gather.poison(_POISON_32)

    def exchange(self, step: int) -> None:
        """Enqueue one step's exchange."""
        all_reduce(self._latent[step])
        self._logits[step].run()

    def exchanged(self, step: int) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Return latent [row, latent] and logits [row, expert]."""
        return self._latent[step], self._logits[step].whole

    def settle(self) -> None:
        """Zero the partials: a sum in place would grow with every replay."""
        self._latent.zero_()


class RouteArm(Arm):
    """The paired gather of one transport, top-k; the gather has a slot for each step."""

    def __init__(
        self, group: RankGroup, shape: BenchShape, rule: SelectArithmetic, gather: PairedGather
    ) -> None:
        super().__init__(group, shape, rule)
        self._gather = gather

    def load(self, inputs: Sequence[StepInputs]) -> None:
        """Put the own inputs of every step where the work reads them."""
        rank = self.group.rank
        for step, one in enumerate(inputs):
            self._gather.load(step, one.latent[rank], one.logits[rank])

    def poison(self) -> None:
        """Fill everything that the work writes."""
        super().poison()
        for step in range(self.shape.steps):
            self._gather.poison(step, _POISON_16, _POISON_32)

    def exchange(self, step: int) -> None:
        """Enqueue one step's exchange."""
        self._gather.run(step, self.shape.width)

    def exchanged(self, step: int) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Return latent [row, latent] and logits [row, expert]."""
        return self._gather.result(step, self.shape.width)


class SelectArm(Arm):
    """The top-k alone, on logits that are there; every rank has all of them."""

    def __init__(self, group: RankGroup, shape: BenchShape, rule: SelectArithmetic) -> None:
        super().__init__(group, shape, rule)
        size = (shape.steps, shape.width, shape.geometry.experts)
        self._logits = torch.zeros(size, device=group.device)

    def load(self, inputs: Sequence[StepInputs]) -> None:
        """Put the inputs of every step where the work reads them."""
        for step, one in enumerate(inputs):
            self._logits[step].copy_(_beside(one.logits))

    def exchange(self, step: int) -> None:
        """Nothing: there is no exchange."""

    def exchanged(self, step: int) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Return no latent, and the logits [row, expert]."""
        return None, self._logits[step]


def _beside(pieces: torch.Tensor) -> torch.Tensor:
    """[rank, row, w] as [row, rank * w]."""
    return torch.cat(list(pieces), dim=1)


def _same(a: Any, b: torch.Tensor) -> bool:
    """Whether two tensors hold the same bits."""
    kind = torch.int16 if b.element_size() == 2 else torch.int32
    return a.shape == b.shape and bool((a.view(kind) == b.contiguous().view(kind)).all())
