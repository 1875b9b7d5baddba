"""Edge values and edge banks by name: the names are made to be read as test ids."""

from __future__ import annotations

from math import inf, nan
from types import MappingProxyType
from typing import Final

from .errors import InputError

LOGIT_EDGES: Final = MappingProxyType(
    {
        "zero": 0.0,
        "minus_zero": -0.0,
        "smallest_subnormal": 2.0**-149,
        "largest_subnormal": 2.0**-126 - 2.0**-149,
        "smallest_normal": 2.0**-126,
        # sigmoid is 1/2 + x/4: the first FP32 score below 1/2 is 2^-25 away from it, half of that
        # is a tie that rounds to even, and the next logit is on its side.
        "score_below_half": -(2.0**-24 + 2.0**-47),
        # 1 - score = 2^-25 at 25 ln 2, which is a tie that rounds to 1.
        "score_below_one": float.fromhex("0x1.154244p+4"),
        "score_one": float.fromhex("0x1.154246p+4"),
        "score_subnormal": -88.0,
        "score_smallest": -103.0,
        "score_zero": -104.0,
        "largest": float.fromhex("0x1.fffffep+127"),
        "minus_largest": -float.fromhex("0x1.fffffep+127"),
        "inf": inf,
        "minus_inf": -inf,
        "nan": nan,
    }
)
"""FP32 logits at which a select's arithmetic changes, by name."""

BIAS_EDGES: Final = MappingProxyType(
    {
        "zero": 0.0,
        "minus_zero": -0.0,
        "smallest_subnormal": 2.0**-149,
        "seven": 7.0,
        "minus_one": -1.0,
        # FP32 steps are 2 from here on: no score is left of the sum.
        "swallows_score": 2.0**24,
        "masks": -1e9,
        "inf": inf,
        "minus_inf": -inf,
        "nan": nan,
    }
)
"""FP32 biases at which a select's arithmetic changes, by name."""

EDGE_BANKS: Final = MappingProxyType(
    {
        "exact_tie": "near_tie:gap=0",
        "gap=1": "near_tie:gap=1",
        "gap=2": "near_tie:gap=2",
        "gap=3": "near_tie:gap=3",
        "binade_edge": "near_tie:gap=1,at=0.5",
        "negative_keys": "near_tie:gap=1,bias=-1",
        "saturated": "saturated:side=high",
        "subnormal_scores": "saturated:side=low",
        "signed_zeros": "signed_zeros",
        "all_equal": "all_equal",
        "bf16_logits": "bf16_logits",
        "bias=7": "large_bias:bias=7",
        "bias=12": "large_bias:bias=12",
        "bias=inf": "special:kind=finite,inf_bias=1,inf_sign=plus",
        "bias=-inf": "special:kind=finite,inf_bias=1,inf_sign=minus",
        "logit=inf": "special:kind=plus_inf",
        "logit=-inf": "special:kind=minus_inf",
        "one_nan": "special:kind=nan_one",
        "all_nan": "special:kind=nan_all",
    }
)
"""Generator specs of banks that are rare in recordings and common in bug reports, by name."""

UNANSWERABLE_EDGES: Final = frozenset({"subnormal_scores", "logit=inf", "all_nan"})
"""Edge banks that no path can answer as the contract of a row asks, even against itself: the chosen
weights sum to nothing, or an expert that is not finite has to be chosen."""


def edge_spec(name: str, *, geometry: str = "mini", rows: int = 24, seed: int = 0) -> str:
    """Return the spec of an edge bank: what ``open_bank``, an audit and a snippet take.

    Args:
        name: one of ``EDGE_BANKS``.
        geometry: a preset, or HIDDENxLATENTxEXPERTSxTOP_K.
        rows: rows.
        seed: seed of the rows.

    Raises:
        InputError: no edge bank of this name.

    Example:
        >>> edge_spec("gap=1", rows=8)
        'near_tie:gap=1,geometry=mini,rows=8,seed=0'
    """
    if name not in EDGE_BANKS:
        raise InputError("edge", name, f"one of {', '.join(EDGE_BANKS)}", "edge_spec")
    spec = EDGE_BANKS[name]
    separator = "," if ":" in spec else ":"
    return f"{spec}{separator}geometry={geometry},rows={rows},seed={seed}"
