"""Ways to make rows on which paths differ. A new one is a function in a file here, and a line."""

from __future__ import annotations

from typing import Final

from .base import Strategy
from .biases import BIASES, ROUNDING
from .crossings import CROSSINGS
from .edges import EDGES, MUTATIONS, SPECIALS
from .experts import BLOCKS, NEIGHBOURS, POSITIONS, WINNERS
from .groups import GROUPS
from .plain import RANDOM, REAL
from .ties import BINADES, MANY, NARROW, SLOT_TIES

STRATEGIES: Final[dict[str, Strategy]] = {
    strategy.name: strategy
    for strategy in (
        RANDOM, REAL, SLOT_TIES, BINADES, MANY, NARROW, CROSSINGS, BIASES, ROUNDING, EDGES,
        SPECIALS, WINNERS, NEIGHBOURS, BLOCKS, POSITIONS, GROUPS, MUTATIONS,
    )
}  # fmt: skip
"""By name, in the order of a round: each makes one scene in its turn."""
