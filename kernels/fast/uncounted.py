"""Compiled loops that do not count references to arrays.

numba counts an array's users with atomic additions, at each slice and each call that takes one;
in a loop over short rows these took a third of the time. A function that allocates nothing does not
need the counts: its arrays belong to the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])
_NJIT: Any = numba.njit


def uncounted(function: _Function) -> _Function:
    """Compile a function that allocates no array and returns none."""
    compiled: _Function = _NJIT(cache=True, error_model="numpy", _nrt=False)(function)
    return compiled


def uncounted_nogil(function: _Function) -> _Function:
    """The same, leaving the interpreter lock while it runs."""
    compiled: _Function = _NJIT(cache=True, error_model="numpy", nogil=True, _nrt=False)(function)
    return compiled
