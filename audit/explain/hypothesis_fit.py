"""How many failing rows each hypothesis gives: one mistake, two at once, or a map of ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..metrics.findings import Bools
from .fitter import Failing, Fit, Fitter
from .mistakes import Mistake, both

SCREEN_ROWS: Final = 32
"""Rows of each kind, with another set and with the reference's, on which all is tried."""
PAIR_ROWS: Final = 16
"""Rows on which two mistakes at once are tried first."""


def fit_all(failing: Failing, mistakes: Sequence[Mistake]) -> list[Fit]:
    """Return the fit of every score form and every mistake, in their order.

    A mistake that explains none of the first ``SCREEN_ROWS`` rows of each kind is not tried on the
    others, and counts as if it explained none of them.
    """
    rows, count = _screen(failing.other_set), len(failing.rule)
    first = Fitter(failing.rows(rows))
    if len(rows) == count:
        return [*first.forms(), *map(first.mistake, mistakes)]
    whole = Fitter(failing)
    found = list(whole.forms())
    for mistake in mistakes:
        fit = first.mistake(mistake)
        useful = fit.bits.any() or explained(fit, first.failing).any()
        found.append(whole.mistake(mistake) if useful else _spread(fit, rows, count))
    return found


def explained(fit: Fit, failing: Failing) -> Bools:
    """Rows that a mistake explains at all: their other set, or their weights on their own ids."""
    sets = fit.ids & failing.other_set if fit.stage != "weights" else np.zeros_like(fit.ids)
    weights = fit.close if fit.stage != "set" else np.zeros_like(fit.ids)
    return np.asarray((sets | weights) & ~fit.reference)


def fit_pairs(failing: Failing, mistakes: Sequence[Mistake], singles: Sequence[Fit]) -> list[Fit]:
    """Return the pairs of mistakes that give more rows, bit for bit, than any single one.

    Only pairs of which each can have a part in it are tried: what selects other experts must
    give the set of a row whose set is not the reference's.
    """
    rows = _screen(failing.other_set, PAIR_ROWS // 2)
    fitter = Fitter(failing.rows(rows))
    other = fitter.failing.other_set
    by_name = {(fit.name, fit.stage): fit for fit in singles}
    kept = [
        one
        for one in mistakes
        if one.stage == "weights" or (by_name[one.name, one.stage].ids[rows] & other).any()
    ]
    most = max((int(fit.bits[rows].sum()) for fit in singles), default=0)
    whole: Fitter | None = None
    found = []
    for one, two in combinations(kept, 2):
        if one.parts & two.parts:
            continue
        pair = both(one, two)
        # Forms of a score differ by some ULP; what exact scores miss by far, none of them hits.
        if not fitter.close(pair).any():
            continue
        fit = fitter.mistake(pair)
        if int(fit.bits.sum()) > most:
            whole = whole or Fitter(failing)
            found.append(whole.mistake(pair))
    return found


def fit_permutation(failing: Failing, mapping: Mapping[int, int]) -> Fit:
    """Return the fit of the right select whose ids were all moved by one map afterwards."""
    back = {moved: expert for expert, moved in mapping.items()}
    own = np.vectorize(back.__getitem__, otypes=[np.int64])(failing.seen.ids)
    fitter = Fitter(replace(failing, seen=replace(failing.seen, ids=own)))
    best = max(fitter.forms(), key=lambda fit: fit.rank)
    none = np.zeros_like(best.reference)
    return replace(best, name="id_permutation", stage="both", close=best.ids, reference=none)


def _screen(other_set: Bools, most: int = SCREEN_ROWS) -> npt.NDArray[np.int64]:
    """The first rows of either kind."""
    kinds = [np.flatnonzero(other_set)[:most], np.flatnonzero(~other_set)[:most]]
    return np.sort(np.concatenate(kinds))


def _spread(fit: Fit, rows: npt.NDArray[np.int64], count: int) -> Fit:
    """A fit of some rows as one of all; of the others nothing was found."""
    parts: dict[str, Any] = {}
    for name in ("bits", "ids", "close", "reference"):
        whole = np.zeros(count, np.bool_)
        whole[rows] = getattr(fit, name)
        parts[name] = whole
    return replace(fit, **parts)
