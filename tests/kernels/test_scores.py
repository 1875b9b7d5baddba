"""Score forms against the same steps written with numpy's float32 scalars and mpmath."""

from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from neartie.banks.errors import InputError
from neartie.kernels.contract import F32
from neartie.kernels.scores import FORMS, score

SPECIAL = [0.0, -0.0, inf, -inf, nan, 88.7, -88.8, 104.0, -104.0, 1e-40, -1e-45, 17.4, 3.4e38]
logits = st.one_of(st.floats(-110, 110, width=32), st.sampled_from(SPECIAL))


def _exact(function: Any, x: np.float32) -> np.float32:
    """One FP32 rounding of an exactly evaluated function."""
    if not np.isfinite(x):
        return np.float32(function(mpf(float(x))))
    with mp.workprec(300):
        return np.float32(float(function(mpf(float(x)))))


def _slow(form: str, x: np.float32) -> np.float32:
    one, half = np.float32(1), np.float32(0.5)
    with np.errstate(all="ignore"):
        if np.isnan(x):
            return x
        if form == "exp":
            e = np.float32(0 if x == inf else inf if x == -inf or x < -89 else _exact(mp.exp, -x))
            return one / (one + e)
        if form == "tanh":
            t = np.sign(x) if np.isinf(x) else _exact(mp.tanh, half * x)
            return half * t + half
        if form == "sigmoid":
            ends = {inf: 1.0, -inf: 0.0}
            if float(x) in ends:
                return np.float32(ends[float(x)])
            return _exact(lambda v: 1 / (1 + mp.exp(-v)), x)
        if form == "sqrtsoftplus":
            if np.isinf(x):
                return np.float32(inf if x > 0 else 0)
            return np.float32(np.sqrt(_exact(lambda v: mp.log1p(mp.exp(v)), x)))
        return np.float32(x)


@given(st.lists(logits, min_size=1, max_size=40))
@pytest.mark.parametrize("form", [name for name, form in FORMS.items() if form.elementwise])
def test_equals_scalar_steps(form: str, row: list[float]) -> None:
    x = np.array([row], np.float32)
    expected = [_slow(form, value) for value in x[0]]
    assert np.array_equal(score(form, x)[0], np.array(expected, np.float32), equal_nan=True)


def _slow_softmax(x: F32) -> F32:
    with np.errstate(all="ignore"):
        top = np.float32(nan) if np.isnan(x).any() else x.max()
        parts = [np.float32(np.exp(np.float64(value - top))) for value in x]
        total = np.float32(0)
        for part in parts:
            total = total + part
        return np.array([part / total for part in parts], np.float32)


@given(st.lists(logits, min_size=1, max_size=40))
def test_softmax_equals_scalar_steps(row: list[float]) -> None:
    x = np.array([row], np.float32)
    assert np.array_equal(score("softmax", x)[0], _slow_softmax(x[0]), equal_nan=True)


def test_forms_differ_by_rounding_only() -> None:
    x = np.random.default_rng(0).normal(0, 3, (64, 896)).astype(np.float32)
    values = {form: score(form, x) for form in ("exp", "tanh", "sigmoid")}
    apart = np.abs(values["exp"] - values["tanh"]).max()
    assert 0 < apart <= 2.0**-23
    assert 0 < np.abs(values["exp"] - values["sigmoid"]).max() <= 2.0**-23


def test_place_in_the_row_does_not_matter() -> None:
    """Vector bodies and their remainders give the same bits."""
    x = np.random.default_rng(1).normal(0, 5, 131).astype(np.float32)
    for form in ("exp", "tanh", "sigmoid", "sqrtsoftplus"):
        alone = np.concatenate([score(form, value.reshape(1, 1))[0] for value in x])
        assert np.array_equal(score(form, x[None])[0], alone)


def test_bad_input() -> None:
    with pytest.raises(InputError, match="score=relu, but should be one of exp, tanh"):
        score("relu", np.zeros((1, 1), np.float32))
    with pytest.raises(InputError, match=r"logits=float64\[1, 1\]"):
        score("exp", np.zeros((1, 1)))
