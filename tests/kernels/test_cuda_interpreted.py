"""The Triton kernels under TRITON_INTERPRET=1, on small rows, against plain torch.

Triton reads that variable when a kernel is defined, so ``test_under_the_interpreter`` runs this
file again in a process of its own; there the other tests run and this one is left out.
"""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from neartie.kernels.cuda import lang
from neartie.kernels.cuda.certify_triton import device_scan
from neartie.kernels.cuda.forms import DEVICE_FORMS
from neartie.kernels.cuda.gate_triton import DeviceGate, GateResult
from neartie.kernels.cuda.plain import PlainRows, plain_gate
from neartie.kernels.cuda.rows import UNDECIDED
from neartie.kernels.cuda.rows_triton import DeviceRows
from neartie.kernels.cuda.scores_triton import device_score
from neartie.kernels.cuda.selects import DEVICE_SELECTS, DeviceSelect
from neartie.kernels.exhaustive.block import count_scores
from neartie.kernels.exhaustive.float_line import PLUS_ZERO, Stretch, bits_at, place_of
from neartie.kernels.exhaustive.record import BINS, EMPTY_FORM, EMPTY_PAIR, RingCounts

# Numpy stands for the device and warns of the infinities and NaN that the rows hold.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
interpreted = pytest.mark.skipif(not lang.INTERPRETED, reason="needs TRITON_INTERPRET=1")

KINDS = ("normal", "bf16", "saturated", "few_values", "all_equal", "one_lane", "not_finite")
PRECISE = DeviceSelect("tanh.cuda", nan_key="highest", normalise="none")
APPROX = DeviceSelect("tanh.approx", weight_sum="butterfly", normalise="divide_eps", epsilon=1e-20)
PAIRS = (
    (DEVICE_SELECTS["standalone"], DEVICE_SELECTS["fused"], 3e-7),
    (DEVICE_SELECTS["topk_sigmoid"], DEVICE_SELECTS["grouped_topk"], 3e-7),
    (APPROX, PRECISE, 1e-3),
)


@pytest.mark.skipif(lang.INTERPRETED, reason="already interpreted")
@pytest.mark.skipif(not lang.INSTALLED, reason="triton is not installed")
def test_under_the_interpreter() -> None:
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        command,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def rows_of(kind: str, rows: int, experts: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    x: Any = rng.standard_normal((rows, experts)).astype(np.float32)
    if kind == "bf16":
        x = (x.view(np.uint32) & 0xFFFF0000).view(np.float32)
    elif kind == "saturated":
        x *= 30
    elif kind == "few_values":
        x = np.round(x * 2) / 2
    elif kind == "all_equal":
        x[:] = x[:, :1]
    elif kind == "one_lane":
        x[:, :4] += 4
        x[:, 128:132] += 4
    elif kind == "not_finite":
        chance = rng.random(x.shape)
        x[chance < 0.01] = np.nan
        x[(chance > 0.01) & (chance < 0.02)] = np.inf
        x[(chance > 0.02) & (chance < 0.03)] = -np.inf
        x[0], x[1], x[2, 5:] = np.nan, -np.inf, np.nan
    return x


def assert_same(found: GateResult, expected: GateResult, weights: bool) -> None:
    assert found.rows == expected.rows
    assert np.array_equal(found.differing, expected.differing)
    assert np.array_equal(found.ids, expected.ids)
    if weights:
        assert found.histogram is not None
        assert expected.histogram is not None
        assert np.array_equal(found.histogram, expected.histogram)
        assert found.worst == expected.worst


@interpreted
@pytest.mark.parametrize(
    ("kind", "experts", "top_k"),
    [*((kind, 100, 5) for kind in KINDS), ("normal", 896, 16), ("not_finite", 896, 16)],
)
def test_the_gate_is_the_plain_gate(kind: Any, experts: Any, top_k: Any) -> None:
    for number, (first, second, bound) in enumerate(PAIRS):
        rng = np.random.default_rng(number)
        spread = 0.0 if kind in ("bf16", "all_equal") else 0.02
        bias = (spread * rng.standard_normal(experts)).astype(np.float32)
        x = torch.from_numpy(rows_of(kind, 4, experts, number))
        pair = (first, second)
        expected = plain_gate(x, torch.from_numpy(bias), pair, top_k, 2.5)
        for packed, weights in ((False, False), (True, False), (True, True)):
            gate = DeviceGate(
                experts, top_k, bias, pair, bound,
                capacity=4, packed=packed, weights=weights, programs=3, scale=2.5,
            )  # fmt: skip
            gate.launch(x)
            assert_same(gate.result(), expected, weights)


@interpreted
@pytest.mark.parametrize(
    ("kind", "experts", "top_k"),
    [*((kind, 100, 5) for kind in KINDS), ("normal", 896, 16), ("not_finite", 896, 16)],
)
def test_the_rows_are_those_of_plain_torch(kind: Any, experts: Any, top_k: Any) -> None:
    wanted = np.array([1, 4])
    for number, (first, second, bound) in enumerate(PAIRS):
        rng = np.random.default_rng(number)
        spread = 0.0 if kind in ("bf16", "all_equal") else 0.02
        bias = (spread * rng.standard_normal(experts)).astype(np.float32)
        x = rows_of(kind, 6, experts, number)
        pair = (first, second)
        for budget, proven in ((2, bound), (300, bound), (8, None)):
            kernels = DeviceRows(
                experts, top_k, bias, pair, proven, margin=2.0**-12, budget=budget, scale=2.5
            )
            simple = PlainRows(torch.from_numpy(bias), pair, top_k, 2.5)
            for one in (kernels, simple):
                one.host[: len(x)] = x
            found, plain = kernels.run(len(x), wanted), simple.run(len(x), wanted)
            undecided = np.flatnonzero(found.weight_ulp == UNDECIDED)
            assert np.array_equal(found.seen, np.union1d(undecided, wanted))
            # What is seen is the same.
            assert np.array_equal(found.ids, plain.ids[found.seen])
            assert np.array_equal(found.weights, plain.weights[found.seen], equal_nan=True)
            assert np.array_equal(found.edges, plain.edges[found.seen], equal_nan=True)
            # What is not seen is what was promised of it.
            decided = found.weight_ulp != UNDECIDED
            assert proven is not None or not decided.any()
            assert decided.any() or not (kind == "normal" and number == 0 and budget == 300)
            assert np.array_equal(plain.ids[decided, 0], plain.ids[decided, 1])
            weights = plain.weights[decided].view(np.int32).astype(np.int64)
            apart = np.abs(weights[:, 0] - weights[:, 1])
            assert np.array_equal(found.weight_ulp[decided], apart.max(1, initial=0))
            assert np.all(apart <= min(budget, 253))
            assert np.array_equal(found.histogram, np.bincount(apart.reshape(-1), minlength=256))
            edges = plain.edges[decided, 0].astype(np.float64)
            assert np.all(edges[:, 0] - edges[:, 1] > 2.0**-12)


@interpreted
@pytest.mark.parametrize("bias_kind", ["infinite", "nan"])
def test_a_bias_that_is_not_finite_sends_every_row_to_the_exact_kernel(bias_kind: Any) -> None:
    bias = np.zeros(100, np.float32)
    bias[:20] = {"infinite": np.inf, "nan": np.nan}[bias_kind]
    x = torch.from_numpy(rows_of("normal", 3, 100, 5))
    for first, second, bound in PAIRS:
        gate = DeviceGate(100, 8, bias, (first, second), bound, capacity=3)
        gate.launch(x)
        found = gate.result()
        assert found.undecided == 3
        expected = plain_gate(x, torch.from_numpy(bias), (first, second), 8)
        assert_same(found, expected, weights=False)


@interpreted
def test_a_bound_that_is_too_small_is_caught() -> None:
    """The planted fault: a bound of 0 for a form 1e-3 away calls rows decided that differ."""
    x = 2.0 + 0.01 * torch.from_numpy(rows_of("normal", 8, 100, 3))
    bias = np.zeros(100, np.float32)
    pair = (APPROX, PRECISE)
    expected = plain_gate(x, torch.from_numpy(bias), pair, 16)
    assert len(expected.differing) > 0
    gate = DeviceGate(100, 16, bias, pair, 0.0, capacity=8)
    gate.launch(x)
    assert len(gate.result().differing) < len(expected.differing)


@interpreted
@pytest.mark.parametrize(
    ("start", "places"),
    [
        (PLUS_ZERO, 700),
        (PLUS_ZERO - 600, 600),
        (place_of(17.3), 900),
        (place_of(-88.5), 900),
        (place_of(2.0), 3000),
        (place_of(-2.0), 3000),
    ],
)
def test_the_device_scan_counts_what_the_cpu_counts(start: Any, places: Any) -> None:
    part = Stretch("all", start, start + places)
    for forms in (("exp.cuda", "tanh.cuda"), ("tanh.approx", "exp.approx")):
        found = device_scan(*forms, parts=[part], span=1024)
        assert found.rings["all"] == _counted(forms, part)
        assert found.done == ((part.start, part.stop),)


def _counted(forms: tuple[str, str], part: Stretch) -> RingCounts:
    before = int(part.start >= PLUS_ZERO)
    after = int(before == 0 and part.stop != PLUS_ZERO)
    places = range(part.start - before, part.stop + after)
    x = np.array([bits_at(place) for place in places], np.uint32).view(np.float32)
    scores = np.stack([device_score(form, torch.from_numpy(x)).numpy() for form in forms])
    pair, bins = np.array(EMPTY_PAIR, np.int64), np.zeros(BINS, np.int64)
    both = np.array([EMPTY_FORM, EMPTY_FORM], np.int64)
    count_scores(scores, part.start, before, part.stop - part.start, pair, both, bins)
    return RingCounts.of(pair, both, bins)


@interpreted
@pytest.mark.parametrize("form", DEVICE_FORMS)
def test_every_form_is_a_sigmoid(form: Any) -> None:
    x = np.linspace(-20.0, 20.0, 999, dtype=np.float32)
    found = device_score(form, torch.from_numpy(x)).numpy().astype(np.float64)
    away = np.abs(found - 1.0 / (1.0 + np.exp(-x.astype(np.float64)))).max()
    # tanh.approx keeps 11 bits; the others are within two FP32 steps below 1.
    assert away < (2.0**-11 if form == "tanh.approx" else 2.0**-23)
