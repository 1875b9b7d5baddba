"""Both paths of a case and what lies between them: set and weight differences, input flags."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..metrics.findings import Bools, same_as_expected
from ..metrics.flush import flushed
from ..metrics.input_flags import input_flags, pair_flags
from ..metrics.rule_weights import rule_weights
from ..metrics.swaps import SetClass, SetDifferences, classify_sets
from ..metrics.weights import WeightDifferences, align, classify_weights
from ..policy import Policy
from .cases import F32, F64, Case
from .judged_path import SET_CLASSES, Codes, JudgedPath, judge_path, weights_fit


@dataclass(frozen=True, eq=False)
class JudgedCase:
    """Both paths and what lies between them.

    Attributes:
        sets: differences of the routed sets, on the keys that path a's reference has.
        set_equal: [row] both rows hold the same ids, shared slots included.
        weights: weight differences of all rows where ``weights_compared``, else of stand-ins.
        weights_compared: [row] valid, the sets are equal and both paths have weights.
        input_flags: [row] bits of ``RowFlag`` about the inputs.
    """

    case: Case
    policy: Policy
    a: JudgedPath
    b: JudgedPath
    sets: SetDifferences
    set_equal: Bools
    weights: WeightDifferences
    weights_compared: Bools
    input_flags: Codes
    baseline: JudgedPath
    """What b is compared with: path a, or b's own right answer (see ``own_reference``)."""

    @property
    def own_reference(self) -> bool:
        """Whether b is compared with its own reference: two steps of different inputs."""
        return self.baseline is not self.a

    @property
    def uneven(self) -> Bools:
        """[row] a valid path does not hold the shared ids that it should."""
        return np.asarray(self.a.uneven | self.b.uneven)

    @property
    def invalid(self) -> Bools:
        """[row] at least one path breaks the contract."""
        return np.asarray(self.a.invalid | self.b.invalid)

    @property
    def agree(self) -> Bools:
        """[row] both paths hold one set and weights that are inside the budget of each other."""
        close = ~self.weights_compared | (
            (self.weights.max_ulp >= 0) & (self.weights.max_ulp <= self.policy.weight_budget_ulp)
        )
        return np.asarray(self.set_equal & close)

    def weights_fit(self, weights: F32 | None, expected: F64) -> Bools:
        """Return, for each row, whether weights are the expected ones within the budget."""
        return weights_fit(weights, expected, self.policy.weight_budget_ulp)

    def set_class(self, row: int) -> SetClass:
        """Class of a row's set difference."""
        return SET_CLASSES[int(self.sets.set_class[row])]


def judge_case(case: Case, policy: Policy) -> JudgedCase:
    """Return a case with both paths judged under a policy.

    Where flush-to-zero is declared, differences are measured on flushed keys and weights.

    Raises:
        ReferenceError: the reference's answer fails its own check.
    """
    a = judge_path("a", case.a, case.logits_a, case, policy)
    b = judge_path("b", case.b, case.logits_b, case, policy)
    baseline = a
    if case.split and case.leading_axis == "step" and a.logits.tobytes() != b.logits.tobytes():
        baseline = _right_answer(b, case)
    invalid = a.invalid | b.invalid
    reference = baseline.reference
    sets = classify_sets(
        baseline.routed,
        b.routed,
        reference.keys,
        window_ulp=policy.window_ulp,
        noise_abs=policy.noise_abs,
        invalid=invalid | a.uneven | b.uneven,
        group_keys=reference.group_keys,
        groups=case.geometry.groups,
    )
    set_equal = same_as_expected(baseline.ids, b.ids) & ~invalid
    compared = set_equal & (baseline.weights is not None) & (b.weights is not None)
    flags = _input_flags(case, baseline, sets)
    if case.split:
        flags |= _input_flags(case, b, sets)
    return JudgedCase(
        case=case,
        policy=policy,
        a=a,
        b=b,
        sets=sets,
        set_equal=set_equal,
        weights=_weights(baseline, b, compared, policy),
        weights_compared=compared,
        input_flags=flags,
        baseline=baseline,
    )


def _right_answer(path: JudgedPath, case: Case) -> JudgedPath:
    """What a path should have returned, in the form of a path; shared slots as the path's own."""
    ids = path.ids.copy()
    ids[ids < case.experts] = -1
    for row, right in enumerate(path.reference.ids):
        free = np.flatnonzero(ids[row] < 0)[: len(right)]
        ids[row, free] = right[: len(free)]
    weights = None
    if path.weights is not None:
        with np.errstate(over="ignore"):
            rule = rule_weights(ids, path.reference.scores, case.scoring).astype(np.float32)
        weights = np.where(ids < case.experts, rule, path.weights).astype(np.float32)
    return replace(
        path, name="a", ids=ids, weights=weights, routed=path.reference.ids, routed_weights=None
    )


def _input_flags(case: Case, path: JudgedPath, sets: SetDifferences) -> Codes:
    """Flags of the boundary, and of the experts that differ between the paths."""
    r, function = path.reference, case.scoring.function
    flags = input_flags(
        path.logits,
        case.bias,
        r.scores,
        r.keys,
        r.ids,
        case.geometry.top_k,
        function=function,
        eligible=r.eligible,
    ).astype(np.uint64)
    rows = sets.rows
    if len(rows):
        flags[rows] |= pair_flags(
            sets.dropped,
            sets.added,
            path.logits[rows],
            case.bias,
            r.scores[rows],
            r.keys[rows],
            function=function,
        )
    return flags


def _weights(a: JudgedPath, b: JudgedPath, compared: Bools, policy: Policy) -> WeightDifferences:
    """Weight differences; a row that is not compared is held against itself."""
    if a.weights is None or b.weights is None:
        none = np.zeros((len(a.ids), 1), np.float32)
        return classify_weights(none, none, policy.weight_budget_ulp)
    ids_b = np.where(compared[:, None], b.ids, a.ids)
    weights_b = np.where(compared[:, None], b.weights, a.weights)
    first, second = align(a.ids, a.weights, ids_b, weights_b)
    if policy.flush_to_zero:
        first, second = flushed(first), flushed(second)
    return classify_weights(first, second, policy.weight_budget_ulp)
