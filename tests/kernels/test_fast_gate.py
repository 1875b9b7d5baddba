"""The fast path gives the bits of two plain selections, on every kind of row."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from neartie.banks.errors import InputError
from neartie.banks.geometry import PRESETS, Geometry, ScoringRule
from neartie.kernels.fast.compare import DIFFERENT, IDENTICAL, REORDERED
from neartie.kernels.fast.gate import PairedRows, PairedSelect
from neartie.kernels.fast.score import FAST_FORMS, SCORE_ERROR, largest_error
from neartie.kernels.scores import score
from neartie.kernels.select import SELECTS, make_select, select

K3, RULE = PRESETS["k3"]
SIGMOID = ("fused", "standalone", "grouped_topk", "topk_sigmoid", "hf", "ascending")
PAIRS = (
    ("standalone", "fused"),
    ("topk_sigmoid", "grouped_topk"),
    ("hf", "ascending"),
    ("ascending", "ascending"),
    ("radix_bf16", "standalone"),
    ("fp64", "hf"),
)
EDGES = [
    0.0, -0.0, 1e-45, -1e-45, 1.1754942e-38, 3.4e38, -3.4e38, 17.0, 20.0, 90.0, -90.0, -104.0,
    np.inf, -np.inf, np.nan, 2.0, np.nextafter(np.float32(2.0), np.float32(3.0)),
]  # fmt: skip


def geometry(experts: int, slots: int, groups: int = 1, top: int = 1) -> Geometry:
    return Geometry("test", 8, 0, experts, slots, groups, top)


def check(
    names: tuple[str, str],
    logits: Any,
    bias: Any,
    shape: Geometry,
    scoring: ScoringRule = RULE,
    window: float | None = None,
    threads: int | None = 1,
) -> PairedRows:
    """Run both ways, compare every bit, and return the fast result."""
    rules = SELECTS[names[0]], SELECTS[names[1]]
    with np.errstate(all="ignore"):
        pair = PairedSelect(*rules, bias, shape, scoring, window)
        got = pair.run(logits, threads)
        differing = pair.differing(logits, threads)
        sides = [select(rule, logits, bias, shape, scoring) for rule in rules]
    (ids_a, w_a), (ids_b, w_b) = sides
    assert (got.ids_a == ids_a).all()
    assert (got.ids_b == ids_b).all()
    assert (got.weights_a.view(np.uint32) == w_a.view(np.uint32)).all()
    assert (got.weights_b.view(np.uint32) == w_b.view(np.uint32)).all()
    for row in range(len(logits)):
        same = set(ids_a[row]) == set(ids_b[row])
        code = IDENTICAL if (ids_a[row] == ids_b[row]).all() else REORDERED
        assert got.code[row] == (code if same else DIFFERENT)
        assert (got.weight_ulp[row] == -1) >= (not same)
    assert (differing == (got.code == DIFFERENT)).all()
    counted = (got.code != DIFFERENT) & (got.weight_ulp >= 0)
    assert sum(got.weight_histogram().values()) >= counted.sum() * shape.top_k
    return got


@settings(max_examples=60)
@given(
    names=st.sampled_from(PAIRS),
    size=st.sampled_from([(896, 16), (384, 8), (100, 8), (37, 5), (130, 40), (20, 20), (512, 1)]),
    data=st.data(),
    scale=st.sampled_from([1e-3, 1.0, 6.0, 40.0]),
    bias_scale=st.sampled_from([0.0, 0.02, 3.0, 1e6]),
    steps=st.sampled_from([0, 4, 64]),
    seed=st.integers(0, 2**31),
)
def test_fast_is_plain(
    names: Any, size: Any, data: Any, scale: Any, bias_scale: Any, steps: Any, seed: Any
) -> None:
    experts, slots = size
    rng = np.random.default_rng(seed)
    logits = (rng.standard_normal((6, experts)) * scale).astype(np.float32)
    if steps:
        # Few distinct values: ties at the boundary and elsewhere.
        logits = (np.round(logits * steps / scale) / steps).astype(np.float32)
    places = data.draw(st.lists(st.integers(0, 6 * experts - 1), max_size=8))
    values = data.draw(arrays(np.float32, len(places), elements=st.sampled_from(EDGES)))
    logits.reshape(-1)[places] = values
    bias = (rng.standard_normal(experts) * bias_scale).astype(np.float32)
    check(names, logits, bias, geometry(experts, slots))


@settings(max_examples=30)
@given(bits=arrays(np.uint32, (4, 160)), bias_bits=arrays(np.uint32, 160), same=st.booleans())
def test_any_bit_pattern(bits: Any, bias_bits: Any, same: bool) -> None:
    bias = np.zeros(160, np.float32) if same else bias_bits.view(np.float32)
    check(("standalone", "fused"), bits.view(np.float32), bias, geometry(160, 8))


@pytest.mark.parametrize("name", sorted(SIGMOID))
@pytest.mark.parametrize("other", sorted(SIGMOID))
def test_every_pair_of_selects_on_random_rows(name: str, other: str) -> None:
    rng = np.random.default_rng(3)
    logits = rng.standard_normal((130, 896), np.float32)
    bias = (rng.standard_normal(896) * 0.02).astype(np.float32)
    got = check((name, other), logits, bias, K3, threads=2)
    assert got.plain_rows == 0


@pytest.mark.parametrize("scale", [0.05, 1.0, 3.0, 9.0])
@pytest.mark.parametrize("spread", [0.0, 0.02, 0.5])
def test_screens_follow_the_rows(scale: float, spread: float) -> None:
    """Enough rows for the tangent to move, and for rows that it misses; levels that jump."""
    rng = np.random.default_rng(11)
    logits = (rng.standard_normal((400, 896)) * scale).astype(np.float32)
    logits[200:] += rng.choice([-6.0, 0.0, 4.0], (200, 1)).astype(np.float32)
    bias = (rng.standard_normal(896) * spread).astype(np.float32)
    check(("standalone", "fused"), logits, bias, K3)


def test_keys_above_the_line_of_saturated_logits_are_not_left_out() -> None:
    """A tangent ranks by logits: 24 saturated experts hide 17 that a bias puts above them.

    The last two of these are a tie for one form and none for the other, so that a screen that
    forgets them tells the wrong thing of the sets too.
    """
    rng = np.random.default_rng(13)
    logits = rng.standard_normal((400, 896)).astype(np.float32)
    bias = (rng.standard_normal(896) * 0.02).astype(np.float32)
    lifted = np.arange(100, 117)
    bias[lifted] = 0.25
    logits[:, lifted] = -5.0
    line = (2.0 + np.arange(4096) * 2.0**-22).astype(np.float32)[None]
    a, b = score("exp", line)[0] + bias[100], score("tanh", line)[0] + bias[100]
    tied = np.flatnonzero((a[1:] == a[:-1]) & (b[1:] > b[:-1]))
    assert len(tied) > 42
    rows = np.arange(64, 400, 8)
    for row, place in zip(rows, tied[: len(rows)], strict=True):
        others = rng.choice(np.setdiff1d(np.arange(896), lifted), 24, replace=False)
        logits[row, others] = 20.0
        logits[row, lifted[:15]] = 2.5
        logits[row, lifted[15:]] = line[0, place : place + 2]
    got = check(("standalone", "fused"), logits, bias, K3)
    assert (np.flatnonzero(got.code == DIFFERENT) == rows).all()
    assert got.plain_rows == 0


def test_groups_softmax_and_other_functions_take_the_plain_path() -> None:
    rng = np.random.default_rng(4)
    logits = rng.standard_normal((9, 256), np.float32)
    bias = (rng.standard_normal(256) * 0.02).astype(np.float32)
    shape, scoring = PRESETS["deepseek-v3"]
    assert check(("hf", "grouped_topk"), logits, bias, shape, scoring).plain_rows == 9
    soft = replace(RULE, function="softmax")
    assert check(("softmax", "hf"), logits, bias, geometry(256, 8), soft).plain_rows == 9
    unnormalised = replace(RULE, renormalize=False, scale=2.5)
    assert check(("hf", "fused"), logits, bias, geometry(256, 8), unnormalised).plain_rows == 0


def test_planted_gaps_are_decided_by_a_proven_window() -> None:
    """Rows whose boundary gap is 0..6 steps, with a window that the keys really keep."""
    rng = np.random.default_rng(5)
    logits = rng.standard_normal((700, 896), np.float32)
    bias = np.zeros(896, np.float32)
    for row in range(700):
        order = np.argsort(-logits[row])
        value = logits[row, order[15]]
        for _ in range(row % 7 * 3):
            value = np.nextafter(value, np.float32(-10))
        logits[row, order[16]] = value
    distance = np.abs(score("exp", logits).astype(float) - score("tanh", logits)).max()
    window = 2 * float(distance)
    proven = check(("standalone", "fused"), logits, bias, K3, window=window)
    assert 0 < proven.selected_twice < 700
    assert (proven.code == DIFFERENT).any()
    assert (proven.margin[proven.code == DIFFERENT] <= window).all()
    plain = check(("standalone", "fused"), logits, bias, K3)
    assert plain.selected_twice == 700
    assert (plain.code == proven.code).all()


def test_margins_and_shifts_are_those_of_the_keys() -> None:
    rng = np.random.default_rng(6)
    logits = rng.standard_normal((40, 896), np.float32)
    logits[3] = np.round(logits[3])
    logits[5, 7] = np.nan
    bias = (rng.standard_normal(896) * 0.02).astype(np.float32)
    got = check(("standalone", "fused"), logits, bias, K3)
    with np.errstate(invalid="ignore"):
        a, b = score("exp", logits) + bias, score("tanh", logits) + bias
    for row in range(40):
        if row == 5:
            assert got.margin_steps[row] == -1
            assert np.isnan(got.margin[row])
            continue
        order = np.lexsort((np.arange(896), -a[row]))
        last, after = order[15], order[16]
        assert got.margin[row] == float(a[row, last]) - float(a[row, after])
        assert got.margin_steps[row] == int(a[row, last].view("i4")) - int(a[row, after].view("i4"))
        moved = float(b[row, after]) - float(a[row, after])
        assert got.shift[row] == moved - (float(b[row, last]) - float(a[row, last]))


def test_the_cheap_score_keeps_its_bound() -> None:
    """A part of all patterns; benchmarks/fast_score.py measures the whole line."""
    for form in FAST_FORMS:
        error, _ = largest_error(form, first=1, step=4099, count=1 << 20)
        assert SCORE_ERROR / 4 < error < SCORE_ERROR


def test_threads_change_no_bit() -> None:
    logits = np.random.default_rng(8).standard_normal((300, 896), np.float32)
    bias = np.zeros(896, np.float32)
    one = check(("fused", "topk_sigmoid"), logits, bias, K3, threads=1)
    two = check(("fused", "topk_sigmoid"), logits, bias, K3, threads=2)
    assert (one.weight_bins == two.weight_bins).all()
    assert (one.shift == two.shift).all()


def test_options_of_a_select_are_kept() -> None:
    rng = np.random.default_rng(9)
    logits = rng.standard_normal((50, 896), np.float32)
    bias = (rng.standard_normal(896) * 0.3).astype(np.float32)
    rule = make_select("fused", {"bias": "bf16", "logits": "bf16"}, "test")
    got = PairedSelect(rule, rule, bias, K3, RULE).run(logits)
    ids, weights = select(rule, logits, bias, K3, RULE)
    assert got.plain_rows == 0
    assert (got.ids_a == ids).all()
    assert (got.weights_b.view(np.uint32) == weights.view(np.uint32)).all()


def test_bad_input_is_refused() -> None:
    bias = np.zeros(896, np.float32)
    rule = SELECTS["fused"]
    with pytest.raises(InputError, match=r"window=-1"):
        PairedSelect(rule, rule, bias, K3, RULE, window=-1.0)
    with pytest.raises(InputError, match=r"bias=float64\[896\], but should be float32\[896\]"):
        PairedSelect(rule, rule, bias.astype(float), K3, RULE)
    with pytest.raises(InputError, match=r"logits=float64"):
        PairedSelect(rule, rule, bias, K3, RULE).run(np.zeros((2, 896)))
