"""Breaches, failing flags and input flags: each planted, each absent where nothing is wrong."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neartie.audit.metrics.contracts import breaches, path_flags
from neartie.audit.metrics.flags import FAILING, INPUT, Breach, RowFlag, names
from neartie.audit.metrics.input_flags import input_flags, pair_flags
from neartie.audit.metrics.rule_weights import rule_weights
from neartie.audit.metrics.ulp import from_ordered, ordered
from neartie.banks.errors import InputError
from neartie.banks.geometry import ScoringRule

INF, NAN = np.inf, np.nan
RULE = ScoringRule(epsilon=0.0)
POISON = 0x7FC0_BEEF


def breach_names(ids: Any, weights: Any = None, experts: int = 8, **rest: Any) -> list[str]:
    array = None if weights is None else np.array([weights], np.float32)
    found = breaches(np.array([ids], np.int32), array, experts, **rest)
    return names(Breach(int(found[0])))


def test_breaches_of_the_case_files() -> None:
    assert breach_names([0, 1, 2, 3], [0.25] * 4) == []
    assert breach_names([0, 0, 0, 0], [NAN] * 4) == ["duplicate_id", "nonfinite_weight"]
    assert breach_names([8, 8], [0.0, 0.0]) == ["duplicate_id", "id_out_of_range"]
    assert breach_names([-1, 3], [0.5, 0.5]) == ["id_out_of_range"]
    assert breach_names([3, 1, 3]) == ["duplicate_id"]
    assert breach_names([3, 8], experts=9) == []
    assert breach_names([3, 1], [0.5, INF]) == ["nonfinite_weight"]


def test_poison_is_told_by_its_bits() -> None:
    left = np.array([0x3F00_0000, POISON], np.uint32).view(np.float32)
    told = {"poison_weights_bits": POISON}
    ids = np.array([[0, 1]])
    both = Breach.NONFINITE_WEIGHT | Breach.POISON_SURVIVES
    assert breaches(ids, left[None, :], 8, **told).tolist() == [both]
    # Another NaN is no poison, and a finite poison needs no NaN.
    other = np.array([[0.5, NAN]], np.float32)
    assert breaches(ids, other, 8, **told).tolist() == [Breach.NONFINITE_WEIGHT]
    finite = int(np.float32(-777.0).view(np.uint32))
    weights = np.array([[0.5, -777.0]], np.float32)
    found = breaches(ids, weights, 8, poison_weights_bits=finite)
    assert found.tolist() == [Breach.POISON_SURVIVES]
    assert breach_names([-7, 2], poison_ids=-7) == ["id_out_of_range", "poison_survives"]
    # A legal id may have been the filling: the poison is told all the same.
    assert breach_names([5, 2], poison_ids=5) == ["poison_survives"]


@given(st.lists(st.lists(st.integers(-2, 6), min_size=3, max_size=3), min_size=1, max_size=6))
def test_breaches_equal_a_slow_walk(rows: list[list[int]]) -> None:
    expected = []
    for row in rows:
        flag = Breach(0)
        if len(set(row)) < 3:
            flag |= Breach.DUPLICATE_ID
        if any(not 0 <= i < 5 for i in row):
            flag |= Breach.ID_OUT_OF_RANGE
        if 4 in row:
            flag |= Breach.POISON_SURVIVES
        expected.append(int(flag))
    assert breaches(np.array(rows), None, 5, poison_ids=4).tolist() == expected


def test_words() -> None:
    assert RowFlag(0) == FAILING & INPUT
    assert ~RowFlag(0) == FAILING | INPUT
    assert names(FAILING) == [
        "negative_weight", "zero_sum_weights", "wrong_sum", "nonfinite_expert_selected",
        "wrong_group", "weights_not_from_ids",
    ]  # fmt: skip
    assert names(INPUT) == [
        "saturated_scores", "subnormal_scores", "bias_swallows_score", "tie_after_bf16",
        "nonfinite_logits", "nonfinite_bias",
    ]  # fmt: skip
    assert names(RowFlag(0)) == []


def sigmoid(x: Any) -> npt.NDArray[np.float64]:
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-np.asarray(x, np.float64))))


def flag_names(
    ids: list[int],
    weights: list[float] | None,
    logits: list[float],
    scoring: ScoringRule = RULE,
    bias: list[float] | None = None,
    **rest: Any,
) -> list[str]:
    values = np.array([logits])
    scores = values if scoring.function == "identity" else sigmoid(values)
    found = path_flags(
        np.array([ids], np.int32),
        None if weights is None else np.array([weights], np.float32),
        scores,
        values,
        None if bias is None else np.array(bias, np.float32),
        scoring,
        **rest,
    )
    return names(RowFlag(int(found[0])))


LOGITS = [0.2, -0.3, 1.1, 0.7]
RIGHT = [0.52893032, 0.47106968]


def test_right_weights_have_no_flag() -> None:
    assert flag_names([2, 3], RIGHT, LOGITS) == []
    assert flag_names([2, 3], None, LOGITS) == []
    # A path's own ids count, right or wrong: a swapped expert has its own right weight.
    swapped = rule_weights(np.array([[2, 0]]), sigmoid([LOGITS]), RULE)[0].tolist()
    assert flag_names([2, 0], swapped, LOGITS) == []
    assert flag_names([2, 0], RIGHT, LOGITS) == ["weights_not_from_ids"]


@pytest.mark.parametrize("scoring", [RULE, ScoringRule(scale=2.5), ScoringRule(renormalize=False)])
def test_drift_within_the_budget_has_no_flag(scoring: ScoringRule) -> None:
    rng = np.random.default_rng(9)
    logits = rng.normal(size=(400, 64)) * 3
    ids = np.argsort(-logits, axis=1)[:, :16]
    exact = rule_weights(ids, sigmoid(logits), scoring).astype(np.float32)
    for budget in (0, 3, 8):
        # All slots off the same way: the sum is as wrong as the budget lets it be.
        for steps in (budget, -budget, rng.integers(-budget, budget + 1, ids.shape)):
            weights = from_ordered(ordered(exact) + steps, np.float32)
            found = path_flags(
                ids, weights, sigmoid(logits), logits, None, scoring, budget_ulp=budget
            )
            assert not found.any()
        weights = exact.copy()
        weights[:, 5] = from_ordered(ordered(exact[:, 5]) + budget + 1, np.float32)
        found = path_flags(ids, weights, sigmoid(logits), logits, None, scoring, budget_ulp=budget)
        assert (found == RowFlag.WEIGHTS_NOT_FROM_IDS).all()


def test_wrong_sums() -> None:
    assert flag_names([2, 3], [0.55, 0.47], LOGITS) == ["wrong_sum", "weights_not_from_ids"]
    twice = ScoringRule(epsilon=0.0, scale=2.5)
    scaled = [w * 6.25 for w in RIGHT]
    assert flag_names([2, 3], scaled, LOGITS, twice) == ["wrong_sum", "weights_not_from_ids"]
    # Without renormalisation a sum says nothing.
    plain = ScoringRule(renormalize=False)
    assert flag_names([2, 3], [0.55, 0.47], LOGITS, plain) == ["weights_not_from_ids"]
    # An epsilon as large as the scores belongs to the rule.
    big = ScoringRule(epsilon=1.0)
    with_epsilon = rule_weights(np.array([[2, 3]]), sigmoid([LOGITS]), big)[0].tolist()
    assert flag_names([2, 3], with_epsilon, LOGITS, big) == []
    assert "wrong_sum" in flag_names([2, 3], RIGHT, LOGITS, big)
    narrow = np.array(RIGHT, np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)
    assert "weights_not_from_ids" in flag_names([2, 3], narrow.tolist(), LOGITS)


def test_zero_sums() -> None:
    swallowed = [-17.0, -16.2, -18.5, -16.9]
    found = flag_names([0, 1], [0.0, 0.0], swallowed, ScoringRule(), bias=[12.0] * 4)
    assert found == ["zero_sum_weights", "weights_not_from_ids"]
    # Where the rule gives 0 as well, a zero sum is right.
    identity = ScoringRule("identity", renormalize=False)
    assert flag_names([1], [-0.0], [-1.0, -0.0, 0.0, -2.0], identity) == []
    assert flag_names([0, 1], [0.0, 0.0], [-200.0] * 4, ScoringRule()) == []
    # Opposite weights that cancel are a zero sum too.
    found = flag_names([2, 3], [0.5, -0.5], LOGITS)
    assert found == ["negative_weight", "zero_sum_weights", "weights_not_from_ids"]


def test_negative_weights() -> None:
    assert "negative_weight" in flag_names([2, 3], [-0.1, 1.1], LOGITS)
    identity = ScoringRule("identity", renormalize=False)
    # The identity's weights may be negative by the rule.
    assert flag_names([0, 1], [-1.5, 2.0], [-1.5, 2.0, -3.0], identity) == []
    assert flag_names([0, 1], [1.5, -2.0], [-1.5, 2.0, -3.0], identity) == [
        "negative_weight", "weights_not_from_ids",
    ]  # fmt: skip


def test_nonfinite_experts() -> None:
    odd = "nonfinite_expert_selected"
    assert odd in flag_names([0, 2], [0.5, 0.5], [NAN, 0.1, 0.2, 0.3])
    assert odd in flag_names([0, 2], [0.5, 0.5], [-INF, 0.1, 0.2, 0.3])
    assert odd not in flag_names([1, 2], [0.5, 0.5], [NAN, 0.1, 0.2, 0.3])
    # An infinite bias is a bias; a NaN one, or infinities that cancel, leave no key.
    assert flag_names([2, 3], RIGHT, LOGITS, bias=[0, 0, -INF, INF]) == []
    assert flag_names([2, 3], RIGHT, LOGITS, bias=[0, 0, NAN, 0]) == [odd]
    # Uniform weights of a row without any number: the rule has no answer to compare with.
    assert flag_names([0, 1], [0.5, 0.5], [NAN] * 4) == [odd]


def test_shared_slots_take_no_part() -> None:
    ids, weights = [2, 4, 3, 5], [RIGHT[0], 1.0, RIGHT[1], -9.0]
    assert flag_names(ids, weights, LOGITS, n_shared=2) == []
    # One more than the path declares is out of range: a breach, which leaves no flags.
    assert flag_names([2, 4, 0, 5], weights, LOGITS, n_shared=1) == []
    assert flag_names([2, 4, 0, 5], weights, LOGITS, n_shared=2) == ["weights_not_from_ids"]


def test_rows_with_a_breach_have_no_flags() -> None:
    assert flag_names([2, 2], [-0.5, 1.0], LOGITS) == []
    assert flag_names([2, 3], [-0.5, 1.0], LOGITS, breach=np.array([8], np.uint8)) == []
    assert flag_names([99, -3], [-0.5, 1.0], LOGITS) == []


def test_declared_logit_error_widens_what_follows_from_the_ids() -> None:
    off = [*LOGITS[:2], LOGITS[2] + 1e-5, LOGITS[3] - 1e-5]
    weights = rule_weights(np.array([[2, 3]]), sigmoid([off]), RULE)[0].tolist()
    assert flag_names([2, 3], weights, LOGITS) == ["weights_not_from_ids"]
    assert flag_names([2, 3], weights, LOGITS, logit_slack=np.array([1e-5])) == []
    assert flag_names([2, 3], [0.53, 0.47], LOGITS, logit_slack=np.array([1e-5])) != []
    identity = ScoringRule("identity", renormalize=False)
    slack: dict[str, Any] = {"logit_slack": np.array([1e-3])}
    assert flag_names([1, 0], [2.001, 0.5], [0.5, 2.0, 0.1], identity, **slack) == []
    assert flag_names([1, 0], [2.1, 0.5], [0.5, 2.0, 0.1], identity, **slack) != []


@settings(max_examples=30)
@given(st.integers(0, 1000), st.sampled_from(["sigmoid", "softmax", "sqrtsoftplus"]),
       st.booleans(), st.sampled_from([1e-6, 1e-3, 0.1]))  # fmt: skip
def test_declared_logit_error_covers_all_it_should(
    seed: int, function: Any, renormalize: bool, slack: float
) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(20, 12)) * 4
    moved = logits + rng.choice([-1.0, 1.0], size=logits.shape) * slack
    ids = np.argsort(-logits, axis=1)[:, :5]
    scoring = ScoringRule(function, renormalize=renormalize, epsilon=0.0)

    def scores(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if function == "softmax":
            return np.asarray(np.exp(x) / np.exp(x).sum(axis=1, keepdims=True))
        return sigmoid(x) if function == "sigmoid" else np.sqrt(np.logaddexp(0.0, x))

    weights = rule_weights(ids, scores(moved), scoring).astype(np.float32)
    found = path_flags(
        ids, weights, scores(logits), logits, None, scoring, logit_slack=np.full(20, slack)
    )
    assert not found.any()


def test_expected_weights_of_the_caller_overrule() -> None:
    expected = np.array([[0.25, 0.75]])
    assert flag_names([2, 3], [0.25, 0.75], LOGITS, expected_weights=expected) == []
    assert flag_names([2, 3], RIGHT, LOGITS, expected_weights=expected) == ["weights_not_from_ids"]


def group_flag(ids: list[int], group_keys: list[float], top: int) -> bool:
    """Whether experts 0..7 in 4 groups of 2 are in a wrong group."""
    keys = np.array([group_keys], np.float32)
    order = sorted(range(4), key=lambda g: (np.isnan(group_keys[g]), -group_keys[g], g))
    chosen = np.isin(np.arange(4), order[:top])
    found = flag_names(ids, None, [0.0] * 8, eligible=np.repeat(chosen, 2)[None, :],
                       group_keys=keys)  # fmt: skip
    return found == ["wrong_group"]


def test_wrong_groups() -> None:
    assert not group_flag([0, 1, 4], [3.0, 1.0, 2.0, 0.0], 2)
    assert group_flag([0, 1, 2], [3.0, 1.0, 2.0, 0.0], 2)
    # Groups 1 and 2 tie for the second place: either may stand in, not both.
    tied = [3.0, 2.0, 2.0, 0.0]
    assert not group_flag([0, 2, 3], tied, 2)
    assert not group_flag([0, 4, 5], tied, 2)
    assert group_flag([0, 2, 4], tied, 2)
    # Without an expert of the best group there is still room for one tied group only.
    assert group_flag([2, 3, 4], tied, 2)
    assert group_flag([0, 6], tied, 2)
    nearly = [3.0, 2.0, float(np.nextafter(np.float32(2.0), np.float32(3.0))), 0.0]
    assert not group_flag([4, 5], nearly, 2)
    assert group_flag([2, 3], nearly, 2)
    assert not group_flag([2, 3], [0.0, -0.0, -1.0, -1.0], 1)
    assert not group_flag([6], [NAN, 1.0, NAN, NAN], 2)
    assert group_flag([6], [NAN, 1.0, 0.0, NAN], 2)
    eligible = np.array([[True, True, False, False]])
    assert flag_names([0, 2], None, LOGITS, eligible=eligible) == ["wrong_group"]
    assert flag_names([0, 1], None, LOGITS, eligible=eligible) == []


def inputs_of(
    logits: list[float], top_k: int, bias: list[float] | None = None, **rest: Any
) -> list[str]:
    """Input flags of one row whose ids are selected here, by key and then by lower id."""
    values = np.array([logits])
    scores = values if rest.get("function") == "identity" else sigmoid(values)
    scores32 = scores.astype(np.float32)
    keys = scores32 if bias is None else scores32 + np.array([bias], np.float32)
    order = sorted(range(len(logits)), key=lambda e: (np.isnan(keys[0, e]), -keys[0, e], e))
    if rest.get("eligible") is not None:
        order = [e for e in order if rest["eligible"][0, e]]
    found = input_flags(
        values,
        None if bias is None else np.array(bias, np.float32),
        scores32,
        keys,
        np.array([order[:top_k]], np.int32),
        top_k,
        **rest,
    )
    return names(RowFlag(int(found[0])))


def test_input_flags_of_the_case_files() -> None:
    assert inputs_of([17.5, 30.0, 18.0, 25.0], 2) == ["saturated_scores"]
    assert inputs_of([-17.0, -16.2, -18.5, -16.9], 2, [12.0] * 4) == ["bias_swallows_score"]
    assert inputs_of([1.0005, 1.0035, -0.5, -0.7], 1) == ["tie_after_bf16"]
    assert inputs_of([NAN] * 8, 4, [0.0] * 8) == ["nonfinite_logits"]
    assert inputs_of([0.0] * 8, 4, [-INF] * 8) == ["nonfinite_bias"]
    assert inputs_of([0.2, -0.3, 1.1, 0.7], 2, [0.5, 0.0, -0.2, 0.1]) == []
    assert inputs_of([0.0] * 4, 2, [0.0] * 4) == []


def test_saturation_counts_near_the_boundary_only() -> None:
    # The last two are far below the boundary.
    assert inputs_of([1.0, 0.5, 0.2, -200.0, -300.0], 2) == []
    assert inputs_of([1.0, 0.5, -200.0, -300.0], 2) == ["saturated_scores"]
    assert inputs_of([30.0, 0.5, 0.2, 0.1], 2) == ["saturated_scores"]
    # An infinite logit saturates by right; identity scores of 0 and 1 are values like others.
    assert inputs_of([INF, 0.5, 0.2, 0.1], 2) == ["nonfinite_logits"]
    assert inputs_of([1.0, 0.0, -1.0], 2, function="identity") == []
    assert inputs_of([-88.0, -89.0, -300.0], 1) == ["subnormal_scores"]
    assert inputs_of([-80.0, -81.0, -89.0], 1) == []


def test_swallowing_needs_an_exact_difference() -> None:
    # 0.5 + 0.25 and 0.25 + 0.5: equal keys by arithmetic, nothing was rounded away.
    exact = inputs_of([0.5, 0.25, 0.0], 1, [0.25, 0.5, 0.0], function="identity")
    assert exact == []
    lost = inputs_of([2.0**-30, 2.0**-31, -1.0], 1, [1.0, 1.0, 0.0], function="identity")
    assert lost == ["bias_swallows_score"]
    # Equal scores whose biases were lost: the score swallowed the bias.
    other = inputs_of([0.5, 0.5, -1.0], 1, [2.0**-30, 2.0**-31, 0.0], function="identity")
    assert other == []
    # A tie within the selection moves no boundary.
    inside = inputs_of([2.0**-30, 2.0**-31, -1.0], 2, [1.0, 1.0, 0.0], function="identity")
    assert inside == []
    # Three tie at the boundary; the pair there is equal, the third lost its difference.
    wide = inputs_of([2.0**-31, 2.0**-30, 2.0**-31, 0.0], 2, [1.0, 1.0, 1.0, 0.0],
                     function="identity")  # fmt: skip
    assert wide == ["bias_swallows_score"]


def test_the_boundary_lies_among_eligible_experts() -> None:
    logits = [1.0, 1.0005, 1.0035, -2.0]
    assert inputs_of(logits, 1) == ["tie_after_bf16"]
    eligible = np.array([[False, False, True, True]])
    assert inputs_of(logits, 1, eligible=eligible) == []
    # Without a next expert there is no boundary.
    assert inputs_of([0.1, 0.2], 2) == []
    assert inputs_of([0.1, NAN], 1) == ["nonfinite_logits"]


def test_the_last_of_equal_selected_keys_has_the_highest_id() -> None:
    # Keys 2, 2 and 1.5: expert 1 is the last one in, and its logit ties with expert 2's in BF16.
    biased = inputs_of([2.0, 1.0, 1.0005], 2, [0.0, 1.0, 0.5], function="identity")
    assert biased == ["tie_after_bf16"]
    assert inputs_of([1.0, 2.0, 1.0005], 2, [1.0, 0.0, 0.5], function="identity") == []


def test_pair_flags_judge_the_swapped_experts() -> None:
    logits = np.array([[1.0005, 1.0035, 5.0, -300.0, NAN]])
    keys = sigmoid(logits).astype(np.float32)

    def of(dropped: list[int], added: list[int], bias: Any = None) -> list[str]:
        found = pair_flags(np.array([dropped]), np.array([added]), logits, bias, keys, keys)
        return names(RowFlag(int(found[0])))

    assert of([0, -1], [1, -1]) == ["tie_after_bf16"]
    assert of([0, -1], [2, -1]) == []
    # Any pair of a dropped and an added expert.
    assert of([0, 2], [1, 3]) == ["saturated_scores", "tie_after_bf16"]
    assert of([4, -1], [2, -1]) == ["nonfinite_logits"]
    assert of([0, -1], [2, -1], np.array([0, 0, 0, 0, NAN], np.float32)) == ["nonfinite_bias"]
    assert of([-1, -1], [-1, -1]) == []


FP64: Any = np.zeros((1, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: breaches(np.zeros(3, int), None, 4), "ids=int64[3], but should be integers"),
        (lambda: breaches(FP64, None, 4), "ids=float64[1, 3]"),
        (
            lambda: breaches(np.zeros((1, 3), int), np.zeros((1, 2), "f4"), 4),
            "weights=float32[1, 2], but should be float32[1, 3] [breaches]",
        ),
        (lambda: flag_names([0], [0.5, 0.5], LOGITS), "but should be float32[1, 1] [path_flags]"),
    ],
)
def test_bad_input_is_named(call: Any, message: str) -> None:
    with pytest.raises(InputError) as told:
        call()
    assert message in str(told.value)


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.booleans())
def test_the_boundary_equals_a_slow_walk(seed: int, grouped: bool) -> None:
    rng = np.random.default_rng(seed)
    pool = np.array([NAN, -INF, INF, -1.0, 0.0, -0.0, 1.0, 1.001, 1.0015, 2.0], np.float32)
    keys = rng.choice(pool, size=(6, 7))
    eligible = rng.random((6, 7)) < 0.7 if grouped else np.ones((6, 7), np.bool_)
    eligible[:, :3] = True
    expected, ids = [], []
    for row in range(6):
        # Order by key, NaN last, then by lower id.
        order = sorted(
            np.flatnonzero(eligible[row]).tolist(),
            key=lambda e: (np.isnan(keys[row, e]), -keys[row, e], e),
        )
        ids.append(order[:3])
        last, others = order[2], [e for e in order[3:] if not np.isnan(keys[row, e])]
        flags = RowFlag(0)
        if others and np.isfinite(keys[row, [last, others[0]]]).all():
            one, other = keys[row, last], keys[row, others[0]]
            narrow = np.array([one, other]).astype(ml_dtypes.bfloat16)
            if one != other and narrow[0] == narrow[1]:
                flags |= RowFlag.TIE_AFTER_BF16
        if not np.isfinite(keys[row]).all():
            flags |= RowFlag.NONFINITE_LOGITS
        expected.append(int(flags))
    found = input_flags(
        keys, None, keys, keys, np.array(ids), 3, function="identity",
        eligible=eligible if grouped else None,
    )  # fmt: skip
    assert found.tolist() == expected
