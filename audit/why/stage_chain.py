"""Two paths cut into the same stages, and any mixture of them run on the same rows.

A mixture says for each stage whose it is. The front's stages are swapped through the launch: one
path's pieces, or its logits, are what the other one starts from. The select's stages are swapped
where both paths offer them (``StagedPath``); what cannot be cut is one stage, and it is said why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...banks.errors import InputError
from ...kernels.contract import F32, I32, Launch, Path, Routed
from ...kernels.select_stages import SELECT_STAGES, Chosen, Keyed, Scored, SelectSteps, StagedPath
from ..launching import run_path, same_bits

BASELINE_SIDE: Final = 0
CANDIDATE_SIDE: Final = 1
PROJECT, EXCHANGE, FRONT, SELECT = "project", "exchange", "project+exchange", "select"
Mixture = tuple[int, ...]
"""By stage, the side (0 baseline, 1 candidate) that runs it."""


@dataclass(frozen=True)
class Cut:
    """Stages that both paths can be cut into, and why there are no more.

    Attributes:
        stages: names in the order of the work.
        reasons: one text for each stage that stands for several.
        select_cut: whether the select's four stages are there.
    """

    stages: tuple[str, ...]
    reasons: tuple[str, ...]
    select_cut: bool

    def mixture(self, side: int, *others: str) -> Mixture:
        """All stages of one side, but for those named."""
        return tuple(1 - side if stage in others else side for stage in self.stages)


@dataclass(frozen=True, eq=False)
class Mixed:
    """What a mixture gives on one rank.

    Attributes:
        latent: [row, latent] BF16; None where there is none.
        keys: [row, expert]; None where the select is one piece.
        ids: [row, slot] int32.
        weights: [row, slot] float32.
    """

    latent: npt.NDArray[Any] | None
    keys: npt.NDArray[Any] | None
    ids: I32
    weights: F32


def cut_paths(paths: Sequence[Path], launch: Launch) -> Cut:
    """Return the stages that both paths can be cut into for such launches.

    Raises:
        InputError: rows start before the logits, and a path does not show its own.
    """
    reasons: list[str] = []
    front = _front_stages(paths, launch, reasons)
    whole = [path.name for path in paths if not isinstance(path, StagedPath)]
    if whole:
        reasons.append(
            f"select: {' and '.join(dict.fromkeys(whole))} cannot be cut from the logits on, so "
            "score, bias, select and normalise are one stage"
        )
    stages = (*front, *((SELECT,) if whole else SELECT_STAGES))
    return Cut(stages, tuple(reasons), not whole)


def _front_stages(paths: Sequence[Path], launch: Launch, reasons: list[str]) -> tuple[str, ...]:
    pieces = (launch.latent_partials, launch.latent_shards, launch.logits_shards)
    if launch.hidden is None and all(piece is None for piece in pieces):
        return ()
    for path in paths:
        if launch.logits is None and "logits" not in path.outputs:
            expected = "a path that shows its logits, or a bank of logits"
            raise InputError("outputs", ", ".join(path.outputs), expected, path.name)
    if launch.hidden is None:
        return (EXCHANGE,)
    whole = [path.name for path in paths if not isinstance(path, StagedPath)]
    if whole:
        reasons.append(
            f"{FRONT}: {' and '.join(dict.fromkeys(whole))} does not show what its ranks hold "
            "before the exchange"
        )
        return (FRONT,)
    kinds = [_kind(path.projected(launch)) for path in paths if isinstance(path, StagedPath)]
    if kinds[0] != kinds[1]:
        reasons.append(
            f"{FRONT}: {paths[0].name} exchanges {kinds[0]} and {paths[1].name} {kinds[1]}; "
            "neither takes the other's"
        )
        return (FRONT,)
    return (PROJECT, EXCHANGE)


def _kind(launch: Launch) -> str:
    if launch.latent_partials is not None:
        return "latent partials (K-split)"
    return "no latent" if launch.latent_shards is None else "latent shards (N-split)"


class Mixer:
    """Runs mixtures of two paths on one launch; what they share is run once.

    Args:
        paths: baseline and candidate.
        cut: from ``cut_paths``.
        launch: rows of one width.
        rows: how many of them count; the rest filled up the last launch.
        rank: whose outputs are looked at.
    """

    def __init__(
        self, paths: Sequence[Path], cut: Cut, launch: Launch, rows: int, rank: int
    ) -> None:
        self.cut, self.rows, self.rank = cut, rows, rank
        self._paths, self._launch = paths, launch
        self._after_front: dict[Mixture, tuple[npt.NDArray[Any] | None, F32]] = {}
        self._values: dict[Mixture, Any] = {}
        self._routed: dict[Mixture, Routed] = {}
        self._front = len(cut.stages) - (len(SELECT_STAGES) if cut.select_cut else 1)

    def mixed(self, mixture: Mixture) -> Mixed:
        """Return what a mixture gives.

        Raises:
            PathError: a path raised.
        """
        latent, logits = self._exchanged(mixture[: self._front])
        if not self.cut.select_cut:
            out = self._whole_select(mixture)
            return Mixed(latent, None, out.ids[self.rank], out.weights[self.rank])
        ids, weights = self._stage(mixture, len(mixture) - 1, logits)
        keyed: Keyed = self._stage(mixture, self._front + 1, logits)
        return Mixed(latent, keyed.keys, ids, weights)

    def check(self) -> None:
        """Hold each path, cut into its stages, against the same path in one piece.

        Raises:
            InputError: they do not have the same bits: its stages are not what it runs.
        """
        for side, path in enumerate(self._paths):
            whole = run_path(path, self._launch)
            cut = self.mixed(self.cut.mixture(side))
            pairs = [(whole.ids[self.rank], cut.ids), (whole.weights[self.rank], cut.weights)]
            if whole.latent is not None and cut.latent is not None:
                pairs.append((whole.latent[self.rank], cut.latent))
            if not all(same_bits(mine[: self.rows], part) for mine, part in pairs):
                got = "other bits than in one piece"
                raise InputError("outputs by stages", got, "the same bits", path.name)

    def _exchanged(self, sides: Mixture) -> tuple[npt.NDArray[Any] | None, F32]:
        """Latent and logits of one rank after the front's stages."""
        if sides not in self._after_front:
            self._after_front[sides] = self._run_front(sides)
        return self._after_front[sides]

    def _run_front(self, sides: Mixture) -> tuple[npt.NDArray[Any] | None, F32]:
        launch = self._launch
        if not sides:
            assert launch.logits is not None, "a bank of logits alone"
            return None, launch.logits[: self.rows]
        if len(sides) == 2:
            first = self._paths[sides[0]]
            assert isinstance(first, StagedPath)
            launch = first.projected(launch)
        out = run_path(self._paths[sides[-1]], launch)
        # A bank whose logits come whole with pieces of a latent: the exchange copies them.
        logits = launch.logits if out.logits is None else out.logits[self.rank]
        assert logits is not None
        latent = None if out.latent is None else out.latent[self.rank, : self.rows]
        return latent, logits[: self.rows]

    def _whole_select(self, mixture: Mixture) -> Routed:
        if mixture not in self._routed:
            _, logits = self._exchanged(mixture[: self._front])
            filled = logits[np.arange(self._launch.rows) % self.rows]
            launch = replace(
                self._launch,
                hidden=None,
                latent_partials=None,
                latent_shards=None,
                logits_shards=None,
                logits=filled,
            )
            out = run_path(self._paths[mixture[-1]], launch)
            self._routed[mixture] = Routed(out.ids[:, : self.rows], out.weights[:, : self.rows])
        return self._routed[mixture]

    def _stage(self, mixture: Mixture, last: int, logits: F32) -> Any:
        """What stands after the stage numbered ``last`` of a select that is cut."""
        key = mixture[: last + 1]
        if key not in self._values:
            steps = self._steps(mixture[last])
            name = self.cut.stages[last]
            if name == "score":
                self._values[key] = steps.score(logits)
            else:
                before = self._stage(mixture, last - 1, logits)
                self._values[key] = _next(steps, before)
        return self._values[key]

    def _steps(self, side: int) -> SelectSteps:
        path = self._paths[side]
        assert isinstance(path, StagedPath)
        return path.select_stages(self._launch)


def _next(steps: SelectSteps, before: Scored | Keyed | Chosen) -> Any:
    if isinstance(before, Scored):
        return steps.bias(before)
    return steps.select(before) if isinstance(before, Keyed) else steps.normalise(before)
