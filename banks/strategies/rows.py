"""Router rows whose keys around a slot are exactly so many FP32 steps apart, or equal."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from ..boundary import CENTERS, MOST_SPREAD, Boundary, RouterRow, boundary_row
from ..errors import InputError
from .draws import Size, permutation, size, whole_numbers

_OFFSET = 1 / 64
_SCORES = (0.5, 0.53125)


def near_ties(
    *,
    experts: Size | None = None,
    top_k: Size | None = None,
    slot: Size | None = None,
    gap: Size | None = None,
    biased: bool = True,
) -> SearchStrategy[RouterRow]:
    """Return rows whose keys of a slot and the next are exactly ``gap`` FP32 steps apart.

    Keys are FP32(sigmoid) + bias in FP32, the reference's biased scores; every other key is further
    away than four times the gap, and at least 16 steps. Which experts they are, which other experts
    are above and the bias of each expert are drawn. They shrink to two experts, logits at 0, no
    bias.

    Args:
        experts: experts of a row; 2 to 6 where it is left out.
        top_k: experts that are selected, below ``experts``.
        slot: 1-based slot of the higher key; ``top_k``, the boundary, where it is left out.
        gap: FP32 steps, 0 to 4096; 0 to 4 where it is left out.
        biased: whether experts may have biases.

    Raises:
        InputError: when it draws: sizes that contradict each other.
    """

    @st.composite
    def rows(draw: DrawFn) -> RouterRow:
        wide, selected = _sizes(draw, experts, top_k, 2)
        at = Boundary(
            slot=selected if slot is None else size(draw, slot, st.nothing()),
            gap=size(draw, gap, st.integers(0, 4)),
            center=_center(draw, biased),
            score=draw(st.sampled_from(_SCORES)),
        )
        return _row(draw, wide, selected, at, biased)

    return rows()


def tie_groups(
    *,
    members: Size | None = None,
    experts: Size | None = None,
    top_k: Size | None = None,
    biased: bool = True,
) -> SearchStrategy[RouterRow]:
    """Return rows with ``members`` experts on one key, some within the top_k and some outside.

    Equal keys may come from equal scores, or from other scores and biases that make up for it. They
    shrink to two experts of logit 0.

    Args:
        members: experts that share the boundary's key, at least 2; 2 to 4 where it is left out.
        experts: experts of a row; up to two more than ``members`` where it is left out.
        top_k: experts that are selected, below ``experts``.
        biased: whether experts may have biases.

    Raises:
        InputError: when it draws: sizes that contradict each other.
    """

    @st.composite
    def rows(draw: DrawFn) -> RouterRow:
        tied = size(draw, members, st.integers(2, 4))
        if tied < 2:
            raise InputError("members", tied, "at least 2", "tie_groups")
        usual = st.integers(tied, tied + 2)
        wide, selected = _sizes(draw, usual if experts is None else experts, top_k, tied)
        inside = draw(st.integers(max(1, tied - (wide - selected)), min(tied - 1, selected)))
        at = Boundary(
            slot=selected,
            gap=0,
            high=inside,
            low=tied - inside,
            center=_center(draw, biased),
            score=draw(st.sampled_from(_SCORES)),
        )
        return _row(draw, wide, selected, at, biased)

    return rows()


def _sizes(draw: DrawFn, experts: Size | None, top_k: Size | None, least: int) -> tuple[int, int]:
    """Experts and top_k that leave somebody outside."""
    wide = size(draw, experts, st.integers(2, 6))
    if wide < least:
        raise InputError("experts", wide, f"at least {least}", "strategies")
    selected = size(draw, top_k, st.integers(1, wide - 1))
    if not 1 <= selected < wide:
        raise InputError("top_k", selected, f"1..{wide - 1}", "strategies")
    return wide, selected


def _center(draw: DrawFn, biased: bool) -> float:
    return draw(st.sampled_from(CENTERS)) if biased else 0.0


def _row(draw: DrawFn, experts: int, top_k: int, at: Boundary, biased: bool) -> RouterRow:
    order = permutation(draw, experts)
    offsets = None
    if biased:
        most = int(MOST_SPREAD / _OFFSET)
        # Below 1/2 keys are finer than the scores above it, so none but multiples of 2 exist there.
        least = 0 if at.center == 0.0 and at.score == _SCORES[0] else -most
        offsets = [number * _OFFSET for number in whole_numbers(draw, experts, least, most)]
    return boundary_row(order, top_k, at, offsets)
