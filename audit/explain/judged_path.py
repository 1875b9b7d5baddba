"""One path's rows of a case, judged by the row contract and by the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...kernels.reference import ReferenceSelection
from ..metrics.contracts import breaches, path_flags
from ..metrics.findings import Bools, differing_rows, same_as_expected
from ..metrics.flags import WEIGHT_FLAGS, Breach
from ..metrics.flush import has_subnormals
from ..metrics.rule_weights import rule_weights
from ..metrics.swaps import SetClass, classify_sets
from ..metrics.ulp import ulp_distance
from ..policy import Policy
from .case_reference import case_reference
from .cases import F32, I64, Case, PathRows

Codes = npt.NDArray[np.uint64]
I32 = npt.NDArray[np.int32]

SET_CLASSES: Final = tuple(SetClass)
_BEYOND_THE_WINDOW: Final = (SetClass.FAR_SWAP, SetClass.MULTI_SWAP)
_WEIGHT_FLAGS: Final = np.uint64(WEIGHT_FLAGS)


@dataclass(frozen=True, eq=False)
class JudgedPath:
    """One path's rows, judged by the row contract and by the reference.

    Attributes:
        name: ``a`` or ``b``.
        ids: [row, slot] as returned.
        weights: [row, slot] as returned, or None.
        logits: [row, expert] that this path saw.
        reference: the right answer for them.
        routed: [row, routed slot] ids without the shared slots; 0, 1, ... where a row is invalid.
        routed_weights: [row, routed slot], or None.
        breach: [row] bits of ``Breach``.
        flags: [row] failing bits of ``RowFlag``.
        uneven: [row] the row does not hold ``n_shared`` shared ids.
        differs: [row] the set is not the reference's.
        set_wrong: [row] it differs beyond what a tie or near tie explains.
        weights_wrong: [row] weights do not follow from the path's own ids.
    """

    name: str
    label: str
    ids: I64
    weights: F32 | None
    logits: F32
    reference: ReferenceSelection
    routed: I32
    routed_weights: F32 | None
    breach: Codes
    flags: Codes
    uneven: Bools
    differs: Bools
    set_wrong: Bools
    weights_wrong: Bools

    @property
    def invalid(self) -> Bools:
        """[row] the contract is broken: sets cannot be compared."""
        return np.asarray(self.breach != 0)

    @property
    def poisoned(self) -> Bools:
        """[row] the poison of before the run is still there."""
        return np.asarray((self.breach & np.uint64(Breach.POISON_SURVIVES)) != 0)

    @property
    def wrong(self) -> Bools:
        """[row] the valid row is not what the reference's rules give."""
        return np.asarray((self.set_wrong | self.weights_wrong) & ~self.invalid)


def judge_path(name: str, rows: PathRows, logits: F32, case: Case, policy: Policy) -> JudgedPath:
    """Return one path of a case with what the contract and the reference say of it.

    Where flush-to-zero is declared, the flushed reference judges, and a path is only wrong where
    it is wrong by the flushed and by the plain one.

    Raises:
        ReferenceError: the reference's answer fails its own check.
    """
    references = [case_reference(case, logits)]
    if policy.flush_to_zero:
        references.insert(0, case_reference(case, logits, flush=True))
    breach = _breaches(rows, case, references[-1])
    routed, routed_weights, uneven = _routed_slots(rows, case, breach != 0)
    flags = _flags(rows, case, logits, references, breach, policy)
    return JudgedPath(
        name=name,
        label=rows.label,
        ids=rows.ids,
        weights=rows.weights,
        logits=logits,
        reference=references[0],
        routed=routed,
        routed_weights=routed_weights,
        breach=breach,
        flags=flags,
        uneven=uneven,
        differs=~same_as_expected(routed, references[0].ids),
        set_wrong=_all(_set_wrong(routed, r, case, policy) for r in references),
        weights_wrong=(flags & _WEIGHT_FLAGS) != 0,
    )


def _all(masks: Any) -> Bools:
    return np.asarray(np.logical_and.reduce(list(masks)))


def _breaches(rows: PathRows, case: Case, reference: ReferenceSelection) -> Codes:
    """Breach bits [row]. A poison that is also a right answer is no evidence."""
    experts = case.experts + case.n_shared
    poison_ids: int | None = None
    poison_bits: int | None = None
    if case.poison is not None:
        poison = float(case.poison)
        if poison == np.floor(poison) and not 0 <= poison < experts and abs(poison) < 2**63:
            poison_ids = int(poison)
        with np.errstate(over="ignore"):
            value = np.float32(poison)
            expected = reference.weights.astype(np.float32)
        if not (expected == value).any():
            poison_bits = int(value.view(np.uint32))
    found = breaches(
        rows.ids,
        rows.weights,
        experts,
        poison_ids=poison_ids,
        poison_weights_bits=poison_bits,
    )
    return found.astype(np.uint64)


def _routed_slots(rows: PathRows, case: Case, invalid: Bools) -> tuple[I32, F32 | None, Bools]:
    """Ids and weights of the routed slots [row, slot], and which rows lack a shared id."""
    top_k, experts = case.geometry.top_k, case.experts
    routed = np.tile(np.arange(top_k, dtype=np.int32), (len(rows.ids), 1))
    weights = None if rows.weights is None else np.zeros(routed.shape, np.float32)
    uneven = np.zeros(len(rows.ids), np.bool_)
    for row, ids in enumerate(rows.ids):
        slots = np.flatnonzero(ids < experts)
        uneven[row] = len(slots) != top_k and not invalid[row]
        if invalid[row] or uneven[row]:
            continue
        routed[row] = ids[slots]
        if weights is not None and rows.weights is not None:
            weights[row] = rows.weights[row, slots]
    return routed, weights, uneven


def _flags(
    rows: PathRows,
    case: Case,
    logits: F32,
    references: Sequence[ReferenceSelection],
    breach: Codes,
    policy: Policy,
) -> Codes:
    # A subnormal score has few bits left: weights may follow from it as FP32 holds it.
    coarse = [
        replace(r, scores=r.scores32.astype(np.float64))
        for r in references
        if has_subnormals(r.scores32)
    ]
    found = [
        path_flags(
            rows.ids,
            rows.weights,
            r.scores,
            logits,
            case.bias,
            case.scoring,
            r.eligible,
            n_shared=case.n_shared,
            group_keys=r.group_keys,
            budget_ulp=policy.weight_budget_ulp,
            breach=breach.astype(np.uint8),
        ).astype(np.uint64)
        for r in [*references, *coarse]
    ]
    flags = np.asarray(np.bitwise_and.reduce(found))
    if policy.flush_to_zero:
        # All selected scores flushed: the rule divides zero by zero and has no weights to ask for.
        rule = rule_weights(rows.ids, references[0].scores, case.scoring)
        flags[np.isnan(rule).any(axis=1)] &= ~_WEIGHT_FLAGS
    return flags


def _set_wrong(routed: I32, reference: ReferenceSelection, case: Case, policy: Policy) -> Bools:
    sets = classify_sets(
        reference.ids,
        routed,
        reference.keys,
        window_ulp=policy.window_ulp,
        noise_abs=policy.noise_abs,
        group_keys=reference.group_keys,
        groups=case.geometry.groups,
    )
    codes = [SET_CLASSES.index(kind) for kind in _BEYOND_THE_WINDOW]
    wrong = np.isin(sets.set_class, codes)
    # A key that is NaN has no place in the order, so nothing beyond a flag can be told.
    for row in np.flatnonzero(wrong):
        moved = np.setxor1d(reference.ids[row], routed[row])
        wrong[row] = not np.isnan(reference.keys[row, moved]).any()
    return wrong


def weights_fit(weights: F32 | None, expected: npt.NDArray[np.float64], budget_ulp: int) -> Bools:
    """Return, for each row, whether weights [row, slot] are the expected ones within a budget.

    Two NaN fit each other, and so do two infinities of one sign; None fits nothing.
    """
    if weights is None:
        return np.zeros(len(expected), np.bool_)
    with np.errstate(over="ignore"):
        wanted = expected.astype(np.float32)
    same = (weights == wanted) | (np.isnan(weights) & np.isnan(wanted))
    return np.asarray((same | ulp_distance(weights, wanted).within(budget_ulp)).all(axis=1))


def same_output(one: JudgedPath, row: int, other: JudgedPath, other_row: int) -> bool:
    """Whether two rows of two paths hold the same ids and weights, bit for bit."""
    i, j = slice(row, row + 1), slice(other_row, other_row + 1)
    left = None if one.weights is None else one.weights[i]
    right = None if other.weights is None else other.weights[j]
    return not bool(differing_rows(one.ids[i], left, other.ids[j], right)[0])
