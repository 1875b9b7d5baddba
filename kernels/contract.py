"""What a path is: the launch it receives, the outputs it fills, the arithmetic it declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ..banks.errors import EnvelopeError, InputError
from ..banks.geometry import MAX_WIDTH, Geometry, ScoringRule

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
# ml_dtypes.bfloat16 has no numpy type of its own.
Bf16 = npt.NDArray[Any]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

OUTPUTS: Final = ("latent", "logits", "ids", "weights")
"""The outputs of a path that does the whole front, in the order of the work."""


class PathsLost(RuntimeError):
    """What runs a path is gone: no path of this audit computes anything more, and it must end.

    Any other error of a path is "could not compute" for one width, and the audit goes on.
    """


@dataclass(frozen=True, eq=False)
class FrontWeights:
    """Weights of one front.

    Attributes:
        router: [expert, hidden] BF16, or FP32 where a path uses master weights.
        bias: [expert] float32 correction bias, used for the selection only.
        latent: [latent, hidden] BF16; None where the model has no latent projection.
        extra: other tensors of the bank by name, such as ``router_weight_master``.
    """

    router: npt.NDArray[Any] | None
    bias: F32
    latent: Bf16 | None = None
    extra: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Recorded:
    """Outputs that a bank carries for one named path: ids [row, slot], weights [row, slot]."""

    ids: I32
    weights: F32 | None
    width: int | None
    """Rows per launch when they were recorded; None where unknown."""


@dataclass(frozen=True, eq=False)
class Launch:
    """One or several launches of ``width`` rows each, the rows back to back.

    The work starts at the first stage whose inputs are here: ``hidden`` (project), the per-rank
    pieces (exchange), or ``logits`` (select). Without a latent input the outputs have no latent.

    Attributes:
        width: rows per launch; ``rows`` is a multiple of it.
        hidden: [row, hidden] BF16, the same on every rank.
        latent_partials: [rank, row, latent] BF16, K-split partial sums, to be reduced.
        latent_shards: [rank, row, latent / ranks] BF16, N-split columns, to be gathered.
        logits_shards: [rank, row, expert / ranks] float32, N-split, to be gathered.
        logits: [row, expert] float32 as every rank holds them after the exchange.
        row_index: [row] int64, the bank's row numbers (a tail launch repeats rows).
        recorded: outputs of named paths for these rows.
    """

    geometry: Geometry
    scoring: ScoringRule
    ranks: int
    width: int
    weights: FrontWeights
    row_index: npt.NDArray[np.int64]
    hidden: Bf16 | None = None
    latent_partials: Bf16 | None = None
    latent_shards: Bf16 | None = None
    logits_shards: F32 | None = None
    logits: F32 | None = None
    recorded: Mapping[str, Recorded] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows in all launches together."""
        return len(self.row_index)


@dataclass(frozen=True, eq=False)
class Routed:
    """Outputs of a path on every rank, allocated and poisoned by the caller.

    Attributes:
        ids: [rank, row, slot] int32 expert ids.
        weights: [rank, row, slot] float32, in the order of ``ids``.
        latent: [rank, row, latent] BF16 after the exchange; None where there is none.
        logits: [rank, row, expert] float32 after the exchange; None from the select stage on.
    """

    ids: I32
    weights: F32
    latent: Bf16 | None = None
    logits: F32 | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """The arithmetic that a path says it does, word by word as in the design's tables.

    ``row_independent``: a row's outputs do not depend on the width or on the other rows;
    ``select_row_independent``: nor does the select (a path may change its select with the width).
    ``ranks_agree``: every rank ends with the same bits.
    ``latent_schedule``: the name in ``reduce.SCHEDULES`` of what brings the latent together (with
    islands: ``two_level:4``), ``gather`` for a copy of full sums, None where nothing is declared.
    ``virtual_ranks``: one device computes all ranks in turn, and no collective runs.
    """

    project: str
    exchange: str
    score: str
    nonfinite: str
    weight_sum: str
    normalise: str
    slot_order: str
    row_independent: bool = True
    select_row_independent: bool = True
    ranks_agree: bool = True
    machine_dependent: bool = False
    latent_schedule: str | None = None
    device: str = "cpu"
    virtual_ranks: bool = False
    notes: str = ""


@runtime_checkable
class Path(Protocol):
    """An implementation of the front. Third parties register theirs (see ``registry``).

    ``batches_launches`` says that one call with several launches gives the same bits as one call
    per launch; the audit then saves the calls.
    """

    @property
    def name(self) -> str:
        """Canonical name with its options, such as ``general:reduce=ring_bf16``."""
        ...

    @property
    def declared(self) -> Declared:
        """The arithmetic this path says it does."""
        ...

    @property
    def batches_launches(self) -> bool:
        """Whether ``run`` may get several launches in one call."""
        ...

    @property
    def outputs(self) -> tuple[str, ...]:
        """Which of ``OUTPUTS`` the path fills where the launch has the inputs for them."""
        ...

    def unavailable(self) -> str | None:
        """Why this path cannot run here, or None where it can."""
        ...

    def check(self, launch: Launch) -> None:
        """Refuse what the path is not prepared for.

        Raises:
            EnvelopeError: width, ranks, geometry or scoring rule outside the path's envelope.
        """
        ...

    def run(self, launch: Launch, out: Routed) -> None:
        """Write every element of ``out``."""
        ...


class Captured(Protocol):
    """Work of a path that was recorded once, such as a CUDA graph, and runs on other inputs."""

    def replay(self, launch: Launch, out: Routed) -> None:
        """Run on the launch's inputs.

        ``out`` holds what the outputs hold before, poison or an older result, and gets the new.
        """
        ...


@runtime_checkable
class CapturingPath(Path, Protocol):
    """A path that is served by replays of a captured launch; the audit checks those too."""

    def capture(self, launch: Launch) -> Captured | None:
        """Record one launch's work; the result runs any launch of the same shape and weights.

        None where what the path runs on can record nothing, such as Triton's interpreter.
        """
        ...


def why_unavailable(path: Path) -> str | None:
    """Return why a path cannot run here, or None where it can.

    Raises:
        InputError: ``unavailable()`` returns something else, which says neither.
    """
    reason: object = path.unavailable()
    if reason is None or (isinstance(reason, str) and reason.strip()):
        return reason
    got = f"{type(reason).__name__} {reason!r:.60}"
    expected = "None where the path can run here, or a text that says why not"
    raise InputError("unavailable()", got, expected, str(path.name))


def check_width(width: int, where: str, limit: int = MAX_WIDTH) -> None:
    """Refuse a width that no launch is prepared for.

    Raises:
        EnvelopeError: ``width`` is not in 1..limit. There is no fallback.
    """
    if not 1 <= width <= limit:
        raise EnvelopeError("width", width, f"1..{limit}", where)
