"""Inputs that make a sum show its order: one huge term, its negative, and units.

A unit that is added to the huge term before the negative is swallowed; one that is added after it
counts. So the returned sum is the number of terms outside the smallest part that holds both.

Source: Xie, Gao, Wang, Xue, "Revealing Floating-Point Accumulation Orders in Software/Hardware
Implementations" (FPRev), USENIX ATC 2025, https://arxiv.org/abs/2411.00442.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ...banks.errors import InputError

SumFunction = Callable[[npt.NDArray[Any]], float]
"""Takes terms [n] of a dtype, returns their sum. The terms are its own: it may work in place."""


class NoFixedTree(ValueError):
    """The returned sums are those of no summation tree; the message says which sum."""


@dataclass(frozen=True, slots=True)
class TermFormat:
    """How terms of a dtype are probed.

    Attributes:
        name: ``bf16``, ``fp16``, ``fp32`` or ``fp64``.
        dtype: of the terms.
        huge: the swallowing term; 1.5 times a power of two, so that its neighbours on both sides
            are as far, and a unit is swallowed by either sign.
        unit: what counts.
        most_units: units in one probe. Two limits: a sum kept in the dtype itself counts exactly up
            to 2^bits; and all of them must stay below half a step of ``huge`` in an FP32
            accumulator. More terms than that take several probes, units on some of them in each.
        widest: powers of two between the unit and the largest probe of a node's bits.
        smallest: powers of two from which to which the smallest confirmation terms are.
        reach: powers of two between the smallest and the largest of them, against a tree.
        exact_reach: the same against an exact sum.
    """

    name: str
    dtype: np.dtype[Any]
    huge: float
    unit: float
    most_units: int
    widest: int
    smallest: tuple[int, int]
    reach: int
    exact_reach: int


# Confirmation terms. 90 binades are more than two FP32 accumulators keep, and less than what huge
# spans; 170 are more than two of FP64. A result of them stays in the range of FP32 and BF16.
_WIDE: Final = ((-60, 0), 90, 170)
_NARROW: Final = ((-14, -14), 28, 28)

FORMATS: Final = {
    made.name: made
    for made in (
        # 2^8 units: BF16 keeps 8 bits, and may also be the format of the result of wider terms. A
        # step of huge is 2^113 in BF16, 2^97 in FP32.
        TermFormat("bf16", np.dtype(ml_dtypes.bfloat16), 1.5 * 2.0**120, 1.0, 256, 64, *_WIDE),
        # FP16 ends at 2^16, so the unit is its smallest normal number. Half a step of 1.5 * 2^15 in
        # FP32 is 2^-9, 32 units; in FP64 it is far below one unit, and nothing is swallowed.
        TermFormat("fp16", np.dtype(np.float16), 1.5 * 2.0**15, 2.0**-14, 31, 29, *_NARROW),
        TermFormat("fp32", np.dtype(np.float32), 1.5 * 2.0**120, 1.0, 256, 64, *_WIDE),
        TermFormat("fp64", np.dtype(np.float64), 1.5 * 2.0**1000, 1.0, 256, 64, *_WIDE),
    )
}
"""The dtypes that can be probed. An 8-bit float's largest number swallows nothing in FP32."""


def term_format(dtype: str) -> TermFormat:
    """Return how terms of a dtype are probed.

    Raises:
        InputError: a dtype whose range is too small for a term that swallows the others.
    """
    if dtype not in FORMATS:
        expected = f"one of {', '.join(FORMATS)}: a term must be able to swallow all others"
        raise InputError("dtype", dtype, expected, "order recovery")
    return FORMATS[dtype]


def one_number(returned: Any, where: str = "order recovery") -> float:
    """Return what a sum function returned, as a float.

    Raises:
        InputError: it is an array, a text, complex, or beyond FP64.
    """
    expected = "one real number within FP64's range"
    shown = type(returned).__name__
    if getattr(returned, "ndim", 0) != 0:
        shown = f"{shown} of shape {tuple(returned.shape)}"
    elif not isinstance(returned, str | bytes) and not np.iscomplexobj(returned):
        try:
            return float(returned)
        except OverflowError:
            shown = f"a number beyond FP64, {shown}"
        except (TypeError, ValueError):
            pass  # Not a number: refused below by its type.
    raise InputError("function's result", shown, expected, where)


def check_count(what: str, got: Any, low: int, high: int | None, where: str) -> None:
    """Refuse a count that is no whole number from ``low`` to ``high``.

    Raises:
        InputError: it is another type, or outside.
    """
    limits = f"{low} or more" if high is None else f"{low}..{high}"
    if not isinstance(got, Integral) or isinstance(got, bool):
        shown = repr(got) if isinstance(got, str) else got
        raise InputError(what, shown, f"a whole number, {limits}", where)
    if int(got) < low or (high is not None and int(got) > high):
        raise InputError(what, got, limits, where)


def check_callable(function: Any, where: str) -> None:
    """Refuse what cannot be called.

    Raises:
        InputError: it is no function.
    """
    if not callable(function):
        expected = "a function of terms [n] that returns their sum"
        raise InputError("function", type(function).__name__, expected, where)


@dataclass
class Prober:
    """Asks a sum function how many terms are added together before two given ones are.

    ``probes`` counts its calls.
    """

    function: SumFunction
    count: int
    format: TermFormat
    probes: int = 0

    def ask(self, values: dict[int, float]) -> float:
        """Return the sum of terms that are 0 but for ``values``."""
        terms = np.zeros(self.count, self.format.dtype)
        for place, value in values.items():
            terms[place] = value
        return self.call(terms)

    def call(self, terms: npt.NDArray[Any]) -> float:
        """Return the function's sum of a copy of terms [n]: it may add in place.

        Raises:
            InputError: the function returns something else than one real number.
        """
        self.probes += 1
        return one_number(self.function(terms.copy()))

    def joint_size(self, i: int, j: int) -> int:
        """Return the terms of the smallest part of the tree that holds terms i and j.

        Raises:
            NoFixedTree: the sum is no whole number of units, or one that no tree gives.
        """
        others = [k for k in range(self.count) if k not in (i, j)]
        outside = 0
        most = self.format.most_units
        for first in range(0, max(len(others), 1), most):
            part = others[first : first + most]
            values = dict.fromkeys(part, self.format.unit)
            got = self.ask({**values, i: self.format.huge, j: -self.format.huge})
            outside += self._units(got, len(part), i, j)
        return self.count - outside

    def check_scale(self) -> None:
        """Refuse a function that does not return a single term as it is.

        Raises:
            NoFixedTree: the first or the last unit alone comes back as another number.
        """
        unit = self.format.unit
        scales = {k: self.ask({k: unit}) / unit for k in (0, self.count - 1)}
        for k, scale in scales.items():
            if scale == 1:
                continue
            told = f"term {k} alone at one unit gives {scale:g} units"
            if len(set(scales.values())) == 1 and math.isfinite(scale) and scale:
                told += f": the sum is scaled by {scale:g}; take that off first"
            raise NoFixedTree(told)

    def _units(self, got: float, most: int, i: int, j: int) -> int:
        units = got / self.format.unit
        if not math.isfinite(units):
            raise NoFixedTree(
                f"terms {i} and {j} huge and opposite: the sum is {got:g}. It overflows inside: "
                f"{self.format.name} terms are probed up to {self.format.huge:g}"
            )
        if not 0 <= units <= most or units != int(units):
            raise NoFixedTree(
                f"terms {i} and {j} huge and opposite, {most} units beside them: the sum is "
                f"{units:g} units, but should be a whole number from 0 to {most}"
            )
        return int(units)

    def keeps(self, a: int, b: int, c: int | None, power: int) -> bool:
        """Whether a sum of term a at 2^power units and term b at one unit is kept exactly.

        Term c takes 2^power off again, later; None reads the sum itself.
        """
        large, small = self.format.unit * 2.0**power, self.format.unit
        if c is None:
            # Read in FP64: from 2^53 on large + small itself is not kept, and the difference is 0.
            return self.ask({a: large, b: small}) - large == small
        return self.ask({a: large, b: small, c: -large}) == small
