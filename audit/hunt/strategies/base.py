"""What a strategy is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ..scene import Scene
from ..space import Space

Scenes = Iterator[Scene]


def _always(space: Space) -> str | None:
    del space
    return None


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to make rows on which paths are likely to differ.

    Attributes:
        name: in reports, and in ``--only`` and ``--skip``.
        seeks: what it makes, in one phrase.
        scenes: (space, random numbers of its own) -> scenes of about ``space.rows`` rows, without
            an end. The same numbers give the same scenes.
        idle: why it has nothing to do for a space, or None.
    """

    name: str
    seeks: str
    scenes: Callable[[Space, np.random.Generator], Scenes]
    idle: Callable[[Space], str | None] = _always
