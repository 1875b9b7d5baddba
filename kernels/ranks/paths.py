"""Paths on real ranks as rank 0's audit sees them, and the loop that the other ranks run."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ...banks.errors import EnvelopeError, InputError
from ..contract import OUTPUTS, Declared, FrontWeights, Launch, Routed, check_width
from .exchange import SYMMETRIC_TRANSPORTS, check_symmetric
from .front import Poisons, RankFront, check_front
from .group import RankGroup, RanksLost
from .spec import RankSpec

_NO_WEIGHTS = FrontWeights(router=None, bias=np.zeros(0, np.float32))


class Order(Protocol):
    """What rank 0 has every rank do; it travels as a pickle."""

    def perform(self, rank: Rank) -> object:
        """Do it, on every rank at the same time.

        Raises:
            RanksLost: this rank or another one failed.
        """
        ...


@dataclass(frozen=True, eq=False)
class _RunPath:
    """Run this path on this launch; weights go once for each bank."""

    spec: RankSpec
    launch: Launch
    poisons: Poisons
    weights: FrontWeights | None

    def perform(self, rank: Rank) -> list[dict[str, Any]] | None:
        """Run it and bring every rank's outputs to rank 0; None on the others."""
        out = together(rank.group, lambda: rank.run(self))
        return _all_ranks(rank.group, out)


class _Stop:
    """Tell the ranks that nothing more comes."""


class Rank:
    """One rank's paths, made when they are first ordered; they keep their weights on the device."""

    def __init__(self, group: RankGroup) -> None:
        self.group = group
        self._weights: FrontWeights | None = None
        self._fronts: dict[str, RankFront] = {}

    def knows(self, weights: FrontWeights) -> bool:
        """Whether these weights are those that the ranks hold."""
        return self._weights is weights

    def run(self, order: _RunPath) -> Routed:
        """Run what is ordered and return the own outputs [1, row, ...]."""
        if order.weights is not None:
            self._weights, self._fronts = order.weights, {}
        assert self._weights is not None
        launch = replace(order.launch, weights=self._weights)
        name = order.spec.name
        if name not in self._fronts:
            self._fronts[name] = RankFront(self.group, order.spec, launch)
        return self._fronts[name].run(launch, order.poisons)


_Result = TypeVar("_Result")


def together(group: RankGroup, work: Callable[[], _Result]) -> _Result:
    """Do a rank's work and return its result, once every rank has done its own.

    Raises:
        RanksLost: a rank raised, is gone, or did not answer in time.
    """
    result: list[_Result] = []
    told = None
    try:
        result.append(work())
    # Whatever a rank raises ends the launch, and rank 0 tells it.
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        told = f"rank {group.rank}: {type(error).__name__}: {error} ({place})"
    answers = group.answers(told)
    failed = [text for text in answers or [told] if text]
    if failed:
        raise RanksLost("; ".join(failed))
    return result[0]


def command(rank: Rank, order: Order) -> Any:
    """Have every rank perform an order, rank 0 too; return what it gives on rank 0.

    Raises:
        RanksLost: a rank failed; nothing more can be run.
    """
    rank.group.order(order)
    return order.perform(rank)


def serve(rank: Rank) -> None:
    """Do what rank 0 orders until it says stop.

    Raises:
        RanksLost: this rank or another one failed.
    """
    while True:
        order = rank.group.order()
        if isinstance(order, _Stop):
            return
        order.perform(rank)


def stop(group: RankGroup) -> None:
    """End the loop of the other ranks.

    Raises:
        RanksLost: a rank is gone.
    """
    group.order(_Stop())


def _all_ranks(group: RankGroup, out: Routed) -> list[dict[str, Any]] | None:
    named = {name: getattr(out, name) for name in OUTPUTS}
    every: list[dict[str, Any]] = [{} for _ in range(group.size)]
    for name, array in named.items():
        pieces = group.gather(array)
        for rank, piece in enumerate(pieces or ()):
            every[rank][name] = piece.view(array.dtype).reshape(array.shape[1:])
    return every if group.rank == 0 else None


class RankedPath:
    """A path on real ranks: rank 0 orders a launch, every rank runs it, all outputs come here.

    Args:
        spec: which path.
        rank: rank 0 of a launch; None where there is none.
        reason: why it cannot run; None where it can.
    """

    # Each rank runs one launch of ``width`` rows after the other.
    batches_launches = True
    outputs = OUTPUTS

    def __init__(self, spec: RankSpec, rank: Rank | None, reason: str | None = None) -> None:
        self._spec, self._rank, self._reason = spec, rank, reason
        self.name = spec.name
        self.declared: Declared = spec.declared

    def unavailable(self) -> str | None:
        """Why this path cannot run here, or None."""
        return self._reason if self._rank is None else None

    def check(self, launch: Launch) -> None:
        """Refuse what the ranks are not prepared for.

        Raises:
            EnvelopeError: width, ranks, geometry, scoring rule or stage outside the envelope.
        """
        if self._rank is None:
            raise EnvelopeError("path", self.name, "one that runs here", self._reason or "")
        check_width(launch.width, self.name)
        if launch.rows % launch.width:
            raise EnvelopeError("rows", launch.rows, f"a multiple of {launch.width}", self.name)
        try:
            launch.geometry.check_ranks(launch.ranks)
        except InputError as error:
            raise EnvelopeError(error.what, error.got, error.expected, error.where) from error
        check_front(self._spec, launch, self._rank.group.size)
        transport = self._spec.options.get("transport", "")
        if transport in SYMMETRIC_TRANSPORTS:
            check_symmetric(launch.ranks, launch.geometry, transport)

    def run(self, launch: Launch, out: Routed) -> None:
        """Write every element of ``out``, each rank's part as that rank's process computed it.

        Raises:
            EnvelopeError: as for ``check``.
            RanksLost: a rank failed; nothing more can be run.
        """
        self.check(launch)
        rank = self._rank
        assert rank is not None
        known = rank.knows(launch.weights)
        order = _RunPath(
            self._spec,
            replace(launch, weights=_NO_WEIGHTS, recorded={}),
            _poisons(out),
            None if known else launch.weights,
        )
        every = command(rank, order)
        assert every is not None
        for name in OUTPUTS:
            target: npt.NDArray[Any] | None = getattr(out, name)
            if target is not None:
                for number, mine in enumerate(every):
                    _bits(target)[number] = _bits(mine[name])


def _bits(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


def _poisons(out: Routed) -> Poisons:
    """Read off the outputs what they were filled with."""
    latent = 0 if out.latent is None else int(_bits(out.latent).flat[0])
    return Poisons(int(out.ids.flat[0]), int(_bits(out.weights).flat[0]), latent)
