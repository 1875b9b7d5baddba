"""A finding of a pasted case, with the rows that show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..metrics.findings import Bools, Finding


@dataclass(frozen=True, slots=True)
class Found:
    """A finding, the rows and the path it is seen on (None: both together), and facts about it."""

    name: Finding
    text: str
    rows: tuple[int, ...]
    path: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def listed(mask: Bools) -> tuple[int, ...]:
    """Rows of a mask, as plain integers."""
    return tuple(int(row) for row in np.flatnonzero(mask))
