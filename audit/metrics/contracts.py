"""What must hold for every row of a path before it is compared with another."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...banks.errors import InputError
from ...banks.geometry import ScoringRule
from .flags import Breach, RowFlag
from .rule_weights import row_sums, rule_weights
from .ulp import Bools, ordered, rounded

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.integer[Any]]
Flags = npt.NDArray[np.uint16]


_LOWEST: Final = np.iinfo(np.int64).min


def breaches(
    ids: Ids,
    weights: F32 | None,
    experts: int,
    *,
    poison_ids: int | None = None,
    poison_weights_bits: int | None = None,
) -> npt.NDArray[np.uint8]:
    """Return, for each row, which rules a path's outputs break.

    Args:
        ids: [row, slot] integers.
        weights: float32 [row, slot], or None where none were recorded.
        experts: ids 0..experts-1 are legal; shared experts that the path appends included.
        poison_ids: what ids were filled with before the run.
        poison_weights_bits: the 32 bits that weights were filled with; a NaN is told by its bits.

    Returns:
        uint8 [row], bits of ``Breach``.

    Raises:
        InputError: shapes or dtypes are wrong.
    """
    _check_outputs(ids, weights, "breaches")
    result = np.zeros(len(ids), dtype=np.uint8)
    line = np.sort(ids, axis=1)
    result[(line[:, 1:] == line[:, :-1]).any(axis=1)] |= Breach.DUPLICATE_ID.value
    result[((ids < 0) | (ids >= experts)).any(axis=1)] |= Breach.ID_OUT_OF_RANGE.value
    if poison_ids is not None:
        result[(ids == poison_ids).any(axis=1)] |= Breach.POISON_SURVIVES.value
    if weights is not None:
        result[~np.isfinite(weights).all(axis=1)] |= Breach.NONFINITE_WEIGHT.value
        if poison_weights_bits is not None:
            left = weights.view(np.uint32) == np.uint32(poison_weights_bits)
            result[left.any(axis=1)] |= Breach.POISON_SURVIVES.value
    return result


def _check_outputs(ids: Ids, weights: F32 | None, where: str) -> None:
    if ids.ndim != 2 or not np.issubdtype(ids.dtype, np.integer):
        raise InputError("ids", f"{ids.dtype}{list(ids.shape)}", "integers [row, slot]", where)
    if weights is not None and (weights.shape != ids.shape or weights.dtype != np.float32):
        got = f"{weights.dtype}{list(weights.shape)}"
        raise InputError("weights", got, f"float32{list(ids.shape)}", where)


def path_flags(
    ids: Ids,
    weights: F32 | None,
    scores: Floats,
    logits: Floats,
    bias: F32 | None,
    scoring: ScoringRule,
    eligible: Bools | None = None,
    n_shared: int = 0,
    *,
    group_keys: F32 | None = None,
    expected_weights: F64 | None = None,
    budget_ulp: int = 8,
    logit_slack: F64 | None = None,
    breach: npt.NDArray[np.uint8] | None = None,
) -> Flags:
    """Return, for each row without a breach, the failing flags of one path.

    Shared slots (ids from the number of experts on) take no part in any rule. "The rule's own"
    are the weights that the scoring rule gives to the path's ids, in FP64.

    - ``negative_weight``: a weight below 0 where the rule's own is not.
    - ``zero_sum_weights``: the weights add up to exactly 0 and the rule's own, in FP32, do not.
    - ``wrong_sum``: see ``_wrong_sum``; only under renormalisation, and not where the sum is 0.
    - ``nonfinite_expert_selected``: a selected expert's logit is not finite or its key is NaN.
    - ``wrong_group``: see ``_wrong_group``.
    - ``weights_not_from_ids``: a weight is further than the budget from the rule's own, rounded
      to FP32. Where the rule has no finite answer nothing is said: undefined is not compared.

    Args:
        ids: [row, slot] integers.
        weights: float32 [row, slot], or None where none were recorded.
        scores: [row, expert] the reference's unbiased scores, FP64 or FP32.
        logits: [row, expert].
        bias: float32 [expert] or None.
        scoring: the rule that the path should follow.
        eligible: [row, expert] whether the reference may select it; None without groups.
        n_shared: shared experts that the path appends.
        group_keys: float32 [row, group]; with it, a tied group may stand in for a chosen one.
        expected_weights: float64 [row, slot], the rule's own where the caller has them.
        budget_ulp: FP32 steps that a weight may be off.
        logit_slack: float64 [row], how far the path's logits may be from ``logits``.
        breach: uint8 [row] from ``breaches``; left out, it is judged here, without poison.

    Returns:
        uint16 [row], bits of ``RowFlag``; 0 for rows with a breach.

    Raises:
        InputError: shapes or dtypes are wrong.
    """
    _check_outputs(ids, weights, "path_flags")
    experts = logits.shape[1]
    if breach is None:
        breach = breaches(ids, weights, experts + n_shared)
    routed = (ids >= 0) & (ids < experts)
    safe = np.where(routed, ids, 0)
    result = np.zeros(len(ids), dtype=np.uint16)
    picked = np.take_along_axis(scores, safe, axis=1)
    odd = routed & ~np.isfinite(np.take_along_axis(logits, safe, axis=1))
    with np.errstate(invalid="ignore", over="ignore"):
        keys = picked.astype(np.float32) + (np.float32(0.0) if bias is None else bias[safe])
    odd |= routed & np.isnan(keys)
    result[odd.any(axis=1)] |= RowFlag.NONFINITE_EXPERT_SELECTED.value
    if eligible is not None:
        result[_wrong_group(safe, routed, eligible, group_keys)] |= RowFlag.WRONG_GROUP.value
    if weights is not None:
        rule = expected_weights
        if rule is None:
            rule = rule_weights(ids, scores, scoring)
        slack = _relative_slack(picked, routed, scoring, logit_slack)
        kept = np.where(routed, weights, np.float32(0.0))
        result |= _weight_flags(kept, np.where(routed, rule, 0.0), slack, scoring, budget_ulp)
    result[breach != 0] = 0
    return result


def _relative_slack(
    picked: Floats, routed: Bools, scoring: ScoringRule, logit_slack: F64 | None
) -> F64:
    """Largest relative change [row, 1] of a weight when each logit moves by its slack.

    d ln(score) / d logit lies in 0..1 for sigmoid and sqrtsoftplus; a softmax moves by its own
    logit and by the others, as a renormalised weight moves by its score and by the sum. For the
    identity it is 1 / |score|. So a weight's logarithm moves by at most twice the slack times the
    largest such factor.
    """
    if logit_slack is None:
        return np.zeros((len(picked), 1))
    factor = np.ones(len(picked))
    if scoring.function == "identity":
        smallest = np.where(routed, np.abs(picked), np.inf).min(axis=1)
        with np.errstate(divide="ignore"):
            factor = 1.0 / smallest.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        result: F64 = np.expm1(2.0 * logit_slack * factor)[:, None]
    return result


def _weight_flags(
    weights: F32, rule: F64, slack: F64, scoring: ScoringRule, budget_ulp: int
) -> Flags:
    result = np.zeros(len(weights), dtype=np.uint16)
    with np.errstate(invalid="ignore", over="ignore"):
        target = rounded(rule, np.float32)
        result[((weights < 0.0) & ~(rule < 0.0)).any(axis=1)] |= RowFlag.NEGATIVE_WEIGHT.value
        total, own = row_sums(weights), row_sums(target)
        zero = (total == 0.0) & (own != 0.0)
        result[zero] |= RowFlag.ZERO_SUM_WEIGHTS.value
        if scoring.renormalize:
            wrong = _wrong_sum(weights, rule, slack, budget_ulp) & (total != 0.0)
            result[wrong] |= RowFlag.WRONG_SUM.value
        ends = (
            rounded(rule - slack * np.abs(rule), np.float32),
            rounded(rule + slack * np.abs(rule), np.float32),
        )
        low, high = ordered(ends[0]) - budget_ulp, ordered(ends[1]) + budget_ulp
        steps = ordered(weights)
        defined = np.isfinite(ends[0]) & np.isfinite(ends[1])
        other = defined & ((steps < low) | (steps > high))
    result[other.any(axis=1)] |= RowFlag.WEIGHTS_NOT_FROM_IDS.value
    return result


def _wrong_sum(weights: F32, rule: F64, slack: F64, budget_ulp: int) -> Bools:
    """Whether a row's sum differs from the rule's, scale * sum / (sum + epsilon), beyond doubt.

    A weight within the budget of the rule's rounded one is off by at most (budget + 1/2) steps.
    Steps are as wide as ulp(weight) in the weight's own binade and twice as wide in the next,
    where the rule's weight may be: so the sum is off by at most the sum over the slots of
    (budget + 1/2) * 2 ulp(weight). A row whose weights are all right is never flagged.
    """
    spacing = np.spacing(np.abs(weights)).astype(np.float64)
    target = row_sums(rule)
    bound = (budget_ulp + 0.5) * 2.0 * row_sums(spacing) + slack[:, 0] * row_sums(np.abs(rule))
    result: Bools = np.asarray(np.abs(row_sums(weights) - target) > bound)
    return result


def _wrong_group(safe: Ids, routed: Bools, eligible: Bools, group_keys: F32 | None) -> Bools:
    """Whether a selected expert lies in a group that could not be chosen.

    The reference's groups may be replaced by groups whose key equals that of its last one: as
    many of those as the groups above leave room for.
    """
    if group_keys is None:
        outside: Bools = routed & ~np.take_along_axis(eligible, safe, axis=1)
        return np.asarray(outside.any(axis=1))
    rows, groups = group_keys.shape
    chosen = eligible.reshape(rows, groups, -1).any(axis=2)
    # A NaN key is below every other one.
    line = np.where(np.isnan(group_keys), _LOWEST, ordered(group_keys))
    last = np.where(chosen, line, np.iinfo(np.int64).max).min(axis=1, keepdims=True)
    used = np.zeros((rows, groups), dtype=np.bool_)
    row_of, slot_of = np.nonzero(routed)
    used[row_of, safe[row_of, slot_of] // (eligible.shape[1] // groups)] = True
    room = chosen.sum(axis=1) - (line > last).sum(axis=1)
    below = used & (line < last)
    tied = used & (line == last)
    result: Bools = below.any(axis=1) | (tied.sum(axis=1) > room)
    return result
