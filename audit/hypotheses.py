"""Which hypothesis explains a path's failing rows in an audit: collected, tried and told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..banks.bank import Bank
from ..kernels.known_scores import form_scores
from .explain.explanation import OWN, REFERENCE, Explanation, Named, Tried, explain_failing
from .explain.fitter import FORM_PREFIX, Failing
from .explain.hypothesis_fit import SCREEN_ROWS
from .explain.mistakes import set_mistakes, weight_mistakes
from .explain.select_steps import EXACT, Seen
from .form_windows import windows_that_allow
from .judged import JudgedBlock
from .metrics.findings import Bools, same_as_expected
from .metrics.rule_weights import rule_weights
from .observed import BatchFinding
from .policy import Policy

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]

MOST_SETS: Final = 256
"""Failing rows with another set than the reference's that are kept."""
MOST_WEIGHTS: Final = 64
"""Failing rows with the reference's set that are kept."""
LIMIT: Final = (
    f"the first {MOST_SETS} with another set than the reference's and the first {MOST_WEIGHTS} "
    f"with its set, at the first width that has any; a mistake that gives none of the first "
    f"{SCREEN_ROWS} of each is not tried on more"
)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Failing rows of one chunk.

    Attributes:
        numbers: [row] int64, the bank's row numbers.
        own: [row, expert] float32, the logits that the path shows; else the reference's.
        logits: [row, expert] float32, the reference's.
        ids, weights: [row, slot], the path's.
        keys: [row, expert] float32, the reference's.
        eligible: [row, expert] whether the reference may choose it.
        expected: [row, slot] int32, the reference's ids.
        rule: [row, slot] float32, the rule's weights for the path's ids.
        budget_ulp: [row] int64, FP32 steps that a weight may be off.
    """

    numbers: npt.NDArray[np.int64]
    own: F32
    logits: F32
    ids: I32
    weights: F32
    keys: F32
    eligible: Bools
    expected: I32
    rule: F32
    budget_ulp: npt.NDArray[np.int64]

    def taken(self, places: npt.NDArray[np.int64]) -> _Rows:
        """Some of the rows, in the order of ``places``."""
        return _Rows(**{one.name: getattr(self, one.name)[places] for one in fields(self)})


@dataclass
class FailingRows:
    """The first failing rows of one path in one bank; kept shard by shard, merged in row order.

    Attributes:
        width: the first width, in the audit's order, that has failing rows; 0 without any.
        count: failing rows at ``width``, kept or not.
        known_logits: whether a path or the bank shows the logits that the rows were chosen from.
        bias: [expert] float32.
    """

    width: int = 0
    count: int = 0
    known_logits: bool = True
    bias: F32 = field(default_factory=lambda: np.empty(0, np.float32))
    _kept: list[_Rows] = field(default_factory=list)

    def add(
        self,
        bank: Bank,
        policy: Policy,
        judged: JudgedBlock,
        width: int,
        seen: F32 | None,
        ids: I32,
        weights: F32,
        failing: Bools,
    ) -> None:
        """Keep failing rows of ids and weights [row, slot].

        Args:
            bank: where the rows are from.
            policy: the budget of weights.
            judged: the chunk.
            width: its width; widths come in the audit's order, and only the first one with failing
                rows is kept.
            seen: [row, expert] float32 logits that the path shows, or None.
            ids: [row, slot] int32 experts; rows that break the contract must not be among the
                failing ones.
            weights: [row, slot] float32.
            failing: [row].
        """
        if not failing.any() or self.width not in (0, width):
            return
        self.width = width
        self.count += int(np.count_nonzero(failing))
        other = ~same_as_expected(ids, judged.selection.ids)
        room = self._room()
        rows = np.concatenate([_first(failing & other, room[0]), _first(failing & ~other, room[1])])
        if not rows.size:
            return
        self.bias = judged.bias
        # Logits in FP64 are exact products: no path has seen them.
        self.known_logits = seen is not None or judged.logits.dtype == np.float32
        logits = judged.logits[rows].astype(np.float32)
        selection = judged.selection
        with np.errstate(over="ignore"):
            rule = rule_weights(ids[rows], selection.scores[rows], bank.scoring)
            rule32 = rule.astype(np.float32)
        slack = np.ceil(2 * judged.logit_error[rows] * 2**24).astype(np.int64)
        self._kept.append(
            _Rows(
                rows + judged.block.start,
                logits if seen is None else np.ascontiguousarray(seen[rows]),
                logits,
                ids[rows],
                weights[rows],
                selection.keys[rows],
                _eligible(judged, rows),
                selection.ids[rows],
                rule32,
                policy.weight_budget_ulp + slack,
            )
        )

    def merge(self, other: FailingRows, widths: Sequence[int]) -> None:
        """Add later rows of the same path and bank; the earlier of two widths stays.

        Args:
            other: what later rows gave.
            widths: the audit's, in its order.
        """
        if not other.width:
            return
        if self.width and widths.index(self.width) < widths.index(other.width):
            return
        if self.width != other.width:
            self.width, self.count, self._kept = other.width, 0, []
        self.count += other.count
        for rows in other._kept:
            beyond, room = ~same_as_expected(rows.ids, rows.expected), self._room()
            fit = np.concatenate([_first(beyond, room[0]), _first(~beyond, room[1])])
            if fit.size:
                self.bias, self.known_logits = other.bias, other.known_logits
                self._kept.append(rows.taken(fit))

    def forget_width(self, width: int) -> None:
        """Drop the rows where they are of a width that could not be finished."""
        if self.width == width:
            self.width, self.count, self._kept = 0, 0, []

    def _room(self) -> tuple[int, int]:
        """How many more rows with another set, and with the reference's, are kept."""
        sets = [~same_as_expected(rows.ids, rows.expected) for rows in self._kept]
        beyond = sum(int(np.count_nonzero(mask)) for mask in sets)
        return MOST_SETS - beyond, MOST_WEIGHTS - (sum(map(len, sets)) - beyond)

    def explained(self, bank: Bank, label: str, role: str) -> Explained | None:
        """Return what explains the rows, if any failed."""
        if not self._kept:
            return None
        rows = _joined(self._kept)
        sources = {}
        if self.known_logits:
            sources[OWN] = self._failing(bank, rows, rows.own)
        if not np.array_equal(rows.own.view(np.uint32), rows.logits.view(np.uint32)) or not sources:
            sources[REFERENCE] = self._failing(bank, rows, rows.logits)
        mistakes = [
            *set_mistakes(bank.geometry, bank.scoring, self.bias),
            *weight_mistakes(bank.scoring, self.bias),
        ]
        return Explained(bank, self, rows, explain_failing(sources, mistakes), label, role)

    def _failing(self, bank: Bank, rows: _Rows, logits: F32) -> Failing:
        ids = rows.ids.astype(np.int64)
        seen = Seen(bank.geometry, bank.scoring, logits, self.bias, ids, rows.weights)
        return Failing(seen, rows.expected, rows.rule, rows.budget_ulp)


def lost_ties(judged: JudgedBlock, ids: I32, policy: Policy) -> Bools:
    """Return the rows [row] where an exact tie went to the higher id against the tie contract."""
    if policy.tie_contract != "lower_id":
        return np.zeros(len(ids), np.bool_)
    keys, expected = judged.selection.keys, judged.selection.ids
    safe = np.clip(ids, 0, keys.shape[1] - 1)
    mine, theirs = (np.sort(np.take_along_axis(keys, i, axis=1), axis=1) for i in (safe, expected))
    return np.asarray(~same_as_expected(ids, expected) & (mine == theirs).all(axis=1))


@dataclass(frozen=True, eq=False)
class Explained:
    """The explanation of one path's failing rows in one bank, as record and as findings."""

    bank: Bank
    source: FailingRows
    rows: _Rows
    explanation: Explanation
    label: str
    role: str

    def record(self) -> dict[str, Any]:
        """JSON values for ``audit.json``."""
        return {
            "bank": self.bank.name,
            "path": self.role,
            "label": self.label,
            "width": self.source.width,
            "failing": self.source.count,
            "limit": LIMIT,
            **self.explanation.as_dict(),
        }

    def findings(self) -> list[BatchFinding]:
        """Return the hypotheses that explain most of the rows; else what the bounds allow.

        A mistake that explains every row tried fails, a part of them is disclosed. A score form is
        arithmetic, and is disclosed.
        """
        named = [self._finding(one) for one in self.explanation.named]
        if any(one.name.startswith(FORM_PREFIX) for one in self.explanation.named):
            return named
        text = windows_that_allow(
            self.rows.keys, self.rows.eligible, self.rows.expected, self.rows.ids, self.rows.own,
            self.source.bias,
        ) if self._bounded() else None  # fmt: skip
        if text is not None:
            name = "within_the_bound_of_a_score_form"
            named.append(self._told(name, len(self.rows.ids), text, fails=False))
        return named

    def _bounded(self) -> bool:
        """Whether the certified bounds of score forms speak of these rows at all."""
        named = any(one.bits for one in self.explanation.named)
        sigmoid = self.bank.scoring.function == "sigmoid"
        return sigmoid and self.source.known_logits and not named

    def _finding(self, one: Named) -> BatchFinding:
        tried = self.explanation.tried
        every = one.rows == tried
        verb = "reproduces" if every else "is consistent with"
        text = f"{one.name} {verb} {one.rows:,} of {tried:,} wrong rows tried"
        found = next((t for t in self.explanation.hypotheses if t.name == one.name), None)
        if one.bits and found is not None:
            form = one.name.startswith(FORM_PREFIX)
            if form:
                text = text.replace(one.name, f"scores by {one.name.removeprefix(FORM_PREFIX)}", 1)
            text += f", ids and weights bit for bit (with {found.arithmetic})"
            text += self._others(found)
            if form:
                text += self._witness(one.name.removeprefix(FORM_PREFIX))
                return self._told(f"explained_by:{one.name}", one.rows, text, fails=False)
        return self._told(f"explained_by:{one.name}", one.rows, text, fails=every)

    def _others(self, found: Tried) -> str:
        others = [t for t in self.explanation.hypotheses if t.bits < found.bits]
        return f"; next is {others[0].name} with {others[0].bits:,}" if others else ""

    def _witness(self, form: str) -> str:
        """The smallest row that shows it: two experts, in the two orders."""
        if form == EXACT:
            return ""
        rows = self.rows
        for place in range(len(rows.ids)):
            out = sorted(set(rows.expected[place].tolist()) - set(rows.ids[place].tolist()))
            into = sorted(set(rows.ids[place].tolist()) - set(rows.expected[place].tolist()))
            # With another group's expert, sums of keys decide: two experts would not show it.
            if len(out) != 1 or not rows.eligible[place, into[0]]:
                continue
            scores = form_scores(form, rows.own[place : place + 1])[0]
            keys = scores + self.source.bias
            if not keys[into[0]] >= keys[out[0]]:
                continue
            told = [
                f"expert {e} (logit {_hex(rows.own[place, e])}, bias {_hex(self.source.bias[e])}): "
                f"key {_hex(rows.keys[place, e])} in the reference, {_hex(keys[e])} by {form}"
                for e in (out[0], into[0])
            ]
            return f". Witness: row {int(rows.numbers[place])}, {'; '.join(told)}"
        return ""

    def _told(self, name: str, rows: int, text: str, *, fails: bool) -> BatchFinding:
        bank, width = self.bank.name, self.source.width
        return BatchFinding(name, self.label, bank, width, rows, text, fails=fails)


def _first(mask: Bools, most: int) -> npt.NDArray[np.int64]:
    """The first rows that are set in [row], so many at most."""
    return np.flatnonzero(mask)[:most]


def _eligible(judged: JudgedBlock, rows: npt.NDArray[np.int64]) -> Bools:
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


def _hex(value: Any) -> str:
    mantissa, exponent = float(value).hex().split("p")
    return f"{mantissa.rstrip('0').rstrip('.')}p{exponent}"
