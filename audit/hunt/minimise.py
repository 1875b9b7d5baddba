"""From a found row to the smallest one that still shows the same finding: greedy, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from ..launching import PathError
from .arena import Arena
from .difference import Difference
from .scene import F32, Scene
from .search import Found

MOST_TRIALS: Final = 800
"""Scenes tried for one witness: some seconds; what is left then stays as it is."""
# Logits that may stand for "no candidate", the plainest first.
_BACKGROUNDS: Final = (0.0, -1.0, -4.0, -16.0, -64.0, -200.0)
# A bias that all experts share, the plainest first.
_LEVELS: Final = (1.0, -1.0, 2.0, -2.0)
_MOST: Final = 0.5
_HOPELESS: Final = 24
_KEPT_BITS: Final = (2, 4, 8, 12, 16)


@dataclass(frozen=True, eq=False)
class Smallest:
    """A scene that shows a finding.

    Attributes:
        scene: with as few rows, and logits as plain, as were found.
        difference: what is said of it; its row is that of the scene.
        reproduced: whether the finding showed again when it was run once more; if not, the scene
            is the found one. None: it was not tried.
        trials: scenes that were run for it.
    """

    scene: Scene
    difference: Difference
    reproduced: bool | None
    trials: int


class _Reducer:
    """Keeps the smallest scene so far, and tries smaller ones against it."""

    def __init__(self, arena: Arena, found: Found) -> None:
        self.arena, self.trials = arena, 0
        self.scene, self.difference = found.scene, found.difference

    def take(self, scene: Scene) -> bool:
        """Take a scene if it shows the same finding, with no more experts exchanged."""
        if self.trials >= MOST_TRIALS:
            return False
        self.trials += 1
        try:
            differences = self.arena.differences(scene)
        except PathError:
            return False
        for one in differences:
            fewer = len(one.dropped) <= len(self.difference.dropped)
            if one.signature == self.difference.signature and fewer:
                self.scene, self.difference = scene, one
                return True
        return False

    def first(self, scenes: Iterable[Scene]) -> bool:
        """Take the first scene that shows the finding."""
        return any(self.take(scene) for scene in scenes)

    def row(self, place: int) -> F32:
        """Logits [expert] of a row of the scene."""
        logits: F32 = self.scene.logits[place]
        return logits

    def with_row(self, place: int, row: F32) -> Scene:
        """The scene with other logits in a row."""
        logits = self.scene.logits.copy()
        logits[place] = row
        return self.scene.with_rows(logits)


def minimise(arena: Arena, found: Found, *, plain: bool = True) -> Smallest:
    """Return the smallest scene that still shows a finding: same kind, same faulty side.

    Args:
        arena: that it was found in.
        found: the finding.
        plain: make bias and logits plain too; else only the rows around it are dropped.
    """
    reducer = _Reducer(arena, found)
    if not reducer.first(_contexts(arena, found)):
        return Smallest(found.scene, found.difference, False, reducer.trials)
    if plain:
        _fewer_rows(reducer)
        reducer.first(_fewer_ranks(reducer))
        _plain_bias(reducer)
        for place in _rows_with_logits(reducer):
            _plain_background(reducer, place)
            _simpler(reducer, partial(reducer.row, place), partial(reducer.with_row, place))
        # Plainer logits may need less of a bias.
        _plain_bias(reducer)
    return Smallest(reducer.scene, reducer.difference, True, reducer.trials)


def _contexts(arena: Arena, found: Found) -> Iterator[Scene]:
    """The row alone in the narrowest launch, then its launch, then all that was run with it."""
    scene, row = found.scene, found.difference.row
    alone = scene.logits[row : row + 1]
    # A select that may change with the width would make another finding of it.
    paths = (arena.baseline, arena.candidate)
    if all(path.declared.select_row_independent for path in paths):
        yield from (scene.with_rows(alone, width) for width in range(1, scene.width))
    yield scene.with_rows(alone)
    first = row // scene.width * scene.width
    yield scene.with_rows(scene.logits[first : first + scene.width])
    before = max(0, first - scene.width)
    yield scene.with_rows(scene.logits[before : first + scene.width])
    yield scene


def _fewer_rows(reducer: _Reducer) -> None:
    """Drop whole launches, then make the other rows zeros."""
    scene = reducer.scene
    width = scene.width
    while reducer.scene.rows > width:
        rows = reducer.scene.logits
        halves = len(rows) // width // 2 * width or width
        if not reducer.first(
            reducer.scene.with_rows(part) for part in (rows[:-halves], rows[halves:])
        ):
            break
    for row in range(reducer.scene.rows):
        if row != reducer.difference.row:
            logits = reducer.scene.logits.copy()
            logits[row] = 0.0
            reducer.take(reducer.scene.with_rows(logits))


def _fewer_ranks(reducer: _Reducer) -> Iterator[Scene]:
    ranks = reducer.scene.ranks
    for fewer in range(1, ranks):
        if ranks % fewer == 0:
            yield replace(reducer.scene, ranks=fewer)


def _plain_bias(reducer: _Reducer) -> None:
    zeros = np.zeros_like(reducer.scene.bias)
    if not reducer.scene.bias.any() or reducer.take(replace(reducer.scene, bias=zeros)):
        return
    levels = (np.full_like(zeros, value) for value in _LEVELS)
    if reducer.first(replace(reducer.scene, bias=level) for level in levels):
        return
    level = _most_common(reducer.scene.bias)

    def change(bias: F32) -> Scene:
        return replace(reducer.scene, bias=bias)

    def bias() -> F32:
        return reducer.scene.bias

    for value in dict.fromkeys((0.0, level)):
        _to_background(reducer, bias, change, value)
    _simpler(reducer, bias, change)


def _rows_with_logits(reducer: _Reducer) -> list[int]:
    """The witness's own row first, then the others that could not be made zeros."""
    own = reducer.difference.row
    others = [row for row in range(reducer.scene.rows) if reducer.row(row).any() and row != own]
    return [own, *others]


def _plain_background(reducer: _Reducer, place: int) -> None:
    """Bring experts that do not matter to one logit: first all but the winners, then each."""
    values, change = partial(reducer.row, place), partial(reducer.with_row, place)
    common = _most_common(values())
    backgrounds = list(_BACKGROUNDS)
    # Infinities and NaN are another cause: they stay where they are, and come nowhere else.
    if _share(values(), common) > _MOST and common not in backgrounds:
        backgrounds.insert(0, common)
    for value in backgrounds:
        row = np.full_like(values(), value)
        kept = [*reducer.difference.dropped, *reducer.difference.added, *_top(reducer, place)]
        row[kept] = values()[kept]
        if reducer.take(change(row)):
            _to_background(reducer, values, change, value)
            return
    for value in backgrounds:
        if _to_background(reducer, values, change, value):
            return


def _share(values: F32, value: float) -> float:
    return float((values.view(np.uint32) == np.float32(value).view(np.uint32)).mean())


def _top(reducer: _Reducer, row: int) -> list[int]:
    """Experts that either path selects, as far as they are ids at all."""
    out = reducer.arena.outputs(reducer.scene)
    experts = reducer.scene.logits.shape[1]
    ids = np.unique(np.concatenate([side.ids[:, row].ravel() for side in out]))
    return [int(e) for e in ids if 0 <= e < experts]


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
