"""Every named select against a slow row oracle in numpy float32 scalars."""

from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neartie.banks.errors import EnvelopeError, InputError
from neartie.banks.geometry import PRESETS, Geometry, ScoringRule
from neartie.kernels.contract import BFLOAT16, F32
from neartie.kernels.reference import reference_select
from neartie.kernels.scores import score
from neartie.kernels.select import (
    NONFINITE,
    OPTIONS,
    SELECTS,
    SelectArithmetic,
    check_select,
    make_select,
    select,
)

Row = tuple[list[int], list[float]]

logit = st.one_of(
    st.floats(-6, 6, width=32),
    st.sampled_from([0.0, -0.0, 1.0, 30.0, -90.0, -110.0, inf, -inf, nan, 3e38]),
)
biases = st.one_of(
    st.floats(-1, 1, width=32), st.sampled_from([0.0, -0.0, 64.0, 3e38, inf, -inf, nan])
)
PLAIN = Geometry("tiny", 8, 0, 40, 5)
SIXTEEN = Geometry("sixteen", 8, 0, 40, 16)
GROUPED = Geometry("tiny-groups", 8, 0, 40, 5, 8, 3)


def _oracle_sum(values: list[Any], order: str) -> Any:
    kind = type(values[0])
    if order in ("left_to_right", "ascending"):
        total = kind(0)
        for value in values:
            total = total + value
        return total
    width = 32
    if order == "fold":
        width = 1
        while width < len(values):
            width *= 2
    lanes = [*values, *[kind(0)] * (width - len(values))]
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [lanes[i] + lanes[i + half] for i in range(half)]
    return lanes[0]


def _oracle_weights(rule: SelectArithmetic, selected: list[Any], total: Any, s: ScoringRule) -> Any:
    kind = type(total)
    epsilon = kind(s.epsilon if rule.epsilon is None else rule.epsilon)
    scale = kind(s.scale)
    guarded = total if total > 0 else kind(1)
    if not s.renormalize:
        return [value * scale for value in selected]
    if rule.normalise == "reciprocal_eps":
        return [value * (scale / (total + epsilon)) for value in selected]
    if rule.normalise == "reciprocal_guard":
        return [value * (scale / guarded) for value in selected]
    if rule.normalise == "divide_fp64":
        wide = np.float64(total) + np.float64(s.epsilon if rule.epsilon is None else rule.epsilon)
        return [kind(np.float64(value) * np.float64(s.scale) / wide) for value in selected]
    if rule.normalise == "divide_eps":
        return [value / (total + epsilon) * scale for value in selected]
    return [value / guarded * scale for value in selected]


def _oracle_key(rule: SelectArithmetic, x: Any, b: Any, s: Any) -> tuple[Any, Any]:
    """(score, key) of one expert after the non-finite rule; NaN keys stay NaN."""
    nonfinite = NONFINITE[rule.nonfinite]
    if nonfinite.zero_score and not np.isfinite(s):
        s = type(s)(0)
    key = s + b
    if (nonfinite.mask_logit and not np.isfinite(x)) or (
        nonfinite.mask_bias and not np.isfinite(b)
    ):
        return type(s)(0), type(s)(-inf)
    return s, key


def _place(rule: SelectArithmetic, keys: list[Any], i: int) -> tuple[float, float, int]:
    """Sort position: best first."""
    key, nan_key = float(keys[i]), NONFINITE[rule.nonfinite].nan_key
    if key != key:
        key = -inf
        return ({"highest": -1.0, "minus_inf": 0.0, "lowest": 1.0}[nan_key], -key, i)
    return (0.0, -key, i)


def _oracle_row(
    rule: SelectArithmetic, x: F32, bias: Any, scores: Any, geometry: Geometry, s: ScoringRule
) -> Row:
    pairs = [_oracle_key(rule, *one) for one in zip(x, bias, scores, strict=True)]
    values, keys = [p[0] for p in pairs], [p[1] for p in pairs]
    allowed = list(range(geometry.experts))
    if geometry.groups > 1:
        size = geometry.experts // geometry.groups
        sums = []
        for start in range(0, geometry.experts, size):
            best = sorted(range(start, start + size), key=lambda i: _place(rule, keys, i))
            sums.append(keys[best[0]] + keys[best[1]])
        top = sorted(range(geometry.groups), key=lambda g: _place(rule, sums, g))
        allowed = [i for i in allowed if i // size in top[: geometry.top_groups]]
    ids = sorted(allowed, key=lambda i: _place(rule, keys, i))[: geometry.top_k]
    best_place = _place(rule, keys, ids[0])
    if NONFINITE[rule.nonfinite].uniform_if_none and best_place[1] == inf:
        return list(range(geometry.top_k)), [
            float(np.float32(1) / np.float32(geometry.top_k))
        ] * len(ids)
    if rule.slot_order == "ascending":
        ids = sorted(ids)
    order = sorted(ids) if rule.weight_sum == "ascending" else ids
    total = _oracle_sum([values[i] for i in order], rule.weight_sum)
    weights = _oracle_weights(rule, [values[i] for i in ids], total, s)
    return ids, [float(np.float32(w)) for w in weights]


def _oracle(
    rule: SelectArithmetic, logits: F32, bias: Any, geometry: Geometry, s: ScoringRule
) -> list[Row]:
    with np.errstate(all="ignore"):
        if rule.logits == "bf16":
            logits = logits.astype(BFLOAT16).astype(np.float32)
        if rule.bias == "bf16":
            bias = bias.astype(BFLOAT16).astype(np.float32)
        elif rule.bias == "none":
            bias = np.zeros_like(bias)
        form = s.function if rule.score == "rule" else rule.score
        scores: Any = score(form, logits)
        if rule.precise:
            wide = logits.astype(np.float64)
            scores = 1 / (1 + np.exp(-wide))
            bias = bias.astype(np.float64)
        return [
            _oracle_row(rule, x, bias, row, geometry, s)
            for x, row in zip(logits, scores, strict=True)
        ]


def _assert_same(rule: SelectArithmetic, logits: F32, bias: F32, *shape: Any) -> None:
    ids, weights = select(rule, logits, bias, *shape)
    for row, (expected_ids, expected) in enumerate(_oracle(rule, logits, bias, *shape)):
        assert ids[row].tolist() == expected_ids
        assert np.array_equal(weights[row], np.array(expected, np.float32), equal_nan=True)


NAMES = [name for name in SELECTS if name not in ("softmax", "fp64")]


@pytest.mark.parametrize("name", NAMES)
@given(
    st.lists(logit, min_size=40, max_size=40),
    st.lists(biases, min_size=40, max_size=40),
    st.sampled_from([PLAIN, SIXTEEN, GROUPED]),
    st.sampled_from([ScoringRule(), ScoringRule(renormalize=False), ScoringRule(scale=2.827)]),
)
def test_equals_row_oracle(
    name: str, row: list[float], bias: list[float], geometry: Geometry, scoring: ScoringRule
) -> None:
    rule = SELECTS[name]
    if geometry.groups > 1 and not rule.groups:
        geometry = SIXTEEN
    logits = np.array([row, row[::-1]], np.float32)
    _assert_same(rule, logits, np.array(bias, np.float32), geometry, scoring)


@pytest.mark.parametrize("name", [*NAMES, "fp64"])
@pytest.mark.parametrize("experts", [896, 257])
def test_equals_row_oracle_on_many_rows(name: str, experts: int) -> None:
    """Random, all equal, and ascending rows: the longest way through the insertion."""
    random = np.random.default_rng(2)
    logits = random.normal(0, 1.5, (40, experts)).astype(np.float32)
    logits[1] = 0.25
    logits[2].sort()
    logits[3] = logits[3].astype(BFLOAT16)
    bias = (0.1 * random.normal(size=experts)).astype(np.float32)
    bias[experts // 2 :] = 0.0
    geometry = Geometry("many", 8, 0, experts, 16)
    _assert_same(SELECTS[name], logits, bias, geometry, ScoringRule(scale=1.5))


@pytest.mark.parametrize(
    ("option", "value"), [(key, value) for key in OPTIONS for value in OPTIONS[key]]
)
def test_options_change_one_part(option: str, value: str) -> None:
    random = np.random.default_rng(4)
    logits = random.normal(size=(6, 40)).astype(np.float32)
    bias = random.normal(size=40).astype(np.float32)
    rule = make_select("standalone", {option: value}, "test")
    if value == "softmax":
        logits[:, 0] = 3.0
    _assert_same(rule, logits, bias, SIXTEEN, ScoringRule())


def test_softmax_select() -> None:
    random = np.random.default_rng(6)
    logits = random.normal(size=(6, 40)).astype(np.float32)
    _assert_same(
        SELECTS["softmax"], logits, np.zeros(40, np.float32), PLAIN, ScoringRule("softmax")
    )


@given(st.permutations(range(40)), st.sampled_from(["fused", "standalone", "hf", "fp64"]))
def test_permuting_experts_permutes_ids(order: list[int], name: str) -> None:
    logits = np.linspace(-2, 2, 40, dtype=np.float32)[None]
    bias = np.linspace(0.5, 0.3, 40, dtype=np.float32)
    ids, weights = select(SELECTS[name], logits, bias, SIXTEEN, ScoringRule())
    moved, same = select(SELECTS[name], logits[:, order], bias[order], SIXTEEN, ScoringRule())
    assert np.array_equal(np.array(order)[moved[0]], ids[0])
    assert np.array_equal(same, weights)


def test_fp64_orders_as_the_reference_in_fp64() -> None:
    geometry, scoring = PRESETS["deepseek-v3"]
    random = np.random.default_rng(9)
    logits = random.normal(size=(300, 256)).astype(np.float32).astype(BFLOAT16).astype(np.float32)
    bias = random.choice([0.0, 2.0**-20], 256).astype(np.float32)
    expected = reference_select(logits, bias, geometry, scoring)
    ids, weights = select(SELECTS["fp64"], logits, bias, geometry, scoring)
    assert np.array_equal(ids, expected.ids64)
    rows = (expected.ids == expected.ids64).all(axis=1)
    assert np.abs(weights[rows] / expected.weights[rows] - 1).max() < 2.0**-23


def test_rows_are_independent() -> None:
    random = np.random.default_rng(8)
    logits = random.normal(size=(70, 40)).astype(np.float32)
    bias = random.normal(size=40).astype(np.float32)
    for rule in SELECTS.values():
        scoring = ScoringRule("softmax" if rule.name == "softmax" else "sigmoid")
        ids, weights = select(rule, logits, bias, SIXTEEN, scoring)
        one = [select(rule, row[None], bias, SIXTEEN, scoring) for row in logits]
        assert np.array_equal(ids, np.concatenate([pair[0] for pair in one]))
        assert np.array_equal(weights, np.concatenate([pair[1] for pair in one]))


def test_envelope() -> None:
    for name, rule in SELECTS.items():
        if not rule.groups:
            scoring = ScoringRule(rule.functions[0])  # type: ignore[arg-type]
            with pytest.raises(
                EnvelopeError, match=rf"groups=8, but should be 1 \[select {name}\]"
            ):
                check_select(rule, GROUPED, scoring)
    with pytest.raises(EnvelopeError, match=r"scoring\.function=softmax, but should be sigmoid"):
        check_select(SELECTS["fused"], PLAIN, ScoringRule("softmax"))


def test_bad_input() -> None:
    with pytest.raises(InputError, match="select=best, but should be one of fused, standalone"):
        make_select("best", {}, "here")
    with pytest.raises(InputError, match=r"sum=random, but should be one of left_to_right"):
        make_select("fused", {"sum": "random"}, "here")
    with pytest.raises(InputError, match="select option=color"):
        make_select("fused", {"color": "red"}, "here")
    with pytest.raises(InputError, match="score=exp, but should be left out"):
        make_select("fp64", {"score": "exp"}, "here")
    zeros = np.zeros((1, 40), np.float32)
    with pytest.raises(InputError, match=r"bias=float32\[39\], but should be float32\[40\]"):
        select(SELECTS["fused"], zeros, zeros[0, :39], PLAIN, ScoringRule())
