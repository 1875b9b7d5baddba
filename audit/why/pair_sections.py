"""What both paths together tell on a bank: which stage, how much is noise, what swaps move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from ...banks.errors import InputError
from ..compare import BASELINE, CANDIDATE
from ..launching import PathError
from .asked import Asked
from .noise import noise_swaps
from .section import NotRun, Section
from .stages import swap_stages
from .swap_effect import swap_effects

_QUESTIONS: Final[tuple[tuple[str, Callable[..., Any]], ...]] = (
    ("Stages", swap_stages),
    ("Noise", noise_swaps),
    ("Effect of the swaps", swap_effects),
)


def pair_sections(asked: Asked) -> Iterator[Section]:
    """Yield each question's answer on each bank; none where a path is not here (that is told)."""
    paths = asked.paths
    if len(paths) < 2 or any(path.unavailable() for path in paths.values()):
        return
    for bank in asked.banks:
        rows = min(asked.rows, bank.rows)
        for title, answer in _QUESTIONS:
            try:
                yield answer(
                    paths[BASELINE],
                    paths[CANDIDATE],
                    bank,
                    width=asked.width,
                    ranks=asked.ranks,
                    rows=rows,
                )
            except (InputError, PathError) as error:
                yield NotRun(f"{title} on {bank.name}", str(error))
