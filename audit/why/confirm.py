"""Random terms that a recovered order must sum to the same bits, and how many of them it does.

Terms of like size hide an order, and a coarse rounding of the whole hides what happens inside. So
half of the rows hold large terms that cancel: what was rounded away beside them is then the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .probe import Prober, TermFormat

TRIALS: Final = 64
_SEED: Final = 0
_SMALL_SPREAD: Final = 8

Expected = Callable[[list[float]], float]


def random_terms(
    format: TermFormat, count: int, trials: int, *, exact: bool = False
) -> npt.NDArray[Any]:
    """Return terms [trial, term] of normal size times powers of two, of four kinds in turn.

    Two kinds spread over 24 binades (10 in FP16), one with a large pair that cancels. The other two
    are small terms and pairs that cancel at random places, over up to ``format.reach`` binades, or
    ``exact_reach`` for an ``exact`` sum: an error inside shows whatever the whole keeps, and a
    second accumulator for the errors of the first is too short too.
    """
    random = np.random.default_rng(_SEED)
    spread = 12 if format.name != "fp16" else 5
    terms = np.empty((trials, count), format.dtype)
    for trial in range(trials):
        if trial % 2:
            terms[trial] = _cancelling(random, format, count, exact)
            continue
        row = random.standard_normal(count) * np.exp2(random.integers(-spread, spread + 1, count))
        if trial % 4 == 2 and count > 2:
            first, second = random.choice(count, 2, replace=False)
            row[first] = random.standard_normal() * 2.0 ** (spread + 2)
            row[second] = -row[first]
        terms[trial] = row.astype(format.dtype)
    return terms


def _cancelling(
    random: np.random.Generator, format: TermFormat, count: int, exact: bool
) -> npt.NDArray[Any]:
    """Small terms [term] beside pairs of opposite terms, each pair of its own size."""
    low, high = format.smallest
    base = low if exact else int(random.integers(low, high + 1))
    reach = format.exact_reach if exact else format.reach
    most = (count - 1) // 2
    pairs = int(random.integers(1, most + 1)) if most else 0
    powers = random.integers(0, _SMALL_SPREAD + 1, count)
    places = random.permutation(count)
    if random.random() < 0.5:
        # Two levels: the small terms are swallowed by one, and that by the other.
        pairs = min(pairs, 2)
        upper = random.integers(reach * 4 // 5, reach + 1)
        lower = random.integers(reach * 2 // 5, reach // 2 + 1)
        powers[places[:pairs]] = [upper, lower][:pairs]
    else:
        top = max(_SMALL_SPREAD, reach * int(random.integers(1, 7)) // 6)
        powers[places[:pairs]] = random.integers(_SMALL_SPREAD, top + 1, pairs)
    one, other = places[:pairs], places[pairs : 2 * pairs]
    row = random.choice((-1.0, 1.0), count) * random.uniform(1, 2, count) * np.exp2(base + powers)
    row[other] = 0
    # No order of adding them may overflow: FP16 ends at 2^16.
    while np.abs(row).sum() * 2 > format.huge:
        row[one] /= 2
    if format.name == "fp16":
        # Whole units: no sum of them is below FP16's normal numbers by more than its own rounding.
        row = np.rint(row / format.unit) * format.unit
    row[other] = -row[one]
    return row.astype(format.dtype)


def reproduced(
    prober: Prober, expected: list[Expected], trials: int, *, exact: bool = False
) -> tuple[int, str]:
    """Return how many random sums are as expected, and the first that is not, in words.

    Args:
        prober: of the function.
        expected: ways to round the same tree; one of them must give all sums. The best one counts.
        trials: random sums.
        exact: whether they are to be those against an exact sum.
    """
    right, wrong = [0] * len(expected), [""] * len(expected)
    drawn = random_terms(prober.format, prober.count, trials, exact=exact)
    for trial, terms in enumerate(drawn):
        got, values = prober.call(terms), terms.astype(np.float64).tolist()
        for way, total in enumerate(expected):
            wanted = total(values)
            if got == wanted:
                right[way] += 1
            elif not wrong[way]:
                sums = f"but random terms {trial} give {got!r}, and {wanted!r}"
                wrong[way] = f"{sums} in that order, to nearest"
    best = right.index(max(right))
    return right[best], wrong[best]
