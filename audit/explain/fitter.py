"""One hypothesis on failing rows: the ids and the weights that it gives, held against a path's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..metrics.findings import Bools, same_as_expected
from ..metrics.ulp import finite, from_ordered, ordered
from .mistakes import RIGHT, Mistake
from .select_steps import EXACT, Seen, Selects, forms_of
from .weight_orders import PRECISE, Arithmetic, arithmetics, weigh

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

FORM_PREFIX: Final = "score_form="
_LAST: Final = 0x7F800000


@dataclass(frozen=True, eq=False)
class Fit:
    """What one hypothesis, with the arithmetic that suits it best, gives; arrays are [row] bool.

    Attributes:
        name: of the mistake; ``score_form=FORM`` where only score form, sum and normalisation are
            sought.
        stage: ``set``, ``weights`` or ``both``: what it can change.
        form: score form.
        arithmetic: normalisations and sums that give as much, in words.
        bits: ids (in any order of slots) and weights of the path, bit for bit.
        ids: the path's ids.
        close: its weights are what exact arithmetic would give to the path's ids with this
            mistake, within the budget.
        reference: the hypothesis gives the reference's ids and, within the budget, weights: this
            row cannot tell the two apart.
    """

    name: str
    stage: str
    form: str
    arithmetic: str
    bits: Bools
    ids: Bools
    close: Bools
    reference: Bools

    @property
    def plain(self) -> bool:
        """Whether nothing is mistaken but the score form or the arithmetic of the weights."""
        return self.name.startswith(FORM_PREFIX)

    @property
    def words(self) -> str:
        """Score form and arithmetic; nothing where no row is given bit for bit."""
        if not self.bits.any():
            return ""
        return self.arithmetic if self.form == EXACT else f"{self.form} scores, {self.arithmetic}"

    @property
    def rank(self) -> tuple[int, int, int]:
        """The more rows bit for bit, the better; then rows within the budget, then ids."""
        return (
            int(self.bits.sum()),
            int((self.bits | self.close & self.ids).sum()),
            int(self.ids.sum()),
        )


@dataclass(frozen=True, eq=False)
class Failing:
    """Failing rows of one path.

    Attributes:
        seen: what the path saw and returned.
        expected: [row, slot] the reference's ids.
        rule: [row, slot] float32, the weights that the rule gives to the path's ids.
        budget_ulp: [row] int64, FP32 steps that each weight may be off.
    """

    seen: Seen
    expected: npt.NDArray[Any]
    rule: F32
    budget_ulp: I64

    @property
    def other_set(self) -> Bools:
        """[row] the path's set is not the reference's."""
        return ~same_as_expected(self.seen.ids, self.expected)

    def rows(self, which: npt.NDArray[Any]) -> Failing:
        """Some of the rows."""
        return Failing(
            self.seen.rows(which), self.expected[which], self.rule[which], self.budget_ulp[which]
        )


class Fitter:
    """Fits hypotheses to the same rows."""

    def __init__(self, failing: Failing) -> None:
        self.failing = failing
        self.selects = Selects(failing.seen)
        self._forms = forms_of(failing.seen.scoring.function)
        self._known_close: dict[Mistake, tuple[Bools, Bools]] = {}

    def forms(self) -> Iterator[Fit]:
        """Each score form on its own."""
        for form in self._forms:
            yield self.form(form)

    def form(self, form: str) -> Fit:
        """One score form on its own."""
        fit = self._fit(RIGHT, form)
        reference = same_as_expected(self.selects.ids(RIGHT, form), self.failing.expected)
        ids, values, scoring, order = self.selects.in_order(RIGHT, form)
        rule = np.take_along_axis(self.failing.rule, order, axis=1)
        budget = self.failing.budget_ulp[:, None]
        near = _between(weigh(values, ids, scoring)[0], _moved(rule, -budget), _moved(rule, budget))
        return replace(fit, name=f"{FORM_PREFIX}{form}", reference=reference & near)

    def mistake(self, mistake: Mistake) -> Fit:
        """A mistake with the score form that suits it best.

        Where exact scores give no row's ids and no row's weights, other scores, which are a few
        ULP away, are not tried.
        """
        first = self._fit(mistake, self._forms[0])
        if not (first.ids.any() or first.close.any()):
            return first
        others = (self._fit(mistake, form) for form in self._forms[1:])
        return max((first, *others), key=lambda fit: fit.rank)

    def close(self, mistake: Mistake) -> Bools:
        """Rows [row] whose weights exact arithmetic gives with this mistake, within the budget."""
        if mistake not in self._known_close:
            self._known_close[mistake] = self._close(mistake)
        return self._known_close[mistake][0]

    def _fit(self, mistake: Mistake, form: str) -> Fit:
        seen = self.failing.seen
        ids = self.selects.ids(mistake, form)
        same = same_as_expected(ids, seen.ids)
        bits, words = self._bits(mistake, form, same)
        close, near_rule = self.close(mistake), self._known_close[mistake][1]
        reference = same_as_expected(ids, self.failing.expected) & near_rule
        return Fit(mistake.name, mistake.stage, form, words, bits, same, close, reference)

    def _bits(self, mistake: Mistake, form: str, same: Bools) -> tuple[Bools, str]:
        """Rows [row] with the path's bits by the best arithmetic, and its words."""
        seen = self.failing.seen
        none = np.zeros(len(seen.ids), np.bool_)
        if seen.weights is None or not same.any():
            return none, ""
        ids, values, scoring, order = self.selects.in_order(mistake, form)
        made = _output(mistake, self.selects, form, weigh(values, ids, scoring))
        mine = np.take_along_axis(seen.weights, order, axis=1)
        equal = (made.view(np.uint32) == mine.view(np.uint32)).all(axis=2) & same
        counts = equal.sum(axis=1)
        best = int(counts.argmax())
        if not counts[best]:
            return none, ""
        tried = arithmetics(form == EXACT, scoring)
        alike = [one for one, row in zip(tried, equal, strict=True) if (row == equal[best]).all()]
        return equal[best], arithmetic_words(alike, tried)

    def _close(self, mistake: Mistake) -> tuple[Bools, Bools]:
        """Rows whose weights, and rows whose rule's weights, are this mistake's in the budget."""
        seen = self.failing.seen
        none = np.zeros(len(seen.ids), np.bool_)
        if seen.weights is None:
            return none, ~none
        ids, values, scoring, order = self.selects.in_order(mistake, EXACT)
        made = weigh(values, ids, scoring)[0]
        budget = self.failing.budget_ulp[:, None]
        ends = [
            _output(mistake, self.selects, EXACT, _moved(made, steps))
            for steps in (-budget, budget)
        ]
        low, high = np.minimum(*ends), np.maximum(*ends)
        own, rule = (
            _between(np.take_along_axis(weights, order, axis=1), low, high)
            for weights in (seen.weights, self.failing.rule)
        )
        return own, rule


def _between(values: F32, low: F32, high: F32) -> Bools:
    """Whether all values [row, slot] of each row lie in their ranges."""
    return np.asarray(((low <= values) & (values <= high)).all(axis=1))


def _moved(values: F32, steps: I64) -> F32:
    """Values some FP32 steps up or down; one that is not finite stays."""
    known = finite(values)
    places = np.where(known, ordered(np.where(known, values, np.float32(0))), 0) + steps
    moved = from_ordered(np.clip(places, -_LAST, _LAST), np.float32)
    return np.where(known, moved, values).astype(np.float32)


def _output(mistake: Mistake, selects: Selects, form: str, weights: F32) -> F32:
    steps = mistake.of("output")
    if not steps:
        return np.ascontiguousarray(weights)
    view = selects.view(mistake, form)
    for step in steps:
        with np.errstate(all="ignore"):
            view = view.having(weights=weights)
            weights = step(view)
    return np.ascontiguousarray(weights.astype(np.float32))


def arithmetic_words(alike: Sequence[Arithmetic], tried: Iterable[Arithmetic]) -> str:
    """Return normalisation and sum in words; several may be one arithmetic on these rows.

    Example:
        >>> both = [("divide_eps", "fold"), ("divide_eps", "butterfly")]
        >>> arithmetic_words(both, [*both, ("divide_eps", "ascending")])
        'divide_eps, sum fold or butterfly'
    """
    if alike[0] == (PRECISE, ""):
        return PRECISE
    if alike[0] == ("none", ""):
        return "no normalisation"
    normalisations = list(dict.fromkeys(name for name, _ in alike))
    sums = list(dict.fromkeys(name for _, name in alike))
    every = {name for _, name in tried}
    words = "in any order" if set(sums) == every else " or ".join(sums)
    if len(alike) != len(normalisations) * len(sums):
        return " or ".join(f"{name}, sum {order}" for name, order in alike)
    return f"{' or '.join(normalisations)}, sum {words}"
