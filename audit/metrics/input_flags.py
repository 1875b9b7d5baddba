"""What a row's inputs explain: saturation, ties after rounding, and values that are not numbers."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ...banks.geometry import ScoreFunction
from .flags import RowFlag
from .ulp import Bools, ordered, rounded

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
Floats = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.integer[Any]]
Flags = npt.NDArray[np.uint16]

BFLOAT16: Final = np.dtype(ml_dtypes.bfloat16)
SMALLEST_NORMAL: Final = np.float32(float.fromhex("0x1p-126"))
_LOWEST: Final = np.iinfo(np.int64).min
# Rows whose keys stay in the cache while the next expert is looked up.
_PIECE_ROWS: Final = 512


def input_flags(
    logits: Floats,
    bias: F32 | None,
    scores: Floats,
    keys: F32,
    ids: Ids,
    top_k: int,
    *,
    function: ScoreFunction = "sigmoid",
    eligible: Bools | None = None,
) -> Flags:
    """Return, for each row, what in its inputs makes a difference likely or unjudgeable.

    The boundary is the pair of the K-th selected expert (lowest key, then highest id) and the next
    one (highest key, then lowest id).

    - ``saturated_scores``: the FP32 score of a selected or the next expert is exactly 0 or 1 from
      a finite logit (sigmoid and softmax; 0 only for sqrtsoftplus; never for identity).
    - ``subnormal_scores``: such a score is subnormal in FP32.
    - ``bias_swallows_score``: the boundary is a tie of FP32 keys, among experts of that key whose
      scores, and exact sums of score and bias, differ: adding the bias rounded a difference away.
    - ``tie_after_bf16``: the boundary's keys differ, its logits rounded to BF16 do not.
    - ``nonfinite_logits``, ``nonfinite_bias``: anywhere in the row.

    Args:
        logits: [row, expert].
        scores: [row, expert] unbiased, correctly rounded to FP32.
        bias: float32 [expert] or None.
        keys: float32 [row, expert], FP32(score + bias).
        ids: [row, slot] integers, the reference's; the first ``top_k`` slots count.
        top_k: routed slots.
        function: of the scoring rule.
        eligible: [row, expert] whether the reference may select it; None without groups.

    Returns:
        uint16 [row], bits of ``RowFlag``.
    """
    chosen = ids[:, :top_k]
    last = _last(keys, chosen)
    following = _next(keys, chosen, eligible)
    result = pair_flags(last, following, logits, bias, scores, keys, function=function)
    result |= _score_flags(np.concatenate([chosen, following], axis=1), logits, scores, function)
    result[~np.isfinite(logits).all(axis=1)] |= RowFlag.NONFINITE_LOGITS.value
    if bias is None:
        return result
    # The tie at the boundary may hold more experts than the pair.
    level = np.take_along_axis(keys, last, axis=1)
    beside = np.take_along_axis(keys, np.maximum(following, 0), axis=1)
    tied = np.flatnonzero(((following >= 0) & (beside == level)).all(axis=1))
    group = keys[tied] == level[tied]
    if eligible is not None:
        group &= eligible[tied]
    score = scores[tied].astype(np.float32).astype(np.float64)
    swallowed = _spread(score, group) & _spread(score + bias.astype(np.float64), group)
    result[tied[swallowed]] |= RowFlag.BIAS_SWALLOWS_SCORE.value
    return result


def _last(keys: F32, chosen: Ids) -> Ids:
    """The last selected expert [row, 1]: the lowest key (NaN below all), then the highest id."""
    picked = np.take_along_axis(keys, chosen, axis=1)
    line = np.where(np.isnan(picked), _LOWEST, ordered(picked))
    order = np.lexsort((-chosen, line), axis=1)
    return np.take_along_axis(chosen, order[:, :1], axis=1)


def _next(keys: F32, chosen: Ids, eligible: Bools | None) -> Ids:
    """The next expert [row, 1]: the highest key of the others, then the lowest id; -1 for none."""
    result = np.empty((len(keys), 1), dtype=chosen.dtype)
    for start in range(0, len(keys), _PIECE_ROWS):
        part = slice(start, start + _PIECE_ROWS)
        rest = keys[part].copy()
        np.put_along_axis(rest, chosen[part], -np.inf, axis=1)
        if eligible is not None:
            rest[~eligible[part]] = -np.inf
        best = rest.argmax(axis=1)[:, None]
        # A NaN comes out first; -inf may be an expert that is excluded. Both need a closer look.
        odd = np.flatnonzero(~(np.take_along_axis(rest, best, axis=1)[:, 0] > -np.inf))
        result[part] = best
        for row in (start + odd).tolist():
            allowed = ~np.isnan(keys[row])
            allowed[chosen[row]] = False
            if eligible is not None:
                allowed &= eligible[row]
            others = np.flatnonzero(allowed)
            result[row] = others[keys[row, others].argmax()] if others.size else -1
    return result


def _spread(values: Floats, group: Bools) -> Bools:
    """Whether the finite values within each row's group are not all the same."""
    inside = group & np.isfinite(values)
    highest = np.where(inside, values, -np.inf).max(axis=1)
    result: Bools = highest > np.where(inside, values, np.inf).min(axis=1)
    return result


def _score_flags(experts: Ids, logits: Floats, scores: Floats, function: ScoreFunction) -> Flags:
    """Saturated and subnormal scores among experts [row, any] (-1 is none)."""
    there = experts >= 0
    safe = np.maximum(experts, 0)
    score = np.take_along_axis(scores, safe, axis=1).astype(np.float32)
    limit = np.zeros(score.shape, dtype=np.bool_)
    if function != "identity":
        limit |= score == 0.0
    if function == "sigmoid" or (function == "softmax" and logits.shape[1] > 1):
        limit |= score == 1.0
    limit &= there & np.isfinite(np.take_along_axis(logits, safe, axis=1))
    result = np.zeros(len(experts), dtype=np.uint16)
    result[limit.any(axis=1)] |= RowFlag.SATURATED_SCORES.value
    size = np.abs(score)
    tiny = there & (size > 0.0) & (size < SMALLEST_NORMAL)
    result[tiny.any(axis=1)] |= RowFlag.SUBNORMAL_SCORES.value
    return result


def pair_flags(
    dropped: Ids,
    added: Ids,
    logits: Floats,
    bias: F32 | None,
    scores: Floats,
    keys: F32,
    *,
    function: ScoreFunction = "sigmoid",
) -> Flags:
    """Return the input flags of swaps: of experts that left a row's set and those that came.

    ``tie_after_bf16`` and ``bias_swallows_score`` as in ``input_flags``, for any pair of a dropped
    and an added expert; ``saturated_scores`` and ``subnormal_scores`` for any of these experts;
    ``nonfinite_logits`` for theirs, ``nonfinite_bias`` for the whole bias.

    Args:
        dropped: [row, any] integers, padded at the end with -1.
        added: [row, any], likewise.
        logits: [row, expert] of the same rows.
        scores: [row, expert] unbiased, correctly rounded to FP32.
        keys: float32 [row, expert], FP32(score + bias).
        bias: float32 [expert] or None.
        function: of the scoring rule.

    Returns:
        uint16 [row], bits of ``RowFlag``.
    """
    width = max(1, *(int((side >= 0).sum(axis=1).max(initial=0)) for side in (dropped, added)))
    left, right = dropped[:, :width], added[:, :width]
    both = np.concatenate([left, right.astype(left.dtype)], axis=1)
    result = _score_flags(both, logits, scores, function)
    result |= _pair_ties(left, right, logits, bias, scores, keys)
    there = both >= 0
    logit = np.take_along_axis(logits, np.maximum(both, 0), axis=1)
    result[(there & ~np.isfinite(logit)).any(axis=1)] |= RowFlag.NONFINITE_LOGITS.value
    if bias is not None and not np.isfinite(bias).all():
        result |= np.uint16(RowFlag.NONFINITE_BIAS)
    return result


def _pair_ties(
    left: Ids, right: Ids, logits: Floats, bias: F32 | None, scores: Floats, keys: F32
) -> Flags:
    """Flags of any pair (one of ``left``, one of ``right``, -1 is none) with finite keys."""
    pair = (left >= 0)[:, :, None] & (right >= 0)[:, None, :]

    def pick(values: npt.NDArray[Any], side: Ids) -> npt.NDArray[Any]:
        return np.take_along_axis(values, np.maximum(side, 0), axis=1)

    def equal(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> Bools:
        result: Bools = one[:, :, None] == other[:, None, :]
        return result

    key_left, key_right = pick(keys, left), pick(keys, right)
    pair &= np.isfinite(key_left)[:, :, None] & np.isfinite(key_right)[:, None, :]
    tied = equal(key_left, key_right)
    narrow = [rounded(pick(logits, side), BFLOAT16).astype(np.float32) for side in (left, right)]
    result = np.zeros(len(left), dtype=np.uint16)
    result[(pair & ~tied & equal(*narrow)).any(axis=(1, 2))] |= RowFlag.TIE_AFTER_BF16.value
    if bias is not None:
        score = [pick(scores, side).astype(np.float32) for side in (left, right)]
        exact = [
            one.astype(np.float64) + bias[np.maximum(side, 0)].astype(np.float64)
            for one, side in zip(score, (left, right), strict=True)
        ]
        swallowed = pair & tied & ~equal(*score) & ~equal(*exact)
        result[swallowed.any(axis=(1, 2))] |= RowFlag.BIAS_SWALLOWS_SCORE.value
    return result
