"""A path that starts at the select: the logits from the launch, the rest by a library's kernel."""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np

from ...banks.errors import EnvelopeError
from ...banks.geometry import Geometry, ScoringRule
from .. import project
from ..contract import F32, I32, Declared, Launch, Routed, check_width
from ..gather import gather

LOGITS_WORDS: Final = (
    "logits of the launch; where it starts at hidden, the CPU's exact sum, rounded to FP64, to FP32"
)
EXCHANGE_WORDS: Final = "logits gathered by a copy; no latent"


class SelectKernel(Protocol):
    """A library's select: what it needs, what it refuses, and what it computes."""

    @property
    def name(self) -> str:
        """Canonical name of the path."""
        ...

    @property
    def batches_launches(self) -> bool:
        """Whether one call with several launches gives the bits of one call per launch."""
        ...

    def why_not(self) -> str | None:
        """Why it cannot run here, or None."""
        ...

    def check(self, geometry: Geometry, scoring: ScoringRule, width: int) -> None:
        """Refuse what the library refuses.

        Raises:
            EnvelopeError: geometry, rule or width outside the library's envelope.
        """
        ...

    def declare(self) -> Declared:
        """The arithmetic that it says it does, with the library's version."""
        ...

    def select(
        self,
        logits: F32,
        bias: F32,
        geometry: Geometry,
        scoring: ScoringRule,
        ids: I32,
        weights: F32,
    ) -> None:
        """Write ids and weights [row, slot]; what they hold goes into the library's buffers first.

        Args:
            logits: [row, expert] float32.
            bias: [expert] float32.
            geometry: checked.
            scoring: checked.
            ids: [row, slot] int32, poison.
            weights: [row, slot] float32, poison.
        """
        ...


class SelectPath:
    """A ``SelectKernel`` as a path of the front; every rank gets the same ids and weights."""

    outputs = ("logits", "ids", "weights")

    def __init__(self, kernel: SelectKernel) -> None:
        self._kernel = kernel
        self.name = kernel.name
        self.batches_launches = kernel.batches_launches
        self._declared: Declared | None = None

    @property
    def declared(self) -> Declared:
        """The arithmetic; told by the library where it is installed, and asked for once."""
        if self._declared is None:
            self._declared = self._kernel.declare()
        return self._declared

    def unavailable(self) -> str | None:
        """Why the library, or what it needs, is not here."""
        return self._kernel.why_not()

    def check(self, launch: Launch) -> None:
        """Refuse a launch outside the library's envelope.

        Raises:
            EnvelopeError: no logits can be had, or width, geometry or rule are refused.
        """
        check_width(launch.width, self.name)
        start = (launch.hidden, launch.logits_shards, launch.logits)
        if all(piece is None for piece in start):
            expected = "logits, logits_shards or hidden"
            raise EnvelopeError("launch", "no input of the select", expected, self.name)
        if launch.hidden is not None and launch.weights.router is None:
            raise EnvelopeError("router_weight", "nothing", "one, with hidden rows", self.name)
        self._kernel.check(launch.geometry, launch.scoring, launch.width)

    def run(self, launch: Launch, out: Routed) -> None:
        """Write every element of ``out``.

        Raises:
            EnvelopeError: as for ``check``.
        """
        self.check(launch)
        logits = exact_logits(launch)
        if out.logits is not None:
            out.logits.view(np.uint32)[:] = logits.view(np.uint32)
        # Contiguous, and still holding the caller's poison.
        ids, weights = out.ids[0].copy(), out.weights[0].copy()
        bias = np.ascontiguousarray(launch.weights.bias)
        self._kernel.select(logits, bias, launch.geometry, launch.scoring, ids, weights)
        out.ids[:] = ids
        out.weights.view(np.uint32)[:] = weights.view(np.uint32)


def exact_logits(launch: Launch) -> F32:
    """The logits [row, expert] of a launch, contiguous: given, gathered, or the exact product."""
    shards = launch.logits_shards
    if launch.hidden is not None:
        assert launch.weights.router is not None
        shards = project.logits_shards(launch.hidden, launch.weights.router, launch.ranks)
    if shards is None:
        assert launch.logits is not None
        return np.ascontiguousarray(launch.logits)
    whole = np.empty((launch.rows, launch.geometry.experts), np.float32)
    gather(shards, whole)
    return whole


def check_sigmoid(scoring: ScoringRule, where: str) -> None:
    """Refuse a rule that is not a renormalised sigmoid.

    Raises:
        EnvelopeError: another function, or weights that are not renormalised.
    """
    if scoring.function != "sigmoid":
        raise EnvelopeError("scoring.function", scoring.function, "sigmoid", where)
    if not scoring.renormalize:
        raise EnvelopeError("scoring.renormalize", False, "True", where)
