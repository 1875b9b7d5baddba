"""The loop: strategies in turn until a budget is spent or something was found."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from ..launching import PathError
from .arena import Arena, Run
from .difference import Difference
from .scene import I32, Scene
from .space import Space
from .strategies.base import Strategy

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Tried:
    """What one strategy did.

    Attributes:
        rows: run through both paths and compared, with those of its probes.
        differing: rows (on some rank) that differ as the policy does not allow.
        refused: scenes that a path could not compute: nothing is known of them.
        reason: the first reason for that, or why the strategy has nothing to do here.
        idle: whether it has nothing to do here.
    """

    name: str
    seeks: str
    scenes: int = 0
    rows: int = 0
    differing: int = 0
    refused: int = 0
    reason: str = ""
    idle: bool = False


_MOST_REFUSED: Final = 20


@dataclass(frozen=True, eq=False)
class Found:
    """The first row of a finding, and the scene that it stands in.

    Attributes:
        difference: what is said of the row.
        scene: all rows that were run with it.
        run: what both paths wrote then.
        strategy: that made it.
        after_rows: rows of all strategies up to the end of its scene.
        after_seconds: time up to there; the only figure here that two runs do not share.
    """

    difference: Difference
    scene: Scene
    run: Run
    strategy: str
    after_rows: int
    after_seconds: float


@dataclass(frozen=True, slots=True)
class Budget:
    """When to stop: whichever comes first; None sets no bound.

    Attributes:
        rows: rows of all strategies; the last scene may go over it.
        seconds: of wall time.
        keep_going: spend all of it; else stop after the round in which something was found.
    """

    rows: int | None
    seconds: float | None
    keep_going: bool


class _Turns:
    """A strategy at work, and what it did so far."""

    def __init__(self, strategy: Strategy, space: Space, seed: int) -> None:
        reason = strategy.idle(space)
        self.tried = Tried(
            strategy.name, strategy.seeks, reason=reason or "", idle=reason is not None
        )
        self._strategy, self._space, self._seed = strategy, space, seed
        self._scenes: Iterator[Scene] = iter(())

    def next(self) -> Scene:
        """Return its next scene.

        Raises:
            PathError: a probe raised. That ends a generator: the next call starts a new one.
        """
        scene = next(self._scenes, None)
        if scene is None:
            numbers = _numbers(self._seed, self._strategy.name, self.tried.refused)
            self._scenes = iter(self._strategy.scenes(self._space, numbers))
            scene = next(self._scenes)
        return scene

    @property
    def hopeless(self) -> bool:
        """Whether the paths computed none of its scenes: refusals spend no rows."""
        return self.tried.refused >= _MOST_REFUSED and not self.tried.scenes

    def refused(self, reason: str) -> None:
        """Count a scene that a path could not compute."""
        tried = self.tried
        self.tried = replace(tried, refused=tried.refused + 1, reason=tried.reason or reason)

    def ran(self, differing: int) -> None:
        """Count a scene."""
        tried = self.tried
        self.tried = replace(tried, scenes=tried.scenes + 1, differing=tried.differing + differing)

    def add_rows(self, rows: int) -> None:
        """Count rows, of a scene or of probes."""
        self.tried = replace(self.tried, rows=self.tried.rows + rows)


@dataclass
class Search:
    """One hunt's state; what was done so far stays readable when it is interrupted."""

    arena: Arena
    budget: Budget
    seed: int
    progress: Progress | None = None
    rows: int = 0
    seconds: float = 0.0
    found: dict[tuple[str, str], Found] = field(default_factory=dict)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    """Rows of each finding."""
    _turns: list[_Turns] = field(default_factory=list)
    _began: float = 0.0
    _probed: int = 0

    @property
    def tried(self) -> tuple[Tried, ...]:
        """What each strategy did, in the order of a round."""
        return tuple(one.tried for one in self._turns)

    def run(
        self,
        space: Callable[[Callable[[str, Scene], I32]], Space],
        strategies: Sequence[Strategy],
    ) -> None:
        """Search until the budget is spent, or a round has found something.

        Args:
            space: makes the space, given the probe.
            strategies: in the order of a round.
        """
        self._began = time.perf_counter()
        here = space(self._probe)
        self._turns = [_Turns(strategy, here, self.seed) for strategy in strategies]
        running = [one for one in self._turns if not one.tried.idle]
        while running and not self._spent():
            for one in running:
                self._turn(one)
                if self._spent():
                    return
            running = [one for one in running if not one.hopeless]
            if self.found and not self.budget.keep_going:
                return

    def _probe(self, role: str, scene: Scene) -> I32:
        self._probed += scene.rows
        return self.arena.ids(role, scene)

    def _turn(self, turns: _Turns) -> None:
        self._probed = 0
        try:
            scene = turns.next()
            run = self.arena.run(scene)
        except PathError as error:
            turns.refused(str(error))
            self._count(turns, self._probed)
            return
        self._count(turns, self._probed + scene.rows)
        turns.ran(len({one.row for one in run.differences}))
        for one in run.differences:
            self.counts[one.signature] = self.counts.get(one.signature, 0) + 1
            if one.signature not in self.found:
                name = turns.tried.name
                self.found[one.signature] = Found(one, scene, run, name, self.rows, self.seconds)

    def _count(self, turns: _Turns, rows: int) -> None:
        turns.add_rows(rows)
        self.rows += rows
        self.seconds = time.perf_counter() - self._began
        if self.progress is not None:
            done, total = self.rows, self.budget.rows or 0
            if self.budget.rows is None and self.budget.seconds:
                done, total = int(10 * self.seconds), int(10 * self.budget.seconds)
            self.progress(done, total, f"{self.rows:,} rows, {len(self.found)} found")

    def _spent(self) -> bool:
        rows, seconds = self.budget.rows, self.budget.seconds
        if rows is not None and self.rows >= rows:
            return True
        return seconds is not None and time.perf_counter() - self._began >= seconds


def _numbers(seed: int, name: str, start: int) -> np.random.Generator:
    """A strategy's own random numbers: other strategies do not move them."""
    sequence = np.random.SeedSequence((seed, start, *name.encode()))
    return np.random.Generator(np.random.Philox(sequence))
