"""Exact-integer probes: whether every term arrives once, in its place, and from this call.

All sums here are whole numbers that every format adds exactly in any order, so a wrong one is no
rounding: a term was lost, added twice, replaced, or is left over from the call before.

Source: the verifiable inputs of NCCL's tests, https://github.com/NVIDIA/nccl-tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...banks.errors import InputError
from .probe import (
    SumFunction,
    TermFormat,
    check_callable,
    check_count,
    one_number,
    term_format,
)

PlacedSums = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
"""Takes terms [term, place] of a dtype, returns their sums [copy, place]."""

_SEED: Final = 0
_WHERE: Final = "transport check"
# BF16 counts exactly to 2^8, and every format here further.
_LARGEST: Final = 127
_MIXED_CALLS: Final = 4


@dataclass(frozen=True, slots=True)
class Transport:
    """Sums of whole numbers that came back, by what is wrong with them.

    Attributes:
        sums: how many were looked at, over all copies and places.
        wrong: how many were not the exact sum.
        kinds: of the wrong ones: ``missing`` (the sum without a term), ``twice``, ``negated``,
            ``stale`` (the sum of the call before), ``other``.
        terms: of single terms: how often each came back wrong, by its number.
        first: the first wrong sum in words; empty where none is.
    """

    sums: int
    wrong: int
    kinds: dict[str, int]
    terms: dict[int, int]
    first: str

    def text(self) -> str:
        """Return the answer in one line."""
        if not self.wrong:
            return f"all {self.sums:,} sums of whole numbers are exact: no term is lost or moved"
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.kinds.items()))
        share = f"{self.wrong:,} of {self.sums:,} sums of whole numbers are wrong"
        return f"{share}: {kinds}; {self.first}"

    def figures(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "sums": self.sums,
            "wrong": self.wrong,
            "kinds": dict(self.kinds),
            "terms": {str(term): count for term, count in sorted(self.terms.items())},
            "first": self.first,
        }


def check_transport(function: SumFunction, terms: int, dtype: str = "fp32") -> Transport:
    """Return whether ``function`` adds every one of ``terms`` terms exactly once.

    Raises:
        InputError: a dtype that is not probed, no count of 1 or more terms, no function, or one
            that returns something else than a real number.
    """
    check_callable(function, _WHERE)

    def placed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.array([[one_number(function(values[:, 0].copy()), _WHERE)]], np.float64)

    return check_placed_transport(placed, terms, 1, dtype)


def check_placed_transport(
    function: PlacedSums, terms: int, places: int, dtype: str = "bf16"
) -> Transport:
    """Return whether every copy of every place is the sum of that place's terms.

    Each term is sent alone, another whole number at each place, so that a value that went to
    another place is wrong there; then all terms together, signed, of at most 127 in all.

    Args:
        function: takes terms [term, place], returns sums [copy, place].
        terms: terms of each sum.
        places: sums of one call.
        dtype: of the terms.

    Raises:
        InputError: a dtype that is not probed, no count of 1 or more terms or places, no function,
            or one whose result has another shape.
    """
    check_callable(function, _WHERE)
    check_count("terms", terms, 1, None, _WHERE)
    check_count("places", places, 1, None, _WHERE)
    format = term_format(dtype)
    random = np.random.default_rng(_SEED)
    found = _Found(format)
    for alone in [*range(terms), *[None] * _MIXED_CALLS]:
        whole = np.zeros((terms, places), np.int64)
        if alone is None:
            most = max(1, _LARGEST // terms)
            whole[:] = random.integers(1, most + 1, whole.shape) * random.choice(
                (-1, 1), whole.shape
            )
            if most == 1 and terms > _LARGEST:
                # Signs in turn: no part of them, in any order, is beyond what counts exactly.
                whole[:] = 0
                whole[random.permutation(terms)[:_LARGEST]] = random.choice((-1, 1), (1, places))
        else:
            whole[alone] = random.integers(1, _LARGEST + 1, places)
        sent = (whole * format.unit).astype(format.dtype)
        found.add(_placed_sums(function(sent), places), whole, alone)
    return found.result()


def _placed_sums(returned: Any, places: int) -> npt.NDArray[np.float64]:
    """The returned sums [copy, place] in FP64.

    Raises:
        InputError: they have another shape.
    """
    shape = getattr(returned, "shape", None)
    if shape is None or len(shape) != 2 or shape[0] < 1 or shape[1] != places:
        got = type(returned).__name__ if shape is None else tuple(shape)
        raise InputError("function's result", got, f"an array [copy, {places}]", _WHERE)
    return np.asarray(returned, np.float64)


class _Found:
    """Collects wrong sums call by call."""

    def __init__(self, format: TermFormat) -> None:
        self._unit = format.unit
        self._sums = self._wrong = 0
        self._kinds: Counter[str] = Counter()
        self._terms: Counter[int] = Counter()
        self._first = ""
        self._before: npt.NDArray[np.int64] | None = None

    def add(
        self, got: npt.NDArray[np.float64], whole: npt.NDArray[np.int64], alone: int | None
    ) -> None:
        expected = whole.sum(axis=0)
        units = got / self._unit
        wrong = units != expected
        self._sums += units.size
        count = int(np.count_nonzero(wrong))
        self._wrong += count
        if count:
            self._sort(units, whole, wrong, alone)
        self._before = expected

    def _sort(
        self,
        units: npt.NDArray[np.float64],
        whole: npt.NDArray[np.int64],
        wrong: npt.NDArray[np.bool_],
        alone: int | None,
    ) -> None:
        left, expected = wrong.copy(), whole.sum(axis=0)
        if alone is not None:
            self._terms[alone] += int(np.count_nonzero(wrong))
        kinds: list[tuple[str, npt.NDArray[np.bool_]]] = []
        # Of several terms together, those are suspected that came back wrong alone.
        for term in list(self._terms) if alone is None else [alone]:
            kinds.append(("missing", units == expected - whole[term]))
            kinds.append(("twice", units == expected + whole[term]))
            kinds.append(("negated", units == expected - 2 * whole[term]))
        if self._before is not None:
            kinds.append(("stale", units == self._before))
        for kind, where in kinds:
            count = int(np.count_nonzero(left & where))
            left &= ~where
            if count:
                self._kinds[kind] += count
        if left.any():
            self._kinds["other"] += int(np.count_nonzero(left))
        if not self._first:
            copy, place = (int(k) for k in np.argwhere(wrong)[0])
            what = "all terms" if alone is None else f"term {alone} alone"
            self._first = (
                f"{what}: copy {copy}, place {place} has {units[copy, place]:g}, but should have "
                f"{expected[place]}"
            )

    def result(self) -> Transport:
        return Transport(self._sums, self._wrong, dict(self._kinds), dict(self._terms), self._first)
