"""exp, tanh and log1p against mpmath, in units of the FP64 result's last place."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpmath import mp, mpf

from neartie.kernels.contract import F64
from neartie.kernels.elementary import exp64_array, log1p64_array, tanh64_array

Function = Callable[[F64], F64]

LIMIT_ULP = 2.5


def _points(lowest: float, highest: float) -> F64:
    random = np.random.default_rng(7)
    tiny = np.exp(random.uniform(-600, 6, 1000))
    both = np.concatenate([tiny, -tiny, random.uniform(-0.4, 0.4, 1000)])
    wide = np.concatenate([both, random.uniform(lowest, highest, 1500)])
    return wide[(wide >= lowest) & (wide <= highest)]


def _worst_ulp(got: F64, x: F64, exact: Callable[[Any], Any]) -> float:
    worst = 0.0
    with mp.workprec(200):
        for value, argument in zip(got.tolist(), x.tolist(), strict=True):
            unit = mpf(float(np.spacing(max(abs(value), 5e-324))))
            worst = max(worst, float(abs(mpf(value) - exact(mpf(argument))) / unit))
    return worst


@pytest.mark.parametrize(
    ("function", "exact", "lowest", "highest"),
    [
        (exp64_array, mp.exp, -745.0, 709.7),
        (tanh64_array, mp.tanh, -50.0, 50.0),
        (log1p64_array, mp.log1p, 0.0, 1.0),
    ],
    ids=["exp", "tanh", "log1p"],
)
def test_within_limit_of_mpmath(
    function: Function, exact: Callable[[Any], Any], lowest: float, highest: float
) -> None:
    x = _points(lowest, highest)
    assert _worst_ulp(function(x), x, exact) <= LIMIT_ULP


def test_limit_can_fail() -> None:
    x = _points(0.0, 1.0)
    assert _worst_ulp(exp64_array(x) * (1 + 2.0**-50), x, mp.exp) > LIMIT_ULP


def test_ends() -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e308, -1e308, 5e-324])
    assert np.array_equal(exp64_array(x), [1, 1, np.inf, 0, np.nan, np.inf, 0, 1], equal_nan=True)
    tanh = tanh64_array(x)
    assert np.array_equal(tanh, [0, 0, 1, -1, np.nan, 1, -1, 5e-324], equal_nan=True)
    assert np.signbit(tanh[1])


def test_bits_are_pinned() -> None:
    """The same bits on every machine: a change here is a change of numerics."""
    x = np.array([-1.0, 0.3, 17.25, -88.5])
    assert [value.hex() for value in exp64_array(x).tolist()] == [
        "0x1.78b56362cef38p-2",
        "0x1.599058c8c1a96p+0",
        "0x1.d94295464477bp+24",
        "0x1.3fe71068e4512p-128",
    ]
    assert [value.hex() for value in tanh64_array(x / 8).tolist()] == [
        "-0x1.fd5992bc4b834p-4",
        "0x1.330e5b5247054p-5",
        "0x1.f275b7740d530p-1",
        "-0x1.fffffffbc5559p-1",
    ]
