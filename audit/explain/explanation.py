"""Which hypotheses give the failing rows of a path, and how many each: the table of an explanation.

Whatever judges rows collects those that fail as ``Failing``; nothing here knows where they are
from. The counts are of rows, each tried once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

from ..metrics.findings import Bools, id_permutation
from .fitter import Failing, Fit
from .hypothesis_fit import explained, fit_all, fit_pairs, fit_permutation
from .mistakes import Mistake

OWN, REFERENCE = "own", "reference"
"""Whose logits a hypothesis starts from: those that the path saw, or the reference's."""
MOST_LISTED: Final = 12


@dataclass(frozen=True, slots=True)
class Tried:
    """One hypothesis in the table.

    Attributes:
        name: stable; two mistakes at once are joined by ``+``.
        stage: what it can change: ``set``, ``weights`` or ``both``.
        arithmetic: score form, normalisation and sum with which it gives ``bits``, in words.
        logits: whose it starts from, ``own`` or ``reference``.
        bits: rows whose ids and weights, aligned by id, it gives bit for bit.
        close: rows whose ids it gives, and whose weights within the budget.
        ids: rows whose ids it gives.
        reference: rows on which it gives what the reference gives, within the budget.
    """

    name: str
    stage: str
    arithmetic: str
    logits: str
    bits: int
    close: int
    ids: int
    reference: int


@dataclass(frozen=True, slots=True)
class Named:
    """A hypothesis that a finding names: ``rows`` of the tried ones, bit for bit or not."""

    name: str
    rows: int
    bits: bool


@dataclass(frozen=True)
class Explanation:
    """What explains the failing rows of one path.

    Attributes:
        tried: failing rows that every hypothesis was tried on; see ``hypothesis_fit.fit_all``.
        other_sets: those of them whose set is not the reference's.
        weights: whether the path has weights; without them nothing is bit for bit.
        hypotheses_tried: how many were tried.
        pairs: whether two mistakes at once were tried, because no single one gives every row.
        named: what a finding names, the best first; empty where nothing explains a row.
        hypotheses: those that explain a row, the best first, ``MOST_LISTED`` at most.
    """

    tried: int
    other_sets: int
    weights: bool
    hypotheses_tried: int
    pairs: bool
    named: tuple[Named, ...]
    hypotheses: tuple[Tried, ...]

    @property
    def best(self) -> str | None:
        """The name of the best hypothesis."""
        return self.named[0].name if self.named else None

    def as_dict(self) -> dict[str, Any]:
        """JSON values, with the name of the best."""
        return {**asdict(self), "named": [asdict(one) for one in self.named], "best": self.best} | {
            "hypotheses": [asdict(one) for one in self.hypotheses]
        }


@dataclass(frozen=True, eq=False)
class _Fits:
    """All fits of the same rows, with the rows that each explains [row] and its logits."""

    failing: Failing
    fits: list[tuple[Fit, str]] = field(default_factory=list)

    def explained(self) -> list[Bools]:
        """Rows that each fit explains; where a set explains a row, weights alone do not.

        A mistake explains nothing that the right select gives from the same logits: on such rows
        it changes nothing.
        """
        none = np.zeros(len(self.failing.rule), np.bool_)
        right = {source: [none, none] for _, source in self.fits}
        for fit, source in self.fits:
            if fit.plain:
                ids, bits = right[source]
                right[source] = [ids | fit.ids, bits | fit.bits]
        found, sets = [], none
        for fit, source in self.fits:
            ids, bits = right[source]
            rows = explained(fit, self.failing)
            if fit.stage == "set":
                rows = rows & ~ids
                sets = sets | (none if fit.plain else rows)
            elif not fit.plain:
                # By the budget alone, a mistake without a part in it explains as much.
                rows = rows & ~bits
            found.append(fit.bits if fit.plain else rows | fit.bits & ~bits)
        return [
            rows & ~sets | fit.bits & rows if fit.stage == "weights" else rows
            for (fit, _), rows in zip(self.fits, found, strict=True)
        ]


def explain_failing(sources: Mapping[str, Failing], mistakes: Sequence[Mistake]) -> Explanation:
    """Return which of the mistakes, score forms, and pairs of mistakes give the rows.

    Args:
        sources: the same rows by whose logits they start from, ``OWN`` or ``REFERENCE``, or both.
        mistakes: to be tried.
    """
    # Mistakes are tried on whatever a path returned, NaN and overflows too.
    with np.errstate(all="ignore"):
        return _explanation(sources, mistakes)


def _explanation(sources: Mapping[str, Failing], mistakes: Sequence[Mistake]) -> Explanation:
    first = next(iter(sources.values()))
    found = _Fits(first)
    for source, failing in sources.items():
        fits = [(fit, source) for fit in fit_all(failing, mistakes)]
        found.fits.extend(fits)
        moved = _permuted(failing)
        if moved is not None:
            found.fits.append((moved, source))
    tried = len(found.fits)
    pairs = not any(fit.bits.all() for fit, _ in found.fits) and first.seen.weights is not None
    if pairs:
        for source, failing in sources.items():
            singles = [fit for fit, mine in found.fits if mine == source]
            more = fit_pairs(failing, mistakes, singles)
            found.fits.extend((fit, source) for fit in more)
    rows = found.explained()
    listed = _listed(found, rows)
    return Explanation(
        tried=len(first.rule),
        other_sets=int(first.other_set.sum()),
        weights=first.seen.weights is not None,
        hypotheses_tried=tried,
        pairs=pairs,
        named=_named(found, rows),
        hypotheses=tuple(listed[:MOST_LISTED]),
    )


def _permuted(failing: Failing) -> Fit | None:
    """One map of ids behind all rows, where there are enough rows to tell it from chance."""
    expected, ids = failing.expected, failing.seen.ids
    mapping = id_permutation(expected.astype(np.int64), ids)
    # Each expert's image is chosen freely once; only what is seen again tests the map.
    if mapping is None or expected.size < 2 * len(mapping):
        return None
    return fit_permutation(failing, mapping)


def _listed(found: _Fits, rows: Sequence[Bools]) -> list[Tried]:
    best: dict[tuple[str, str], tuple[Fit, str]] = {}
    for (fit, source), explains in zip(found.fits, rows, strict=True):
        if not explains.any():
            continue
        known = best.get((fit.name, fit.stage))
        if known is None or fit.rank > known[0].rank:
            best[fit.name, fit.stage] = (fit, source)
    ranked = sorted(best.values(), key=lambda pair: pair[0].rank, reverse=True)
    return [
        Tried(
            fit.name, fit.stage, fit.words, source, int(fit.bits.sum()),
            int((fit.bits | fit.close & fit.ids).sum()), int(fit.ids.sum()),
            int(fit.reference.sum()),
        )
        for fit, source in ranked
    ]  # fmt: skip


def _named(found: _Fits, rows: Sequence[Bools]) -> tuple[Named, ...]:
    """The hypotheses that give most rows: bit for bit where that is more than half of them.

    Less than half would explain less than it leaves; a few rows fit by chance.
    """
    exact: dict[str, int] = {}
    loose: dict[str, int] = {}
    for (fit, _), explains in zip(found.fits, rows, strict=True):
        if explains.any():
            exact[fit.name] = max(exact.get(fit.name, 0), int(fit.bits.sum()))
        if not fit.plain:
            loose[fit.name] = max(loose.get(fit.name, 0), int(explains.sum()))
    most = max(exact.values(), default=0)
    if 2 * most > len(found.failing.rule):
        return tuple(Named(name, most, True) for name, count in exact.items() if count == most)
    most = max(loose.values(), default=0)
    return tuple(Named(name, most, False) for name, n in loose.items() if n == most and most)
