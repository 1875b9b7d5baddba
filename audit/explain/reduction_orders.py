"""Orders in which a row of partial sums may be added, and which of them gives a path's sum."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]

DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "fp64": np.dtype(np.float64),
    "fp32": np.dtype(np.float32),
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
}
_SIGNIFICANT_BITS: Final = {"fp64": 53, "fp32": 24, "fp16": 11, "bf16": 8}
# 6! = 720 orders are tried one by one; beyond that only the named schedules.
_MOST_PERMUTED = 6
_LARGEST: Final = Fraction(sys.float_info.max)
# Half a unit of the eighth decimal digit: sums are pasted with seven or eight.
_PASTED = 5e-8

Terms = Sequence[float]


def rounded(value: float, dtype: str) -> float:
    """``value`` rounded to ``dtype``, through float32 where the dtype is 16 bits wide.

    A 16-bit adder is an FP32 adder with a rounding behind it.
    """
    with np.errstate(all="ignore"):
        if dtype == "fp64":
            return value
        return float(np.float32(value).astype(DTYPES[dtype]))


def error_bound(terms: Terms, dtype: str) -> float:
    """Largest error of any order of summation: gamma(n) * sum |term|.

    gamma(n) = n u / (1 - n u) with the dtype's unit roundoff u; n - 1 additions and one more
    rounding, of the term or of the sum, to the dtype.
    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 4.2.
    """
    roundings = len(terms) * 2.0 ** -_SIGNIFICANT_BITS[dtype]
    if roundings >= 1.0:
        return math.inf
    gamma = roundings / (1.0 - roundings)
    try:
        return gamma * math.fsum(abs(term) for term in terms)
    except OverflowError:
        return math.fsum(gamma * abs(term) for term in terms)


def _chain(terms: Terms, dtype: str) -> float:
    total = rounded(terms[0], dtype)
    for term in terms[1:]:
        total = rounded(total + rounded(term, dtype), dtype)
    return total


def _adjacent(terms: Terms, dtype: str) -> float:
    level = [rounded(term, dtype) for term in terms]
    while len(level) > 1:
        pairs = [rounded(x + y, dtype) for x, y in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


def _fold(terms: Terms, dtype: str) -> float:
    level = [rounded(term, dtype) for term in terms]
    while len(level) > 1:
        half = (len(level) + 1) // 2
        upper = level[half:]
        level = [
            rounded(x + upper[i], dtype) if i < len(upper) else x
            for i, x in enumerate(level[:half])
        ]
    return level[0]


def _islands(terms: Terms, dtype: str) -> float:
    half = len(terms) // 2
    if half == 0:
        return _chain(terms, dtype)
    return rounded(_chain(terms[:half], dtype) + _chain(terms[half:], dtype), dtype)


def exact_sum(terms: Terms) -> float:
    """The sum rounded once to FP64; what IEEE addition gives where a term is not finite."""
    if not all(math.isfinite(term) for term in terms):
        return float(sum(terms))
    try:
        return math.fsum(terms)
    except OverflowError:
        total = sum(map(Fraction, terms), Fraction())
        # An intermediate sum overflowed; the whole one may not.
        return float(total) if abs(total) <= _LARGEST else math.copysign(math.inf, total)


def _exact(terms: Terms, dtype: str) -> float:
    return rounded(exact_sum(terms), dtype)


def _exact_of_rounded(terms: Terms, dtype: str) -> float:
    return _exact([rounded(term, dtype) for term in terms], dtype)


def _wide(terms: Terms, dtype: str) -> float:
    return rounded(_chain(terms, "fp32"), dtype)


def _schedules(count: int) -> Iterator[tuple[str, list[int], Callable[[Terms, str], float]]]:
    """Yield name, order of the terms and way of adding, the plainest first."""
    order = list(range(count))
    yield "left_to_right", order, _chain
    yield "exact", order, _exact
    yield "one_shot_fp32", order, _wide
    yield "exact_of_rounded", order, _exact_of_rounded
    yield "reversed", order[::-1], _chain
    yield "tree", order, _adjacent
    yield "fold", order, _fold
    yield "two_level", order, _islands
    for first in range(1, count):
        yield f"own_rank_first_{first}", [first, *order[:first], *order[first + 1 :]], _chain
        yield f"ring_from_{first}", order[first:] + order[:first], _chain
        backwards = order[::-1]
        yield f"ring_back_from_{first}", backwards[first:] + backwards[:first], _chain
    if count <= _MOST_PERMUTED:
        for permuted in itertools.permutations(order):
            yield "order_" + "_".join(map(str, permuted)), list(permuted), _chain


def same_sum(got: float, wanted: float, dtype: str) -> bool:
    """Whether a pasted sum is the value ``wanted`` of ``dtype``."""
    if math.isnan(got) or math.isnan(wanted):
        return math.isnan(got) and math.isnan(wanted)
    if dtype == "fp64" or math.isinf(got) or math.isinf(wanted):
        return got == wanted
    if dtype == "fp32":
        return rounded(got, dtype) == wanted
    return got == wanted or abs(got - wanted) <= _PASTED * abs(wanted)


def matching_orders(
    terms: Terms, got: float, dtype: str, output: str | None = None, most: int = 3
) -> list[str]:
    """Names of the first orders whose sum in ``dtype`` is ``got``; at most ``most``.

    Args:
        terms: the partial sums in rank order.
        got: the sum to be explained.
        dtype: accumulation dtype.
        output: dtype that the sum is rounded to once more; None is the accumulation dtype.
        most: stop after so many names.

    Example:
        >>> matching_orders([2.0**24, 1.0, 1.0], 2.0**24, "fp32")[0]
        'left_to_right'
        >>> matching_orders([2.0**24, 1.0, 1.0], 2.0**24 + 2, "fp32")[0]
        'exact'
    """
    names: list[str] = []
    for name, order, add in _schedules(len(terms)):
        total = add([terms[i] for i in order], dtype)
        if same_sum(got, rounded(total, output or dtype), output or dtype):
            names.append(name)
            if len(names) == most:
                break
    return names


def wrong_sum_hypotheses(terms: Terms, got: float, dtype: str) -> list[str]:
    """Names of mistakes that give ``got``: a term left out or added twice, a narrower sum."""
    names = []
    tolerance = error_bound(terms, dtype)
    whole = exact_sum(terms)
    for other in ("bf16", "fp16"):
        if other != dtype and matching_orders(terms, got, other, most=1):
            names.append(f"{other}_accumulation")
    for position, term in enumerate(terms):
        if abs(got - term) <= tolerance and abs(term - whole) > tolerance:
            names.append(f"partial_{position}_as_total")
        elif abs(got - (whole - term)) <= tolerance < abs(term):
            names.append(f"partial_{position}_dropped")
        elif abs(got - (whole + term)) <= tolerance < abs(term):
            names.append(f"partial_{position}_added_twice")
    return names
