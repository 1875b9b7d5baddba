"""Weight classes with planted differences, the rule's own weights, and named hypotheses."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neartie.audit.metrics.rule_weights import rule_weights
from neartie.audit.metrics.ulp import from_ordered, ordered
from neartie.audit.metrics.weight_hypotheses import HYPOTHESES, match_hypotheses
from neartie.audit.metrics.weights import (
    EXACT_BINS,
    WEIGHT_CLASSES,
    WeightClass,
    WeightDifferences,
    align,
    classify_weights,
)
from neartie.banks.errors import InputError
from neartie.banks.geometry import ScoringRule

F32 = npt.NDArray[np.float32]


def classes(found: WeightDifferences) -> list[str]:
    return [str(WEIGHT_CLASSES[code]) for code in found.weight_class]


def one(a: Any, b: Any, budget: int = 8) -> tuple[str, int, float]:
    found = classify_weights(np.array([a], np.float32), np.array([b], np.float32), budget)
    return classes(found)[0], int(found.max_ulp[0]), float(found.ratio[0])


def stepped(weights: Any, *steps: int) -> F32:
    moved: F32 = from_ordered(ordered(np.array(weights, np.float32)) + np.array(steps), np.float32)
    return moved


def narrow(weights: Any) -> F32:
    narrowed: F32 = np.array(weights, np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)
    return narrowed


def random_weights(rows: int, slots: int, seed: int = 1) -> F32:
    raw = np.random.default_rng(seed).uniform(0.1, 1.0, (rows, slots))
    weights: F32 = (raw / raw.sum(axis=1, keepdims=True)).astype(np.float32)
    return weights


def test_align_undoes_the_slot_order() -> None:
    ids_a, ids_b = np.array([[5, 2, 9]]), np.array([[9, 5, 2]])
    w_a, w_b = np.array([[0.5, 0.2, 0.3]], "f4"), np.array([[0.3, 0.5, 0.2]], "f4")
    a, b = align(ids_a, w_a, ids_b, w_b)
    assert a.tolist() == b.tolist() == np.array([[0.2, 0.5, 0.3]], "f4").tolist()
    with pytest.raises(InputError, match=r"ids_b\[row 0\]=\[2, 5, 8\], but should be \[2, 5, 9\]"):
        align(ids_a, w_a, np.array([[8, 5, 2]]), w_b)
    with pytest.raises(InputError, match=r"w_b\.shape"):
        align(ids_a, w_a, ids_b, w_b[:, :2])


@given(st.integers(0, 12), st.integers(-14, 14), st.integers(0, 3))
def test_drift_ends_exactly_at_the_budget(budget: int, steps: int, slot: int) -> None:
    base = [0.1, 0.2, 0.3, 0.4]
    moved = stepped(base, *[steps if i == slot else 0 for i in range(4)])
    name, ulp, ratio = one(base, moved, budget)
    assert ulp == abs(steps)
    assert name == ("equal" if steps == 0 else "drift" if abs(steps) <= budget else "mismatch")
    assert math.isnan(ratio)
    assert one(moved, base, budget)[:2] == (name, ulp)


def test_zeros_of_either_sign_are_equal() -> None:
    assert one([0.0, 1.0], [-0.0, 1.0])[:2] == ("equal", 0)
    assert one([0.0, 1.0], [1e-45, 1.0])[:2] == ("drift", 1)


def test_undefined_weights_never_drift() -> None:
    assert one([math.nan, 1.0], [0.5, 1.0], 2**40)[:2] == ("mismatch", -1)
    assert one([math.inf, 1.0], [3e38, 1.0], 2**40)[:2] == ("mismatch", -1)
    found = classify_weights(
        np.array([[np.nan, 1.0]], np.float32), np.array([[np.nan, 1.0]], np.float32)
    )
    # The same bits, yet without a distance.
    assert (classes(found), found.max_ulp.tolist(), found.undefined) == (["equal"], [-1], 1)
    assert found.histogram == {0: 1}


def test_narrowed_bf16_on_either_side() -> None:
    wide = random_weights(200, 16)
    for a, b in ((wide, narrow(wide)), (narrow(wide), wide)):
        assert set(classes(classify_weights(a, b))) == {"narrowed_bf16"}
    assert one([0.55205023, 0.44794977], [0.55078125, 0.44726562])[0] == "narrowed_bf16"
    # The next BF16 value may come of a little drift before narrowing; two steps may not.
    base = narrow(wide)
    near = base.view(np.uint32) + np.uint32(0x10000)
    far = base.view(np.uint32) + np.uint32(0x20000)
    assert set(classes(classify_weights(wide, near.view(np.float32)))) == {"narrowed_bf16"}
    assert set(classes(classify_weights(wide, far.view(np.float32)))) <= {"mismatch", "scaled"}
    # One slot that is no BF16 value is enough.
    spoiled = base.copy()
    spoiled[:, 3] = stepped(spoiled[:, 3], *[1] * 200)
    assert "narrowed_bf16" not in classes(classify_weights(wide, spoiled))
    # Two rows of BF16 values do not differ by narrowing.
    assert one([0.5, 0.25], [0.5, 0.251953125])[0] == "mismatch"


@settings(max_examples=60)
@given(st.floats(0.01, 100.0), st.integers(2, 16), st.integers(0, 9))
def test_one_ratio_is_found(scale: float, slots: int, seed: int) -> None:
    weights = random_weights(20, slots, seed)
    rng = np.random.default_rng(seed)
    scaled = (weights.astype(np.float64) * scale).astype(np.float32)
    # Each side is off by up to the budget: still one ratio, by the derived bound.
    for side in (weights, scaled):
        side[:] = from_ordered(ordered(side) + rng.integers(-8, 9, side.shape), np.float32)
    found = classify_weights(weights, scaled)
    if abs(scale - 1.0) > 1e-3:
        assert set(classes(found)) <= {"scaled", "narrowed_bf16"}
        assert found.ratio == pytest.approx(np.full(20, scale), rel=1e-5)


def test_what_no_single_ratio_explains() -> None:
    assert one([0.25, 0.75], [0.5, 1.5]) == ("scaled", 1 << 23, 2.0)
    # The budget's own width around 1 is drift or mismatch, not a ratio.
    assert one([0.3, 0.4], stepped([0.3, 0.4], 9, 9))[0] == "mismatch"
    assert one([0.3, 0.4], stepped([0.3, 0.4], 900, 700))[0] == "mismatch"
    assert one([0.25, 0.75], [0.5, -1.5])[0] == "mismatch"
    assert one([0.25, 0.75], [-0.5, -1.5])[0] == "mismatch"
    assert one([0.25, 0.75], [0.0, 0.0])[0] == "mismatch"
    assert one([0.25, 0.75, 0.0], [0.5, 1.5, 0.0])[0] == "scaled"
    assert one([0.25, 0.75, 0.0], [0.5, 1.5, 0.1])[0] == "mismatch"
    # One slot always has a ratio; it bears nothing out.
    assert one([0.25], [0.5])[0] == "mismatch"
    assert one([0.25, 0.0], [0.5, 0.0])[0] == "mismatch"
    # Steps of subnormal weights are too coarse for the bound.
    assert one([1e-41, 2e-41], [2e-41, 4e-41])[0] == "mismatch"


def test_one_slot_beyond_the_bound_ends_a_ratio() -> None:
    base = np.full((1, 4), 0.75, np.float32)
    assert classes(classify_weights(base, base * 2)) == ["scaled"]
    # f - 1 is about 4 (8 + 1/2) 2**-23, and a step at 1.5 is 2**-23 / 1.5 of it: 51 steps.
    for steps, expected in ((50, "scaled"), (52, "mismatch")):
        moved = stepped(base[0] * 2, 0, 0, 0, steps)
        assert one(base[0], moved)[0] == expected


def test_histogram_is_exact_then_by_powers_of_two() -> None:
    a = np.full((1, 6), 0.3, np.float32)
    b = stepped(a[0], 0, EXACT_BINS - 1, EXACT_BINS, -EXACT_BINS - 1, 1023, 1024)[None, :]
    found = classify_weights(a, b)
    assert found.histogram == {0: 1, 255: 1, 256: 2, 512: 1, 1024: 1}
    assert found.counts()[WeightClass.MISMATCH] == 1
    assert classify_weights(a[:0], b[:0]).histogram == {}


@given(st.permutations(range(6)), st.booleans())
def test_classes_do_not_depend_on_slot_order_or_side(order: list[int], flip: bool) -> None:
    a = np.repeat(random_weights(5, 6, 3), 1, axis=0)
    b = a.copy()
    b[1] = stepped(a[1], 1, -2, 3, 0, 8, -8)
    b[2] = narrow(a[2])
    b[3] = a[3] * np.float32(2.5)
    b[4, 0] = 0.9
    expected = ["equal", "drift", "narrowed_bf16", "scaled", "mismatch"]
    left, right = (b, a) if flip else (a, b)
    assert classes(classify_weights(left[:, order], right[:, order])) == expected


def test_rule_weights_follow_the_rule() -> None:
    scores = np.array([[0.1, 0.2, 0.3, 0.4]])
    ids = np.array([[3, 1]])
    plain = rule_weights(ids, scores, ScoringRule(epsilon=0.0, scale=2.5))
    assert plain == pytest.approx(np.array([[0.4 / 0.6 * 2.5, 0.2 / 0.6 * 2.5]]))
    assert rule_weights(ids, scores, ScoringRule(renormalize=False, scale=3.0)) == pytest.approx(
        np.array([[1.2, 0.6]])
    )
    shared = rule_weights(np.array([[3, 4, 1]]), scores, ScoringRule(epsilon=0.0))
    assert shared[0, 1] == 0.0
    assert shared[0, [0, 2]].tolist() == pytest.approx([0.4 / 0.6, 0.2 / 0.6])
    zero = rule_weights(ids, np.zeros((1, 4)), ScoringRule(epsilon=0.0))
    assert np.isnan(zero).all()
    assert (rule_weights(ids, np.zeros((1, 4)), ScoringRule()) == 0.0).all()


@given(st.permutations(range(16)))
def test_rule_weights_have_the_same_bits_in_any_slot_order(order: list[int]) -> None:
    scores = np.random.default_rng(2).uniform(0, 1, (1, 16)) ** 9
    ids = np.arange(16)[None, :]
    straight = rule_weights(ids, scores, ScoringRule())
    assert rule_weights(ids[:, order], scores, ScoringRule()).tolist() == (
        straight[:, order].tolist()
    )


# Planted bugs, each computed here by itself from its description.

LOGITS = np.array([0.2, -0.3, 1.1, 0.7, -2.0, 0.45])
BIAS = np.array([0.5, 0.0, -0.2, 0.1, 0.3, -0.05], np.float32)
IDS = np.array([0, 3, 5])
RULE = ScoringRule(epsilon=0.0, scale=2.5)


def sigmoid(x: Any) -> npt.NDArray[np.float64]:
    return np.asarray(1.0 / (1.0 + np.exp(-np.asarray(x, np.float64))))


def softmax(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.asarray(np.exp(x) / np.exp(x).sum())


def share(values: npt.NDArray[Any], scale: float = 2.5) -> npt.NDArray[np.float64]:
    return np.asarray(values / values.sum() * scale, dtype=np.float64)


def bf16(x: Any) -> npt.NDArray[np.float64]:
    return np.asarray(np.asarray(x, np.float32).astype(ml_dtypes.bfloat16), dtype=np.float64)


def names(weights: Any, scoring: ScoringRule = RULE, **changes: Any) -> list[str]:
    scores = softmax(LOGITS) if scoring.function == "softmax" else sigmoid(LOGITS)
    inputs: dict[str, Any] = {"logits": LOGITS, "scores": scores, "bias": BIAS}
    return match_hypotheses(
        np.asarray(weights, np.float32), IDS, scoring=scoring, **(inputs | changes)
    )


S = sigmoid(LOGITS)[IDS]
SOFTMAX_RULE = ScoringRule("softmax", epsilon=0.0)
PLAIN_SOFTMAX = ScoringRule("softmax", renormalize=False)
PLANTED: list[tuple[str, npt.NDArray[Any], ScoringRule]] = [
    ("biased_score_weights", share(S + BIAS[IDS]), RULE),
    ("scale_applied_twice", share(S, 6.25), RULE),
    ("scale_not_applied", share(S, 1.0), RULE),
    ("not_renormalised", S * 2.5, RULE),
    ("renormalised", share(S), ScoringRule(renormalize=False, scale=2.5)),
    ("bf16_weights", bf16(share(S)), RULE),
    ("bf16_scores", share(bf16(S)), RULE),
    ("bf16_logits", share(sigmoid(bf16(LOGITS))[IDS]), RULE),
    ("softmax_weights", share(softmax(LOGITS)[IDS]), RULE),
    ("softmax_over_selected", softmax(LOGITS[IDS]), PLAIN_SOFTMAX),
    ("sigmoid_instead_of_softmax", share(S, 1.0), SOFTMAX_RULE),
    ("uniform", np.full(3, 2.5 / 3), RULE),
]


@pytest.mark.parametrize(("name", "weights", "scoring"), PLANTED, ids=[p[0] for p in PLANTED])
def test_each_planted_bug_is_named(
    name: str, weights: npt.NDArray[Any], scoring: ScoringRule
) -> None:
    found = names(weights, scoring)
    assert name in found
    # A few ULP off, as in decimals pasted from a log.
    drifted = stepped(weights, 3, -3, 2)
    if name != "bf16_weights":
        assert name in names(drifted, scoring)
    assert names(stepped(weights, 500, -500, 400), scoring) == []
    # The table's order, whatever matches.
    assert found == [known for known in HYPOTHESES if known in found]


def test_every_hypothesis_has_a_planted_bug() -> None:
    assert {name for name, _, _ in PLANTED} | {"bias_subtracted"} == set(HYPOTHESES)


def test_a_bias_that_swallows_the_score() -> None:
    logits = np.array([-17.0, -16.2, -18.5, -16.9])
    found = match_hypotheses(
        np.zeros(2, np.float32),
        np.array([0, 1]),
        logits=logits,
        scores=sigmoid(logits),
        bias=np.full(4, 12.0, np.float32),
        scoring=ScoringRule(),
    )
    assert found == ["bias_subtracted"]


def test_the_rules_own_weights_match_nothing() -> None:
    assert names(share(S)) == []
    # At scale 1 twice, once and never are one thing; without a bias so are the biased scores.
    unit = ScoringRule(epsilon=0.0)
    assert names(share(S, 1.0), unit) == []
    assert "scale_applied_twice" not in names(share(S, 1.0) * 1.5, unit)
    assert names(share(S + BIAS[IDS]), bias=None) == []
    # A softmax over the selected experts is the renormalised softmax over all.
    assert names(softmax(LOGITS[IDS]), SOFTMAX_RULE) == []


def test_bf16_weights_forgive_drift_before_narrowing() -> None:
    # A rule value just below the middle of two BF16 values; the path's was just above.
    low = np.float32(0.5)
    middle = np.float32(0.5 + 2.0**-9)
    scores = np.array([float(stepped([middle], -2)[0]), 0.3])
    rule = ScoringRule(renormalize=False)
    for value, expected in ((low, True), (0.5 + 2.0**-8, True), (0.5 + 2.0**-7, False)):
        weights = np.array([value, bf16(0.3)], np.float32)
        found = match_hypotheses(
            weights, np.array([0, 1]), logits=scores, scores=scores, bias=None, scoring=rule
        )
        assert ("bf16_weights" in found) == expected


def test_shared_slots_and_undefined_rows() -> None:
    ids, weights = np.array([0, 6, 3]), np.array([0.0, 1.0, 0.0], np.float32)
    weights[[0, 2]] = share(S[:2] + BIAS[IDS[:2]])
    inputs: dict[str, Any] = {"logits": LOGITS, "scores": sigmoid(LOGITS), "bias": BIAS}
    assert match_hypotheses(weights, ids, scoring=RULE, **inputs) == ["biased_score_weights"]
    weights[0] = np.nan
    assert match_hypotheses(weights, ids, scoring=RULE, **inputs) == []
    inputs["scores"] = np.full(6, np.nan)
    assert match_hypotheses(np.zeros(3, np.float32), ids, scoring=RULE, **inputs) == []


FP64: Any = np.zeros((1, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: classify_weights(np.zeros((1, 2), "f4"), np.zeros((1, 3), "f4")),
            "w_b.shape=(1, 3)",
        ),
        (
            lambda: classify_weights(np.zeros((1, 2), "f4"), FP64),
            "w_b.dtype=float64, but should be float32 [classify_weights]",
        ),
        (
            lambda: classify_weights(np.zeros((1, 2), "f4"), np.zeros((1, 2), "f4"), -1),
            "budget_ulp=-1, but should be at least 0",
        ),
        (lambda: names(np.zeros(2)), "weights.shape=(2,), but should be (3,)"),
    ],
)
def test_bad_input_is_named(call: Any, message: str) -> None:
    with pytest.raises(InputError) as told:
        call()
    assert message in str(told.value)
