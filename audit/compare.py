"""Compare one rank's rows of both paths: contracts first, then sets, then weights by id."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..banks.geometry import Geometry, ScoringRule
from ..kernels.scores import score
from .judged import JudgedBlock
from .launching import POISONS
from .metrics.contracts import breaches, path_flags
from .metrics.flags import WEIGHT_FLAGS, RowFlag
from .metrics.flush import flushed, has_subnormals
from .metrics.swaps import SET_CODE, SetClass, SetDifferences, classify_sets
from .metrics.weights import align, classify_weights
from .policy import Policy

BASELINE, CANDIDATE = "baseline", "candidate"

I32 = npt.NDArray[np.int32]
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

# Rows whose weights are compared: those that select the same experts.
_EQUAL_SETS = (SET_CODE[SetClass.IDENTICAL], SET_CODE[SetClass.REORDERED])


@dataclass(frozen=True, eq=False)
class RankRows:
    """What one path returned for the rows on one rank.

    Attributes:
        ids: [row, slot] int32.
        weights: [row, slot] float32.
        logit_slack: [row] float64, how far its logits may be from the reference's.
        score_forms: sigmoid forms that the path declares, names of ``scores.FORMS``.
        logits: [row, expert] float32, the path's own; None where it has the bank's.
    """

    ids: I32
    weights: F32
    logit_slack: F64
    score_forms: tuple[str, ...] = ()
    logits: F32 | None = None


@dataclass(frozen=True, eq=False)
class RowComparison:
    """What is true of each row; arrays are [row].

    Attributes:
        breach: by path, bits of ``Breach``; such a row is invalid.
        flags: by path, bits of the failing ``RowFlag``.
        input_flags: bits of the other ``RowFlag``.
        sets: the set class of each row, and the differing rows.
        weight_class: int8 code of ``WeightClass``, -1 where the weights were not compared.
        weight_ulp: int64, largest FP32 distance of a weight; -1 where undefined or not compared.
        weight_histogram: slots by FP32 distance, over the compared rows.
    """

    breach: dict[str, npt.NDArray[np.uint8]]
    flags: dict[str, npt.NDArray[np.uint16]]
    input_flags: npt.NDArray[np.uint16]
    sets: SetDifferences
    weight_class: npt.NDArray[np.int8]
    weight_ulp: npt.NDArray[np.int64]
    weight_histogram: dict[int, int]


def compare_rows(
    baseline: RankRows,
    candidate: RankRows,
    judged: JudgedBlock,
    geometry: Geometry,
    scoring: ScoringRule,
    policy: Policy,
) -> RowComparison:
    """Return what the two paths' rows show, judged by the reference."""
    sides = {BASELINE: baseline, CANDIDATE: candidate}
    breach = {role: _breach(side, geometry) for role, side in sides.items()}
    flags = {
        role: _flags(side, judged, scoring, policy, breach[role]) for role, side in sides.items()
    }
    selection = judged.selection
    sets = classify_sets(
        baseline.ids,
        candidate.ids,
        _keys(judged, policy),
        window_ulp=policy.window_ulp,
        noise_abs=policy.noise_abs,
        invalid=(breach[BASELINE] | breach[CANDIDATE]) != 0,
        group_keys=selection.group_keys,
        groups=geometry.groups,
    )
    comparable = np.flatnonzero(np.isin(sets.set_class, _EQUAL_SETS))
    weight_class = np.full(len(baseline.ids), -1, np.int8)
    weight_ulp = np.full(len(baseline.ids), -1, np.int64)
    first, second = align(
        baseline.ids[comparable],
        baseline.weights[comparable],
        candidate.ids[comparable],
        candidate.weights[comparable],
    )
    if policy.flush_to_zero:
        first, second = flushed(first), flushed(second)
    differences = classify_weights(first, second, policy.weight_budget_ulp)
    weight_class[comparable] = differences.weight_class
    weight_ulp[comparable] = differences.max_ulp
    return RowComparison(
        breach, flags, judged.input_flags, sets, weight_class, weight_ulp, differences.histogram
    )


def _keys(judged: JudgedBlock, policy: Policy) -> npt.NDArray[np.float32]:
    """The reference's biased scores; where flushing is declared, of flushed scores and bias."""
    selection = judged.selection
    if not policy.flush_to_zero or not has_subnormals(
        selection.scores32, judged.bias, selection.keys
    ):
        return selection.keys
    with np.errstate(invalid="ignore"):
        return flushed(flushed(selection.scores32) + flushed(judged.bias))


def _breach(side: RankRows, geometry: Geometry) -> npt.NDArray[np.uint8]:
    return breaches(
        side.ids,
        side.weights,
        geometry.experts,
        poison_ids=POISONS[0].ids,
        poison_weights_bits=POISONS[0].float32_bits,
    )


def _flags(
    side: RankRows,
    judged: JudgedBlock,
    scoring: ScoringRule,
    policy: Policy,
    breach: npt.NDArray[np.uint8],
) -> npt.NDArray[np.uint16]:
    def by(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.uint16]:
        return path_flags(
            side.ids,
            side.weights,
            scores,
            judged.logits,
            judged.bias,
            scoring,
            judged.selection.eligible,
            group_keys=judged.selection.group_keys,
            budget_ulp=policy.weight_budget_ulp,
            logit_slack=side.logit_slack,
            breach=breach,
        )

    exact, coarse = judged.selection.scores, judged.selection.scores32
    flags = by(exact)
    if has_subnormals(coarse):
        # A subnormal score has few bits left: weights may follow from it as FP32 holds it.
        flags &= by(coarse.astype(np.float64))
    if scoring.function == "sigmoid":
        # A declared form is off by up to its own bound, which is many ULP of a small score. Their
        # sum is another matter: weights that add up wrongly do so by every form.
        unlike = np.uint16(RowFlag.WEIGHTS_NOT_FROM_IDS)
        logits = judged.logits.astype(np.float32) if side.logits is None else side.logits
        for form in side.score_forms:
            if (flags & unlike).any():
                flags &= by(score(form, logits).astype(np.float64)) | ~unlike
    if policy.flush_to_zero and has_subnormals(exact):
        # A path is only wrong where it is wrong by the flushed and by the plain scores.
        zeroed = flushed(exact)
        flags &= by(zeroed)
        safe = np.clip(side.ids, 0, exact.shape[1] - 1)
        nothing_left = (np.take_along_axis(zeroed, safe, axis=1) == 0).all(axis=1)
        flags[nothing_left] &= ~np.uint16(WEIGHT_FLAGS)
    return flags
