"""Findings of a pasted case: the batch findings, sought in its few rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from ..metrics.findings import (
    Bools,
    Finding,
    differing_rows,
    oracle_echo,
    rank_disagreement,
    same_as_expected,
    stale_output,
    unwritten_rows,
)
from .case_found import Found, listed
from .case_hypotheses import selection_hypotheses
from .judged_case import JudgedCase
from .judged_path import JudgedPath
from .misread_findings import misread_findings
from .row_hypotheses import weight_hypotheses


def find(judged: JudgedCase) -> list[Found]:
    """Return every finding of a case, the specific ones first; each name once a path."""
    found: list[Found] = []
    for seek in _SEEKERS:
        found.extend(seek(judged))
    found.extend(_unwritten(judged, found))
    return found


def _ranks(judged: JudgedCase) -> Iterator[Found]:
    if judged.case.leading_axis != "rank":
        return
    a, b = judged.a, judged.b
    if judged.case.split:
        if differing_rows(a.ids, a.weights, b.ids, b.weights).any():
            text = (
                f"two ranks route one row differently: ids {a.ids[0].tolist()} and "
                f"{b.ids[0].tolist()}; a near tie does not excuse it"
            )
            yield Found(Finding.RANK_DISAGREEMENT, text, (0,))
        return
    for path in (a, b):
        weights = None if path.weights is None else path.weights[:, None]
        differs = rank_disagreement(path.ids[:, None], weights)[:, 0]
        if differs.any():
            ranks = listed(differs)
            text = f"path {path.name}: rank {ranks[0]} routes the row differently from rank 0"
            yield Found(Finding.RANK_DISAGREEMENT, text, ranks, path.name)


def _steps(judged: JudgedCase) -> Iterator[Found]:
    if judged.case.leading_axis != "step":
        return
    if judged.case.split:
        yield from _two_steps(judged)
        return
    for path in (judged.a, judged.b):
        yield from _stale(path, judged)
        yield from _nondeterministic(path)


def _two_steps(judged: JudgedCase) -> Iterator[Found]:
    a, b = judged.a, judged.b
    differs = bool(differing_rows(a.ids, a.weights, b.ids, b.weights)[0])
    same_inputs = a.logits.tobytes() == b.logits.tobytes()
    if differs and same_inputs:
        text = "two runs of the same input give different outputs"
        yield Found(Finding.NONDETERMINISTIC, text, (0,))
    if not differs and not same_inputs and b.wrong[0]:
        text = "the later step returns the earlier step's output though its inputs changed"
        yield Found(Finding.STALE_OUTPUT, text, (0,), "b")


def _stale(path: JudgedPath, judged: JudgedCase) -> Iterator[Found]:
    """Outputs, or ids or weights alone, that an earlier step already returned."""
    parts: dict[str, Bools] = {}
    no_ids = np.zeros_like(path.ids)
    for lag in range(1, judged.case.rows):
        both = stale_output(path.ids, path.weights, path.logits, path.wrong, lag)
        seen = [("ids and weights", both)]
        if path.weights is not None:
            only = stale_output(no_ids, path.weights, path.logits, path.weights_wrong, lag)
            seen.append(("weights", only & ~both))
            only = stale_output(path.ids, None, path.logits, path.set_wrong, lag)
            seen.append(("ids", only & ~both))
        for part, rows in seen:
            parts[part] = parts.get(part, np.zeros(len(rows), np.bool_)) | rows
    for part, rows in parts.items():
        if rows.any():
            where = listed(rows)
            text = (
                f"path {path.name}: {part} of {judged.case.leading_axis} {where[0]} repeat an "
                "earlier one though the inputs changed"
            )
            yield Found(Finding.STALE_OUTPUT, text, where, path.name, {"stale_part": part})
            return


def _stale_rows(judged: JudgedCase) -> Iterator[Found]:
    if judged.case.leading_axis != "row":
        return
    for path in (judged.a, judged.b):
        if path.weights is not None:
            rows = stale_output(path.ids, path.weights, path.logits, path.wrong)
            if rows.any():
                where = listed(rows)
                text = f"path {path.name}: row {where[0]} repeats the output of the row before it"
                yield Found(Finding.STALE_OUTPUT, text, where, path.name)


def _nondeterministic(path: JudgedPath) -> Iterator[Found]:
    first_with: dict[bytes, int] = {}
    differs = np.zeros(len(path.ids), np.bool_)
    for step in range(len(path.ids)):
        first = first_with.setdefault(path.logits[step].tobytes(), step)
        weights = path.weights
        differs[step] = differing_rows(
            path.ids[first : first + 1],
            None if weights is None else weights[first : first + 1],
            path.ids[step : step + 1],
            None if weights is None else weights[step : step + 1],
        )[0]
    if differs.any():
        rows = listed(differs)
        text = f"path {path.name}: step {rows[0]} differs from an earlier step with the same input"
        yield Found(Finding.NONDETERMINISTIC, text, rows, path.name)


def _echo(judged: JudgedCase) -> Iterator[Found]:
    if judged.case.split:
        return
    a, b = judged.a, judged.b
    rows = oracle_echo(judged.agree & ~a.invalid & ~b.invalid, a.wrong, b.wrong)
    if rows.any():
        where = listed(rows)
        ids = a.reference.ids[where[0]].tolist()
        text = (
            f"both paths agree in row {where[0]} and both differ from the reference, "
            f"which selects {ids}: they share a fault"
        )
        yield Found(Finding.ORACLE_ECHO, text, where)


def _reference(judged: JudgedCase) -> Iterator[Found]:
    for path in (judged.a, judged.b):
        label = path.label.lower()
        if path.invalid.any() and ("reference" in label or "oracle" in label):
            text = f"path {path.name} is called a reference and breaks the row contract itself"
            yield Found(Finding.REFERENCE_INVALID, text, listed(path.invalid), path.name)


def _unwritten(judged: JudgedCase, found: list[Found]) -> Iterator[Found]:
    """Rows at the end that hold something old: nothing else explains them."""
    if judged.case.leading_axis != "row":
        return
    specific = {name for name in Finding if name != Finding.ORACLE_ECHO}
    for path, other in ((judged.b, judged.a), (judged.a, judged.b)):
        if any(f.name in specific and f.path == path.name for f in found):
            continue
        bad = path.invalid | path.wrong
        tail = unwritten_rows(bad)
        if tail is None or (other.invalid | other.wrong)[bad].any():
            continue
        if not path.poisoned[bad].all() and (len(bad) < 3 or _explained(judged, path, bad)):
            continue
        text = (
            f"path {path.name}: every row from {tail.first} on is wrong and every row before it "
            "right: the tail was not written"
        )
        facts = {"first_bad_row": tail.first, "chance_of_a_tail": tail.chance}
        yield Found(Finding.UNWRITTEN_ROWS, text, listed(bad), path.name, facts)


def _explained(judged: JudgedCase, path: JudgedPath, bad: Bools) -> bool:
    """Whether a named mistake gives all rows of a path, the bad and the right ones."""
    if path.invalid[bad].any():
        return False
    weights_wrong = path.weights_wrong & bad
    if weights_wrong.any():
        # A mistake in the weights would show in the rows before the tail; one row may be special.
        rows = listed(weights_wrong)
        names = weight_hypotheses(judged.case, path, judged.policy.weight_budget_ulp)
        return len(rows) == 1 and bool(names[rows[0]])
    mistakes = selection_hypotheses(judged.case, path.logits, path.reference)
    return any(same_as_expected(path.routed, ids).all() for _, ids in mistakes)


_SEEKERS: Final[tuple[Callable[[JudgedCase], Iterator[Found]], ...]] = (
    _ranks,
    _steps,
    misread_findings,
    _stale_rows,
    _echo,
    _reference,
)
