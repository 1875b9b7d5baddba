"""Edge values with names, and rows that hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from ..boundary import RouterRow
from ..edges import BIAS_EDGES, LOGIT_EDGES
from ..errors import InputError
from .draws import Size, size


class NamedValue(NamedTuple):
    """An edge value and its name, such as ``score_one`` and 17.32868."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class EdgeRow:
    """A row with edge values in it.

    Attributes:
        names: what is where, such as ``bias=-inf at 0``.
        row: what a select sees.
    """

    names: tuple[str, ...]
    row: RouterRow


def named_logits(*, finite: bool = False) -> SearchStrategy[NamedValue]:
    """Return FP32 logits at which a select's arithmetic changes; ``finite`` leaves out the others.

    They shrink to 0. ``neartie.banks.edges.LOGIT_EDGES`` has them by name.
    """
    return st.sampled_from(_named(LOGIT_EDGES, finite))


def named_biases(*, finite: bool = False) -> SearchStrategy[NamedValue]:
    """Return FP32 biases at which a select's arithmetic changes, as ``named_logits``."""
    return st.sampled_from(_named(BIAS_EDGES, finite))


def _named(edges: Mapping[str, float], finite: bool) -> list[NamedValue]:
    pairs = [NamedValue(name, value) for name, value in edges.items()]
    return [pair for pair in pairs if not finite or np.isfinite(pair.value)]


def edge_rows(
    *, experts: Size | None = None, top_k: Size | None = None, finite: bool = False
) -> SearchStrategy[EdgeRow]:
    """Return rows in which some logits and biases are edge values; the others are small numbers.

    They shrink to two experts and one edge value.

    Args:
        experts: experts of a row; 2 to 6 where it is left out.
        top_k: experts that are selected.
        finite: leave out NaN and the infinities.

    Raises:
        InputError: when it draws: sizes that contradict each other.
    """

    @st.composite
    def rows(draw: DrawFn) -> EdgeRow:
        wide = size(draw, experts, st.integers(2, 6))
        selected = size(draw, top_k, st.integers(1, wide))
        if not 1 <= selected <= wide:
            raise InputError("top_k", selected, f"1..{wide}", "edge_rows")
        # Exact in FP32 and all different: a tie is there by an edge value or not at all.
        logits = np.array([-number / 8 for number in range(wide)], np.float32)
        bias = np.zeros(wide, np.float32)
        places = st.tuples(st.sampled_from(("logit", "bias")), st.integers(0, wide - 1))
        names = []
        for kind, expert in draw(st.lists(places, min_size=1, max_size=3, unique=True)):
            edge = draw((named_logits if kind == "logit" else named_biases)(finite=finite))
            (logits if kind == "logit" else bias)[expert] = edge.value
            names.append(f"{kind}={edge.name} at {expert}")
        return EdgeRow(tuple(names), RouterRow(logits, bias, selected))

    return rows()
