"""From a found row to the smallest one that still shows the same finding: greedy, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from ..launching import PathError
from .arena import Arena, Run, some_rows
from .difference import Difference
from .scene import F32, Scene
from .search import Found

MOST_TRIALS: Final = 800
"""Scenes tried for one witness: some seconds; what is left then stays as it is."""
# Logits that may stand for "no candidate", the plainest first.
_BACKGROUNDS: Final = (0.0, -1.0, -4.0, -16.0, -64.0, -200.0)
# A bias that all experts share, the plainest first.
_LEVELS: Final = (0.0, 1.0, -1.0, 2.0, -2.0)
_MOST: Final = 0.5
_HOPELESS: Final = 24
_KEPT_BITS: Final = (2, 4, 8, 12, 16)


@dataclass(frozen=True, eq=False)
class Smallest:
    """A scene that shows a finding.

    Attributes:
        scene: with as few rows, and logits as plain, as were found.
        difference: what is said of it; its row is that of the scene.
        run: what both paths wrote for the scene.
        reproduced: whether the finding showed again when it was run once more; if not, the scene
            is the launch as it was found. None: it was not tried.
        trials: scenes that were run for it.
    """

    scene: Scene
    difference: Difference
    run: Run
    reproduced: bool | None
    trials: int


class _Reducer:
    """Keeps the smallest scene so far, and tries smaller ones against it."""

    def __init__(self, arena: Arena, found: Found) -> None:
        self.arena, self.trials = arena, 0
        self.scene, self.difference, self.run = found.scene, found.difference, found.run

    def take(self, scene: Scene) -> bool:
        """Take a scene if it shows the same finding, with no more experts exchanged."""
        if self.trials >= MOST_TRIALS:
            return False
        self.trials += 1
        try:
            run = self.arena.run(scene)
        except PathError:
            return False
        for one in run.differences:
            fewer = len(one.dropped) <= len(self.difference.dropped)
            if one.signature == self.difference.signature and fewer:
                self.scene, self.difference, self.run = scene, one, run
                return True
        return False

    def first(self, scenes: Iterable[Scene]) -> bool:
        """Take the first scene that shows the finding."""
        return any(self.take(scene) for scene in scenes)

    @property
    def width_may_change(self) -> bool:
        """Whether another width leaves the arithmetic as it is, by both declarations.

        A select that changes with the width would make another finding of a narrower launch.
        """
        paths = (self.arena.baseline, self.arena.candidate)
        return all(path.declared.select_row_independent for path in paths)

    def row(self, place: int) -> F32:
        """Logits [expert] of a row of the scene."""
        logits: F32 = self.scene.logits[place]
        return logits

    def bias(self) -> F32:
        """The bias [expert] of the scene."""
        return self.scene.bias

    def with_bias(self, bias: F32) -> Scene:
        """The scene with another bias."""
        return replace(self.scene, bias=bias)

    def with_row(self, place: int, row: F32) -> Scene:
        """The scene with other logits in a row."""
        logits = self.scene.logits.copy()
        logits[place] = row
        return self.scene.with_rows(logits)


def as_found(found: Found) -> Smallest:
    """Return a finding as it was found: its launch, and what was written for that."""
    scene, run, one = found.scene, found.run, found.difference
    first = one.row // scene.width * scene.width
    part = slice(first, first + scene.width)
    cut = Run(some_rows(run.a, part), some_rows(run.b, part), run.differences)
    return Smallest(
        scene.with_rows(scene.logits[part]), replace(one, row=one.row - first), cut, None, 0
    )


def minimise(arena: Arena, found: Found, *, thorough: bool = True) -> Smallest:
    """Return the smallest scene that still shows a finding: same kind, same faulty side.

    Args:
        arena: that it was found in.
        found: the finding.
        thorough: try each expert's logit and bias by itself; else only what a few runs can do.
    """
    reducer = _Reducer(arena, found)
    if not reducer.first(_contexts(reducer)):
        return replace(as_found(found), reproduced=False, trials=reducer.trials)
    _quickly(reducer)
    if thorough:
        for place in _rows_with_logits(reducer):
            values, change = partial(reducer.row, place), partial(reducer.with_row, place)
            _plain(reducer, values, change, _BACKGROUNDS)
            _simpler(reducer, values, change)
        # Plainer logits may need less of a bias.
        if not _plain_bias(reducer):
            _plain(reducer, reducer.bias, reducer.with_bias, (0.0,))
            _simpler(reducer, reducer.bias, reducer.with_bias)
    return Smallest(reducer.scene, reducer.difference, reducer.run, True, reducer.trials)


def _quickly(reducer: _Reducer) -> None:
    _fewer_rows(reducer)
    reducer.first(_fewer_ranks(reducer))
    _plain_bias(reducer)
    for place in _rows_with_logits(reducer):
        reducer.first(_winners_only(reducer, place))


def _contexts(reducer: _Reducer) -> Iterator[Scene]:
    """The row alone in the narrowest launch, then its launch, then all that was run with it."""
    scene, row = reducer.scene, reducer.difference.row
    alone = scene.logits[row : row + 1]
    if reducer.width_may_change:
        yield from (scene.with_rows(alone, width) for width in range(1, scene.width))
    yield scene.with_rows(alone)
    first = row // scene.width * scene.width
    yield scene.with_rows(scene.logits[first : first + scene.width])
    before = max(0, first - scene.width)
    yield scene.with_rows(scene.logits[before : first + scene.width])
    yield scene


def _fewer_rows(reducer: _Reducer) -> None:
    """Drop whole launches, then single rows of the last one, then make the others zeros."""
    width = reducer.scene.width
    while reducer.scene.rows > width:
        rows = reducer.scene.logits
        halves = len(rows) // width // 2 * width or width
        parts = (rows[:-halves], rows[halves:])
        if not reducer.first(reducer.scene.with_rows(part) for part in parts):
            break
    if reducer.width_may_change and reducer.scene.rows == width:
        while reducer.first(_without_one(reducer.scene)):
            pass
    for row in range(reducer.scene.rows):
        if row != reducer.difference.row:
            reducer.take(reducer.with_row(row, np.zeros_like(reducer.row(row))))


def _without_one(scene: Scene) -> Iterator[Scene]:
    """A launch without one of its rows."""
    for row in range(scene.rows if scene.rows > 1 else 0):
        yield scene.with_rows(np.delete(scene.logits, row, axis=0), scene.width - 1)


def _fewer_ranks(reducer: _Reducer) -> Iterator[Scene]:
    ranks = reducer.scene.ranks
    for fewer in range(1, ranks):
        if ranks % fewer == 0:
            yield replace(reducer.scene, ranks=fewer)


def _plain_bias(reducer: _Reducer) -> bool:
    """Give all experts one bias, the plainest that shows the finding."""
    return not reducer.scene.bias.any() or reducer.first(
        reducer.with_bias(np.full_like(reducer.scene.bias, value)) for value in _LEVELS
    )


def _rows_with_logits(reducer: _Reducer) -> list[int]:
    """The witness's own row first, then the others that could not be made zeros."""
    own = reducer.difference.row
    others = [row for row in range(reducer.scene.rows) if reducer.row(row).any() and row != own]
    return [own, *others]


def _winners_only(reducer: _Reducer, place: int) -> Iterator[Scene]:
    """A row with all experts at one logit but those that a path selects there."""
    values = reducer.row(place)
    out = (reducer.run.a, reducer.run.b)
    kept = np.unique(np.concatenate([side.ids[:, place].ravel() for side in out]))
    kept = kept[(kept >= 0) & (kept < len(values))]
    # Infinities and NaN are another cause: they come in only where most of the row is that.
    common = _most_common(values)
    mostly = [common] if _share(values, common) > _MOST else []
    for value in dict.fromkeys([*_BACKGROUNDS, *mostly]):
        row = np.full_like(values, value)
        row[kept] = values[kept]
        yield reducer.with_row(place, row)


def _plain(
    reducer: _Reducer,
    values: Callable[[], F32],
    change: Callable[[F32], Scene],
    backgrounds: Sequence[float],
) -> None:
    """Bring elements that do not matter to what most have, else to the first value that helps."""
    common = _most_common(values())
    mostly = _share(values(), common) > _MOST
    for value in [common] if mostly else backgrounds:
        if _to_background(reducer, values, change, value):
            return


def _share(values: F32, value: float) -> float:
    return float((values.view(np.uint32) == np.float32(value).view(np.uint32)).mean())


def _most_common(values: F32) -> float:
    """The value that most elements have; NaN counts as one value."""
    bits, counts = np.unique(values.view(np.uint32), return_counts=True)
    return float(bits[np.argmax(counts)].view(np.float32))


def _to_background(
    reducer: _Reducer, values: Callable[[], F32], change: Callable[[F32], Scene], value: float
) -> int:
    """Set ever smaller runs of elements to one value where the finding stays; count those."""
    size, total = len(values()), 0
    while size >= 1:
        taken, tried = 0, 0
        for start in range(0, len(values()), size):
            if not _all_are(values()[start : start + size], value):
                changed = values().copy()
                changed[start : start + size] = value
                tried += 1
                taken += reducer.take(change(changed))
        total += taken
        # So many runs matter that shorter ones will too.
        if tried > _HOPELESS and not taken:
            break
        size //= 2
    return total


def _all_are(part: F32, value: float) -> bool:
    return bool((part.view(np.uint32) == np.float32(value).view(np.uint32)).all())


def _simpler(reducer: _Reducer, values: Callable[[], F32], change: Callable[[F32], Scene]) -> None:
    """Give each element that is not the background's a shorter number."""
    common = _most_common(values())
    for place in range(len(values())):
        if _all_are(values()[place : place + 1], common):
            continue
        reducer.first(
            change(_replaced(values(), place, short)) for short in _shorter(values()[place])
        )


def _replaced(values: F32, place: int, value: float) -> F32:
    changed = values.copy()
    changed[place] = value
    return changed


def _shorter(value: np.float32) -> list[float]:
    """Plainer numbers near a value: 0, whole, then more and more of its bits."""
    if not np.isfinite(value) or value == 0.0:
        return []
    wide = float(value)
    fraction, exponent = np.frexp(wide)
    tried = [0.0, float(np.round(wide)), float(np.round(2.0 * wide) / 2.0)]
    tried += [
        float(np.ldexp(np.round(np.ldexp(fraction, bits)), int(exponent) - bits))
        for bits in _KEPT_BITS
    ]
    return [short for short in dict.fromkeys(tried) if np.float32(short) != value]
