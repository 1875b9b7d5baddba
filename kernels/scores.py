"""Score forms: each rounds to FP32 exactly where the real kernel's FP32 arithmetic rounds.

The exp and tanh inside are evaluated in FP64 and rounded once, which is what an FP32 function
gives up to its own error (at most 1 to 2 FP32 ulp on GPUs); the steps around them round in FP32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from ..banks.errors import InputError
from .contract import F32
from .elementary import exp64, log1p64, tanh64
from .fast.uncounted import uncounted

_ONE: Final = np.float32(1.0)
_HALF: Final = np.float32(0.5)


@uncounted
def _exp_form(logits: F32, out: F32) -> None:
    # Separate loops over FP64 and over FP32 are vectorised several times better than one.
    for i in range(len(logits)):
        out[i] = exp64(-np.float64(logits[i]))
    for i in range(len(logits)):
        out[i] = _ONE / (_ONE + out[i])


@uncounted
def _tanh_form(logits: F32, out: F32) -> None:
    for i in range(len(logits)):
        out[i] = tanh64(np.float64(_HALF * logits[i]))
    for i in range(len(logits)):
        out[i] = _HALF * out[i] + _HALF


@uncounted
def _sigmoid(logits: Any, out: Any) -> None:
    for i in range(len(logits)):
        out[i] = 1.0 / (1.0 + exp64(-np.float64(logits[i])))


@uncounted
def _sqrtsoftplus(logits: F32, out: F32) -> None:
    for i in range(len(logits)):
        x = np.float64(logits[i])
        # max(x, 0) that keeps NaN
        positive: Any = x
        if x < 0.0:
            positive = 0.0
        out[i] = np.float32(math.sqrt(np.float32(positive + log1p64(exp64(-abs(x))))))


@uncounted
def _sqrtsoftplus64(logits: Any, out: Any) -> None:
    for i in range(len(logits)):
        x = np.float64(logits[i])
        positive: Any = x
        if x < 0.0:
            positive = 0.0
        out[i] = math.sqrt(positive + log1p64(exp64(-abs(x))))


@uncounted
def _softmax(logits: Any, out: Any) -> None:
    # In the type of ``out``: maximum, difference, exp, sum by ascending id and division each
    # round to it. A NaN makes the whole row NaN.
    top = logits[0]
    for i in range(len(logits)):
        if logits[i] > top or logits[i] != logits[i]:
            top = logits[i]
        if top != top:
            break
    total = out.dtype.type(0.0)
    for i in range(len(logits)):
        out[i] = exp64(np.float64(out.dtype.type(logits[i]) - out.dtype.type(top)))
        total += out[i]
    for i in range(len(logits)):
        out[i] = out[i] / total


@uncounted
def _identity(logits: Any, out: Any) -> None:
    for i in range(len(logits)):
        out[i] = logits[i]


class ScoreForm(NamedTuple):
    """A named way to turn logits into scores.

    Attributes:
        code: the number by which the select engine calls it.
        elementwise: whether a score depends on its own logit alone.
        steps: the arithmetic in words.
        fill: numba function (logits [expert] float32, out [expert] float32).
    """

    code: int
    elementwise: bool
    steps: str
    fill: Callable[[F32, F32], None]


FORMS: Final[dict[str, ScoreForm]] = {
    "exp": ScoreForm(0, True, "1/(1+exp(-x)), each step rounded to FP32", _exp_form),
    "tanh": ScoreForm(1, True, "0.5*tanh(0.5*x)+0.5, each step rounded to FP32", _tanh_form),
    "sigmoid": ScoreForm(2, True, "1/(1+exp(-x)) in FP64, rounded once to FP32", _sigmoid),
    "softmax": ScoreForm(
        3, False, "softmax over all experts, FP32 steps, sum by ascending id", _softmax
    ),
    "sqrtsoftplus": ScoreForm(
        4, True, "sqrt(softplus(x)), softplus and root rounded to FP32", _sqrtsoftplus
    ),
    "identity": ScoreForm(5, True, "the logit itself", _identity),
}


def declared_forms(words: str) -> tuple[str, ...]:
    """Return the sigmoid forms that a path's ``Declared.score`` tells, by their words."""
    return tuple(name for name in ("exp", "tanh", "sigmoid") if FORMS[name].steps in words)


FORM_VERSIONS: Final[dict[str, int]] = dict.fromkeys(FORMS, 1)
"""Raised when any bit of a form's scores changes; results are kept under name and version."""


@uncounted
def fill_scores(code: int, logits: F32, out: F32) -> None:
    """Write the FP32 scores of one row by the code of ``FORMS``."""
    if code == 0:
        _exp_form(logits, out)
    elif code == 1:
        _tanh_form(logits, out)
    elif code == 2:
        _sigmoid(logits, out)
    elif code == 3:
        _softmax(logits, out)
    elif code == 4:
        _sqrtsoftplus(logits, out)
    else:
        _identity(logits, out)


@numba.njit(cache=True, error_model="numpy")
def fill_scores64(code: int, logits: F32, out: Any) -> None:
    """Write the FP64 scores of one row: the function of the form without any FP32 rounding."""
    if code <= 2:
        _sigmoid(logits, out)
    elif code == 3:
        _softmax(logits, out)
    elif code == 4:
        _sqrtsoftplus64(logits, out)
    else:
        _identity(logits, out)


@numba.njit(cache=True, error_model="numpy")
def _fill_rows(code: int, logits: F32, out: F32) -> None:
    for row in range(len(logits)):
        fill_scores(code, logits[row], out[row])


def score(form: str, logits: npt.NDArray[Any]) -> F32:
    """The FP32 scores of logits [row, expert] by a form of ``FORMS``.

    Raises:
        InputError: an unknown form, or logits that are not a float32 matrix.

    Example:
        >>> score("tanh", np.zeros((1, 2), np.float32))
        array([[0.5, 0.5]], dtype=float32)
    """
    if form not in FORMS:
        raise InputError("score", form, f"one of {', '.join(FORMS)}", "score form")
    if logits.ndim != 2 or logits.dtype != np.float32:
        got = f"{logits.dtype}{list(logits.shape)}"
        raise InputError("logits", got, "float32[row, expert]", "score form")
    out = np.empty_like(logits, order="C")
    _fill_rows(FORMS[form].code, np.ascontiguousarray(logits), out)
    return out
