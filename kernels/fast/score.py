"""A cheap FP32 sigmoid for all experts of a row, and how far it may be from each exact form.

It only decides which experts are looked at exactly, so its error costs candidates, never a result;
that is why the compiler may fuse its multiplications and additions here and nowhere else.
exp(-x) = 2^n 2^f with a degree-4 polynomial for 2^f on |f| <= 1/2.
"""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np

from ..scores import FORMS, fill_scores

FAST_FORMS: Final = ("exp", "tanh", "sigmoid")
"""Score forms that the cheap sigmoid stands for."""

SCORE_ERROR: Final = float.fromhex("0x1p-19")
"""At least |cheap - exact| for every finite float32 logit and every form of ``FAST_FORMS``.

Derived: the polynomial's relative error e = 2.6e-6 moves the sigmoid s by at most e s (1 - s), so
6.4e-7, and the FP32 steps, fused or not, by a few 2^-24. ``largest_error`` measures it on all 2^32
patterns (benchmarks/fast_score.py); a test measures a part of them.
"""

_STEPS: Final = np.float32(-1.4426950408889634)
_LIMIT: Final = np.float32(126.0)
# Adding 1.5 * 2^23 rounds to a whole number, which is then in the low bits of the pattern.
_MAGIC: Final = np.float32(1.5 * 2.0**23)
_ONE: Final = np.float32(1.0)
# Least largest relative error of a degree-4 polynomial for 2^f on |f| <= 1/2: 2.6e-6.
_P0: Final = np.float32(0.9999992847442627)
_P1: Final = np.float32(0.693121612071991)
_P2: Final = np.float32(0.24024738371372223)
_P3: Final = np.float32(0.055918898433446884)
_P4: Final = np.float32(0.009570315480232239)


@numba.njit(cache=True, error_model="numpy", fastmath={"contract"})
def cheap_sigmoid(x: Any) -> Any:
    """1/(1+exp(-x)) of a finite float32, within ``SCORE_ERROR``."""
    t = x * _STEPS
    t = t if t < _LIMIT else _LIMIT
    t = t if t > -_LIMIT else -_LIMIT
    shifted = np.float32(t + _MAGIC)
    f = t - (shifted - _MAGIC)
    p = _P0 + f * (_P1 + f * (_P2 + f * (_P3 + f * _P4)))
    bits = np.float32(p).view(np.int32) + np.int32(shifted.view(np.int32) << 23)
    return _ONE / (_ONE + np.int32(bits).view(np.float32))


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _largest_error(code: int, first: int, step: int, count: int, result: Any) -> None:
    # result[0]: the error, result[1]: its pattern. In pieces, so that the form runs in vectors.
    logits, exact = np.empty(4096, np.float32), np.empty(4096, np.float32)
    for start in range(0, count, 4096):
        for i in range(4096):
            pattern = (first + (start + i) * step) & 0xFFFFFFFF
            x = np.uint32(pattern).view(np.float32)
            finite = x - x == np.float32(0.0)
            logits[i] = x if finite else np.float32(0.0)
        fill_scores(code, logits, exact)
        for i in range(4096):
            error = abs(np.float64(cheap_sigmoid(logits[i])) - np.float64(exact[i]))
            if error > result[0]:
                result[0] = error
                result[1] = np.float64(np.float32(logits[i]).view(np.uint32))


def largest_error(
    form: str, first: int = 0, step: int = 1, count: int = 1 << 32
) -> tuple[float, int]:
    """The largest |cheap - exact|, and its logit's bits, over patterns first, first + step, ...

    Args:
        form: one of ``FAST_FORMS``.
        first: the first float32 pattern.
        step: distance of patterns, modulo 2^32.
        count: how many, a multiple of 4096; by default all patterns.
    """
    result = np.zeros(2)
    _largest_error(FORMS[form].code, first, step, count, result)
    return float(result[0]), int(result[1])
