"""The words for what is wrong with a row, or behind it."""

from __future__ import annotations

import enum
from typing import Final


class Breach(enum.IntFlag):
    """Why a row's sets cannot be compared."""

    DUPLICATE_ID = enum.auto()
    ID_OUT_OF_RANGE = enum.auto()
    NONFINITE_WEIGHT = enum.auto()
    POISON_SURVIVES = enum.auto()


class RowFlag(enum.IntFlag):
    """What else is said of a row: the first six fail a path's row, the others are its inputs."""

    NEGATIVE_WEIGHT = enum.auto()
    ZERO_SUM_WEIGHTS = enum.auto()
    WRONG_SUM = enum.auto()
    NONFINITE_EXPERT_SELECTED = enum.auto()
    WRONG_GROUP = enum.auto()
    WEIGHTS_NOT_FROM_IDS = enum.auto()
    SATURATED_SCORES = enum.auto()
    SUBNORMAL_SCORES = enum.auto()
    BIAS_SWALLOWS_SCORE = enum.auto()
    TIE_AFTER_BF16 = enum.auto()
    NONFINITE_LOGITS = enum.auto()
    NONFINITE_BIAS = enum.auto()


FAILING: Final = RowFlag((RowFlag.WEIGHTS_NOT_FROM_IDS << 1) - 1)
INPUT: Final = RowFlag(~FAILING)
WEIGHT_FLAGS: Final = (
    RowFlag.NEGATIVE_WEIGHT
    | RowFlag.ZERO_SUM_WEIGHTS
    | RowFlag.WRONG_SUM
    | RowFlag.WEIGHTS_NOT_FROM_IDS
)
"""What a path's weights can do wrong by the rule."""


def names(flag: enum.IntFlag) -> list[str]:
    """Return the lower-case names of the bits that are set, in the order of declaration.

    Example:
        >>> names(Breach.NONFINITE_WEIGHT | Breach.DUPLICATE_ID)
        ['duplicate_id', 'nonfinite_weight']
    """
    return [str(bit.name).lower() for bit in type(flag) if bit in flag]
