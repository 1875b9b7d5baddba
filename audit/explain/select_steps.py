"""What a select with a named mistake gives for rows, by a named score form: plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...banks.geometry import Geometry, ScoringRule
from ...kernels.contract import F32
from ...kernels.known_scores import form_scores, known_forms
from ...kernels.reference_scores import round_scores
from ...kernels.reference_scores import scores as exact_scores
from ..metrics.ulp import ordered
from .mistakes import Mistake, View, group_eligible

Array = npt.NDArray[Any]
I64 = npt.NDArray[np.int64]

EXACT: Final = "exact"
"""Scores in FP64; rounded once where keys are made of them."""
_LOWEST: Final = np.iinfo(np.int64).min


@dataclass(frozen=True, eq=False)
class Seen:
    """Rows that a path returned, and what it returned them for.

    Attributes:
        geometry, scoring: the rule that it should follow.
        logits: [row, expert] float32 that it saw.
        bias: [expert] float32.
        ids: [row, slot] int64 experts, none twice.
        weights: [row, slot] float32; None where it returned none.
    """

    geometry: Geometry
    scoring: ScoringRule
    logits: F32
    bias: F32
    ids: I64
    weights: F32 | None

    def rows(self, which: Array) -> Seen:
        """Some of the rows."""
        weights = None if self.weights is None else self.weights[which]
        return Seen(
            self.geometry, self.scoring, self.logits[which], self.bias, self.ids[which], weights
        )


def forms_of(function: str) -> list[str]:
    """Score forms that can stand for a function, the exact one first."""
    return [EXACT, *(known_forms() if function == "sigmoid" else [function])]


class Selects:
    """Selects of the same rows; what several of them share is made once."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self._scores: dict[tuple[bytes, str, str], Array] = {}
        self._views: dict[tuple[Any, ...], tuple[View, I64]] = {}

    def ids(self, mistake: Mistake, form: str) -> I64:
        """Return the ids [row, slot] that are selected, in selection order."""
        return self._selected(mistake, form)[1]

    def view(self, mistake: Mistake, form: str) -> View:
        """Return what the weights of the path's own ids are made of, and by which rule."""
        view, _ = self._selected(mistake, form)
        view = view.having(values=view.scores)
        for part in ("values", "scoring"):
            for step in mistake.of(part):
                view = view.having(**{part: step(view)})
        return view

    def in_order(self, mistake: Mistake, form: str) -> tuple[I64, Array, ScoringRule, I64]:
        """Return the path's ids and their values in selection order, the rule, and the order.

        Returns:
            ids [row, slot], values [row, slot] in FP32 or FP64 (``exact``), the rule, and the
            path's slots [row, slot] in that order.
        """
        view = self.view(mistake, form)
        own = self.seen.ids
        keys = np.take_along_axis(_places(view.keys, view.ties), own, axis=1)
        order = np.argsort(-keys, axis=1, kind="stable")
        ids = np.take_along_axis(own, order, axis=1)
        return ids, np.take_along_axis(view.values, ids, axis=1), view.scoring, order

    def _selected(self, mistake: Mistake, form: str) -> tuple[View, I64]:
        late = ("values", "scoring", "output")
        steps = tuple(step for part, step in mistake.steps if part not in late)
        key = (form, mistake.function, steps)
        if key not in self._views:
            self._views[key] = self._run(mistake, form)
        return self._views[key]

    def _run(self, mistake: Mistake, form: str) -> tuple[View, I64]:
        seen = self.seen
        experts = seen.geometry.experts
        nothing = np.empty(0)
        everyone = np.ones(seen.logits.shape, np.bool_)
        ties = np.arange(experts, dtype=np.int64)[::-1]
        view = View(
            seen.geometry, seen.scoring, seen.logits, nothing, seen.bias, nothing, everyone, ties,
            seen.ids, nothing, nothing,
        )  # fmt: skip
        view = _replaced(view, mistake, "logits")
        view = _replaced(
            view.having(scores=self._score(mistake, form, view.logits)), mistake, "scores"
        )
        view = _replaced(view, mistake, "bias")
        with np.errstate(all="ignore"):
            view = view.having(keys=_rounded(mistake, seen, view, form) + view.bias)
            view = _replaced(view, mistake, "keys")
        if seen.geometry.groups > 1:
            view = view.having(eligible=group_eligible(seen.geometry, view.keys, 2))
        view = _replaced(_replaced(view, mistake, "eligible"), mistake, "ties")
        return view, _top(view, seen.geometry.top_k)

    def _score(self, mistake: Mistake, form: str, logits: F32) -> Array:
        function = mistake.function or self.seen.scoring.function
        key = (logits.tobytes() if mistake.of("logits") else b"", form, function)
        if key not in self._scores:
            self._scores[key] = _scored(function, form, logits)
        return self._scores[key]


def _scored(function: Any, form: str, logits: F32) -> Array:
    if form == EXACT:
        return exact_scores(function, logits.astype(np.float64))
    # A form of the rule's own function; another function has one form here, its own.
    return form_scores(form if function == "sigmoid" and form != function else function, logits)


def _rounded(mistake: Mistake, seen: Seen, view: View, form: str) -> F32:
    """FP32 scores that keys are made of: FP64 ones are rounded correctly."""
    if form != EXACT:
        return view.scores
    if mistake.of("scores"):
        return view.scores.astype(np.float32)
    function: Any = mistake.function or seen.scoring.function
    return round_scores(function, view.logits.astype(np.float64), view.scores)


def _replaced(view: View, mistake: Mistake, part: str) -> View:
    for step in mistake.of(part):
        view = view.having(**{part: step(view)})
    return view


def _places(keys: Array, ties: I64) -> Array:
    """Numbers in the order of keys [row, expert]: NaN last; equal keys by ``ties`` [expert].

    int64; FP64 keys, which leave no bits for the ties, give their ranks.
    """
    with np.errstate(invalid="ignore"):
        order = ordered(np.ascontiguousarray(keys + keys.dtype.type(0)))
    if keys.dtype == np.float64:
        order = np.where(np.isnan(keys), _LOWEST, order)
        by_ties = np.argsort(ties, kind="stable")
        ranked = np.argsort(order[:, by_ties], axis=1, kind="stable")
        ranks = np.empty_like(order)
        np.put_along_axis(ranks, by_ties[ranked], np.arange(keys.shape[1])[None], axis=1)
        return ranks
    order = np.where(np.isnan(keys), -(1 << 31) + 1, order)
    return order * (1 << len(ties).bit_length()) + ties


def _top(view: View, count: int) -> I64:
    places = np.where(view.eligible, _places(view.keys, view.ties), _LOWEST)
    best = np.argpartition(-np.maximum(places, _LOWEST + 1), count - 1, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(places, best, axis=1), axis=1, kind="stable")
    return np.take_along_axis(best, order, axis=1).astype(np.int64)
