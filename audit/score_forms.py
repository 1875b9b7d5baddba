"""Which score form explains a path's wrong rows: each known one is tried, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..banks.bank import Bank
from ..kernels.known_scores import form_scores, known_forms
from ..kernels.select import SelectArithmetic, select
from ..kernels.select_weights import NORMALISATIONS, SUMS
from .form_windows import windows_that_allow
from .judged import JudgedBlock
from .metrics.findings import same_as_expected
from .observed import BatchFinding

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]

MOST_SETS: Final = 256
"""Wrong rows with another set than the reference's that are kept."""
MOST_WEIGHTS: Final = 64
"""Wrong rows with the reference's set that are kept."""


@dataclass(frozen=True, eq=False)
class _Rows:
    """Wrong rows of one chunk.

    Attributes:
        numbers: [row] int64, the bank's row numbers.
        logits: [row, expert] float32, what the path saw.
        ids, weights: [row, slot], the path's.
        other_set: [row] whether the set is not the reference's.
        keys: [row, expert] float32, the reference's.
        eligible: [row, expert] whether the reference may choose it.
        expected: [row, slot] int32, the reference's ids.
    """

    numbers: npt.NDArray[np.int64]
    logits: F32
    ids: I32
    weights: F32
    other_set: npt.NDArray[np.bool_]
    keys: F32
    eligible: npt.NDArray[np.bool_]
    expected: I32


@dataclass(frozen=True, eq=False)
class Fit:
    """How well one form, with its best weight sum and normalisation, gives the kept rows.

    Attributes:
        form: its name.
        words: the sum and the normalisation.
        rows: [row] whether ids and weights, aligned by id, have the path's bits.
        sets: [row] whether the sets are equal.
    """

    form: str
    words: str
    rows: npt.NDArray[np.bool_]
    sets: npt.NDArray[np.bool_]


class ScoreForms:
    """Keeps the first wrong rows of one path in one bank, and tries every known form on them.

    Only rows whose logits are known bit for bit take part: those that the path shows, or those
    that the bank holds.
    """

    def __init__(self, bank: Bank) -> None:
        self.bank = bank
        self.width = 0
        self._bias: F32 | None = None
        self._kept: list[_Rows] = []
        self._room = {True: MOST_SETS, False: MOST_WEIGHTS}

    def add(
        self,
        judged: JudgedBlock,
        width: int,
        seen: F32 | None,
        ids: I32,
        weights: F32,
        wrong: npt.NDArray[np.bool_],
    ) -> None:
        """Keep rows of ids and weights [row, slot] that the reference calls ``wrong`` [row].

        Args:
            judged: the chunk.
            width: its width; only the first one with wrong rows is kept.
            seen: [row, expert] float32 logits that the path shows, or None.
            ids: [row, slot] int32.
            weights: [row, slot] float32.
            wrong: [row].
        """
        logits = judged.logits if seen is None else seen
        fits = self.bank.scoring.function == "sigmoid" and logits.dtype == np.float32
        if not fits or not wrong.any() or self.width not in (0, width):
            return
        other = ~same_as_expected(ids, judged.selection.ids)
        rows = np.concatenate(
            [self._first(wrong & other, True), self._first(wrong & ~other, False)]
        )
        if not rows.size:
            return
        self.width, self._bias = width, judged.bias
        self._kept.append(
            _Rows(
                rows + judged.block.start,
                np.ascontiguousarray(logits[rows]),
                ids[rows],
                weights[rows],
                other[rows],
                judged.selection.keys[rows],
                _eligible(judged, rows),
                judged.selection.ids[rows],
            )
        )

    def findings(self, label: str) -> list[BatchFinding]:
        """Return the form that gives most of the kept rows; without one, what the bounds allow.

        A form is named where it gives more than half of them.
        """
        if not self._kept or self._bias is None:
            return []
        rows = _joined(self._kept)
        fits = [self._fit(form, rows) for form in known_forms()]
        most = max(int(fit.rows.sum()) for fit in fits)
        best = [fit for fit in fits if int(fit.rows.sum()) == most]
        # Less than half of the rows would explain less than it leaves; a few rows fit by chance.
        if 2 * most > len(rows.ids):
            return [self._named(label, best, [f for f in fits if f not in best], rows)]
        text = windows_that_allow(
            rows.keys, rows.eligible, rows.expected, rows.ids, rows.logits, self._bias
        )
        if text is None:
            return []
        return [self._finding("within_the_bound_of_a_score_form", label, len(rows.ids), text)]

    def _first(self, mask: npt.NDArray[np.bool_], other: bool) -> npt.NDArray[np.int64]:
        rows = np.flatnonzero(mask)[: self._room[other]]
        self._room[other] -= len(rows)
        return rows

    def _fit(self, form: str, rows: _Rows) -> Fit:
        """The form's best fit over all weight sums and normalisations."""
        assert self._bias is not None
        scores = form_scores(form, rows.logits)
        fits = []
        for normalise, weight_sum in product(NORMALISATIONS, SUMS):
            # The select reads the form's scores as logits, and leaves them as they are.
            rule = SelectArithmetic(
                form,
                "a trial",
                "identity",
                "propagate",
                weight_sum,
                normalise,
                groups=True,
                functions=(),
            )
            ids, weights = select(rule, scores, self._bias, self.bank.geometry, self.bank.scoring)
            fits.append(_compared(form, f"{normalise}, sum {weight_sum}", ids, weights, rows))
        best = max(fits, key=lambda fit: int(fit.rows.sum()))
        # Several sums can be one arithmetic: a fold and a butterfly of 8 values are.
        same = [fit.words for fit in fits if np.array_equal(fit.rows, best.rows)]
        return replace(best, words=" or ".join(same))

    def _named(self, label: str, best: list[Fit], others: list[Fit], rows: _Rows) -> BatchFinding:
        first, kept = best[0], len(rows.ids)
        count, sets = int(first.rows.sum()), int((first.sets & rows.other_set).sum())
        names = " = ".join(fit.form for fit in best)
        verb = "reproduces" if count == kept else "is consistent with"
        text = (
            f"scores by {names} (with {first.words}) {verb} {count} of {kept} wrong rows tried, "
            f"ids and weights bit for bit; {sets} of {int(rows.other_set.sum())} sets"
        )
        if others:
            next_best = max(others, key=lambda fit: int(fit.rows.sum()))
            text += f"; next is {next_best.form} with {int(next_best.rows.sum())}"
        witness = self._witness(first, rows)
        name = f"explained_by:score_form={best[0].form}"
        return self._finding(name, label, count, text + ("" if witness is None else f". {witness}"))

    def _witness(self, fit: Fit, rows: _Rows) -> str | None:
        """The smallest row that shows it: two experts, in the two orders."""
        assert self._bias is not None
        for place in np.flatnonzero(fit.rows & rows.other_set).tolist():
            out = sorted(set(rows.expected[place].tolist()) - set(rows.ids[place].tolist()))
            into = sorted(set(rows.ids[place].tolist()) - set(rows.expected[place].tolist()))
            # With another group's expert, sums of keys decide: two experts would not show it.
            if len(out) != 1 or not rows.eligible[place, into[0]]:
                continue
            scores = form_scores(fit.form, rows.logits[place : place + 1])[0]
            told = [
                f"expert {e} (logit {_hex(rows.logits[place, e])}, bias {_hex(self._bias[e])}): "
                f"key {_hex(rows.keys[place, e])} in the reference, "
                f"{_hex(scores[e] + self._bias[e])} by {fit.form}"
                for e in (out[0], into[0])
            ]
            return f"Witness: row {int(rows.numbers[place])}, {'; '.join(told)}"
        return None

    def _finding(self, name: str, label: str, rows: int, text: str) -> BatchFinding:
        return BatchFinding(name, label, self.bank.name, self.width, rows, text, fails=False)


def _eligible(judged: JudgedBlock, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    known = judged.selection.eligible
    if known is None:
        return np.ones((len(rows), judged.selection.keys.shape[1]), np.bool_)
    return known[rows]


def _joined(kept: list[_Rows]) -> _Rows:
    parts: dict[str, Any] = {
        one.name: np.concatenate([getattr(rows, one.name) for rows in kept])
        for one in fields(_Rows)
    }
    return _Rows(**parts)


def _compared(form: str, words: str, ids: I32, weights: F32, rows: _Rows) -> Fit:
    order, other = np.argsort(ids, axis=1), np.argsort(rows.ids, axis=1)
    sets = (
        np.take_along_axis(ids, order, axis=1) == np.take_along_axis(rows.ids, other, axis=1)
    ).all(axis=1)
    mine = np.take_along_axis(weights, order, axis=1).view(np.uint32)
    theirs = np.take_along_axis(rows.weights, other, axis=1).view(np.uint32)
    return Fit(form, words, sets & (mine == theirs).all(axis=1), sets)


def _hex(value: Any) -> str:
    mantissa, exponent = float(value).hex().split("p")
    return f"{mantissa.rstrip('0').rstrip('.')}p{exponent}"
