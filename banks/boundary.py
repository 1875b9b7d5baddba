"""One router row whose keys around a slot are exactly as far apart as one asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from .errors import InputError
from .generate import F32
from .memory import MemoryBank, memory_bank, numbers
from .planted import keys32, logits_near, steps, value_at

MOST_GAP: Final = 4096
"""Widest gap in FP32 ULP that ``boundary_row`` plants."""

# Experts that are not at the boundary have logits of 1..5 and -5..-1: their scores are above 0.73
# and below 0.27. With biases of the spread below, no key of theirs comes near that of score 1/2.
_NEAREST: Final = 1.0
_FARTHEST: Final = 5.0
MOST_SPREAD: Final = 0.125
"""How far each bias may lie from ``center``."""
CENTERS: Final = (0.0, 1.0, 7.0, 12.0, -1.5, -3.0)
"""Biases about which FP32 keys near center + 1/2 exist at every gap."""
# The FP64 exponential of the library may be off by so many of its last bits.
_LIBRARY_ERROR: Final = 2.0**-48


@dataclass(frozen=True, eq=False)
class RouterRow:
    """What a select sees of one row; ``repr`` is the code that makes it again.

    Attributes:
        logits: [expert] float32.
        bias: [expert] float32.
        top_k: experts that are selected.
    """

    logits: F32
    bias: F32
    top_k: int

    def __post_init__(self) -> None:
        for name in ("logits", "bias"):
            array = np.array(getattr(self, name), np.float32)
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        if self.logits.ndim != 1 or self.logits.shape != self.bias.shape:
            got = f"{self.logits.shape} and {self.bias.shape}"
            raise InputError("logits and bias", got, "[expert] each", "RouterRow")
        if not 1 <= self.top_k <= len(self.logits):
            raise InputError("top_k", self.top_k, f"1..{len(self.logits)}", "RouterRow")

    @property
    def keys(self) -> F32:
        """Biased scores [expert] float32: FP32(sigmoid) + bias in FP32."""
        with np.errstate(invalid="ignore", over="ignore"):
            return keys32(self.logits, self.bias)

    def gap(self, slot: int | None = None) -> int:
        """Return the FP32 steps from the key of a slot (1-based; None: the last) to the next.

        Raises:
            InputError: there is no such slot or no next expert, or one of the keys is not finite.
        """
        place = self.top_k if slot is None else slot
        if not 1 <= place < len(self.logits):
            raise InputError("slot", place, f"1..{len(self.logits) - 1}", "RouterRow.gap")
        pair = np.sort(self.keys)[::-1][place - 1 : place + 1]
        if np.isnan(self.keys).any() or not np.isfinite(pair).all():
            raise InputError("keys", numbers(pair), "finite ones at the slot", "RouterRow.gap")
        first, second = steps(pair)
        return int(first - second)

    def bank(self, rows: int = 1) -> MemoryBank:
        """Return a bank of this row, ``rows`` times over."""
        return memory_bank(self.top_k, logits=np.tile(self.logits, (rows, 1)), bias=self.bias)

    def __repr__(self) -> str:
        return f"RouterRow({numbers(self.logits)}, {numbers(self.bias)}, {self.top_k})"


@dataclass(frozen=True, slots=True)
class Boundary:
    """What is planted at a boundary.

    Attributes:
        slot: 1-based slot of the last expert on the high key.
        gap: FP32 steps from the high to the low key; 0 makes them one key.
        high: experts on the high key.
        low: experts on the low key.
        center: what the biases lie about, one of ``CENTERS``; the high key is center + ``score``.
        score: 1/2, where the keys of center 0 change their binade, or up to 17/32.
    """

    slot: int
    gap: int
    high: int = 1
    low: int = 1
    center: float = 0.0
    score: float = 0.5


def boundary_row(
    order: Sequence[int], top_k: int, at: Boundary, offsets: Sequence[float] | None = None
) -> RouterRow:
    """Return a row of which the keys around ``at.slot`` are exactly as asked.

    Args:
        order: a permutation of the experts, best first.
        top_k: experts that are selected.
        at: what is planted.
        offsets: [expert] bias minus ``at.center``, within 1/8; zeros where it is left out.

    Raises:
        InputError: a slot, gap, count or bias out of range, or a gap that no keys have there.

    Example:
        >>> boundary_row([0, 1], 1, Boundary(slot=1, gap=1))
        RouterRow([0.0, -1.1920929e-07], [0.0, 0.0], 1)
    """
    experts = len(order)
    _check(order, at, offsets)
    spread = np.zeros(experts) if offsets is None else np.asarray(offsets, np.float64)
    bias = (at.center + spread).astype(np.float32)
    best = np.asarray(order)
    above, below = at.slot - at.high, experts - at.slot - at.low
    logits = np.empty(experts, np.float32)
    logits[best[:above]] = _far(above)[::-1]
    logits[best[experts - below :]] = -_far(below)
    top = np.array([at.center + at.score], np.float32)
    for places, key in (
        (best[above : at.slot], top),
        (best[at.slot : at.slot + at.low], value_at(steps(top) - at.gap)),
    ):
        logits[places] = logits_of(np.repeat(key, len(places)), bias[places])
    row = RouterRow(logits, bias, top_k)
    if not _is_planted(row, at, top):
        raise InputError("gap", at.gap, "one that FP32 keys can have there", "boundary_row")
    return row


def logits_of(keys: F32, bias: F32) -> F32:
    """Return the logits [any] that give these keys, NaN where none does.

    Of several, the one nearest to where exact arithmetic puts it. A logit whose FP64 score lies so
    near to the middle of two FP32 values that another library might round it otherwise is passed
    over: what is returned has its key whoever computes the exponential.

    Args:
        keys: [any] float32, wanted.
        bias: [any] float32.
    """
    candidates = logits_near(keys, bias)
    score = 1.0 / (1.0 + np.exp(-candidates.astype(np.float64)))
    low = (score * (1 - _LIBRARY_ERROR)).astype(np.float32)
    fits = (low == (score * (1 + _LIBRARY_ERROR)).astype(np.float32)) & (
        low + bias[:, np.newaxis] == keys[:, np.newaxis]
    )
    middle = candidates.shape[1] // 2
    away = np.abs(np.arange(candidates.shape[1]) - middle)
    best = np.where(fits, away, candidates.shape[1]).argmin(axis=1)
    rows = np.arange(len(keys))
    return np.where(fits[rows, best], candidates[rows, best], np.float32(np.nan))


def _far(count: int) -> npt.NDArray[np.float64]:
    """Logits [count] away from 0, ascending, all different."""
    return _NEAREST + (_FARTHEST - _NEAREST) * np.arange(count) / max(16, count)


def _check(order: Sequence[int], at: Boundary, offsets: Sequence[float] | None) -> None:
    where, experts = "boundary_row", len(order)
    if sorted(order) != list(range(experts)):
        raise InputError("order", list(order), "each expert once", where)
    if at.high < 1 or at.low < 1:
        raise InputError("high and low", f"{at.high} and {at.low}", "at least 1 each", where)
    if not at.high <= at.slot <= experts - at.low:
        expected = f"{at.high}..{experts - at.low} of {experts} experts"
        raise InputError("slot", at.slot, expected, where)
    if not 0 <= at.gap <= MOST_GAP:
        raise InputError("gap", at.gap, f"0..{MOST_GAP}", where)
    if at.center not in CENTERS:
        raise InputError("center", at.center, f"one of {', '.join(map(str, CENTERS))}", where)
    if not 0.5 <= at.score <= 0.53125:
        raise InputError("score", at.score, "0.5..0.53125", where)
    if offsets is None:
        return
    if len(offsets) != experts or not all(abs(offset) <= MOST_SPREAD for offset in offsets):
        expected = f"{experts} numbers within {MOST_SPREAD} of 0"
        raise InputError("offsets", list(offsets), expected, where)


def _is_planted(row: RouterRow, at: Boundary, top: F32) -> bool:
    """Whether the keys are as asked, and no other key is within reach of a window."""
    line, high = steps(row.keys), steps(top)[0]
    margin = max(4 * at.gap, 16)
    pair = [high, high - at.gap]
    wanted = at.high + at.low if at.gap == 0 else at.high
    near = (line >= pair[1] - margin) & (line <= pair[0] + margin)
    return (
        bool(np.isfinite(row.logits).all())
        and int((line == pair[0]).sum()) == wanted
        and int(near.sum()) == at.high + at.low
        and int((line > pair[0] + margin).sum()) == at.slot - at.high
    )
