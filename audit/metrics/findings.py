"""What a whole batch shows that no single row can: findings, each a pure function of arrays.

``ids`` are [row, slot] integers and ``weights`` [row, slot] floats or None throughout. Outputs are
compared bit for bit here, slot by slot: two ranks or two runs of one path owe each other that.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .ulp import ulp_distance

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[Any]
Floats = npt.NDArray[Any]
I64 = npt.NDArray[np.int64]


class Finding(enum.StrEnum):
    """Names of the batch findings, in the order of the design, then those of values."""

    RANK_DISAGREEMENT = "rank_disagreement"
    LAYOUT_PERMUTATION = "layout_permutation"
    STRIDE = "stride"
    UNWRITTEN_ROWS = "unwritten_rows"
    STALE_OUTPUT = "stale_output"
    ID_PERMUTATION = "id_permutation"
    NEVER_SELECTED = "never_selected"
    NONDETERMINISTIC = "nondeterministic"
    WIDTH_DEPENDENT = "width_dependent"
    REDUCTION_ORDER = "reduction_order"
    ORACLE_ECHO = "oracle_echo"
    REFERENCE_INVALID = "reference_invalid"
    NONFINITE_OUTPUT = "nonfinite_output"
    WRONG_LOGITS = "wrong_logits"
    SCHEDULE_MISMATCH = "schedule_mismatch"
    COLUMNS_DROPPED = "columns_dropped"
    REPEATED_ROWS = "repeated_rows"
    ALWAYS_SELECTED = "always_selected"
    WEIGHTS_IN_OTHER_SLOTS = "weights_in_other_slots"


DISCLOSED: Final = frozenset({Finding.REDUCTION_ORDER})
"""Findings that are legitimate arithmetic to be told; every other one fails."""


def differing_rows(
    ids_a: Ints, weights_a: Floats | None, ids_b: Ints, weights_b: Floats | None
) -> Bools:
    """Return, for each row, whether ids or weights differ in any bit of any slot.

    The answer to three questions: two ranks of one path (``rank_disagreement``), two runs
    (``nondeterministic``), the same row at two widths (``width_dependent``). Two NaN of the same
    bits are equal and -0 differs from +0; weights are compared where both sides have them.
    """
    differs = (ids_a != ids_b).any(axis=-1)
    if weights_a is not None and weights_b is not None:
        differs |= (bits(weights_a) != bits(weights_b)).any(axis=-1)
    return np.asarray(differs)


def bits(values: npt.NDArray[Any]) -> Ints:
    """Bit patterns of ``values``, an unsigned integer each, without a copy."""
    return values.view(f"u{values.dtype.itemsize}")


def rank_disagreement(ids: Ints, weights: Floats | None) -> Bools:
    """Return, for each rank and row, whether its output differs from rank 0's in any bit.

    Args:
        ids: [rank, row, slot].
        weights: [rank, row, slot] or None.

    Returns:
        [rank, row]; rank 0 is False throughout.
    """
    first = None if weights is None else weights[:1]
    return differing_rows(ids, weights, ids[:1], first)


@dataclass(frozen=True, slots=True)
class Tail:
    """All bad rows are the last ones: ``first`` is the first of them.

    ``chance`` is the probability that as many bad rows, spread by chance, form the tail.
    """

    first: int
    chance: float


def unwritten_rows(bad: Bools) -> Tail | None:
    """Return the tail that the bad rows [row] are exactly, or None where they are not one.

    A batch without a bad row, or with nothing but bad rows, has no tail. For several launches of
    one width, pass [launch, row] flattened over ``bad.any(axis=0)``: the position within a launch
    is what an unwritten tail shares.

    Example:
        >>> unwritten_rows(np.array([False, False, True, True])).first
        2
    """
    count = int(np.count_nonzero(bad))
    rows = len(bad)
    if count in (0, rows) or not bad[rows - count :].all():
        return None
    return Tail(rows - count, 1.0 / math.comb(rows, count))


def stale_output(
    ids: Ints, weights: Floats | None, inputs: npt.NDArray[Any], wrong: Bools, lag: int = 1
) -> Bools:
    """Return, for each row, whether it repeats the output of the row ``lag`` before it.

    A row is stale where it is ``wrong`` (differs from what was expected), its ids and weights have
    the bits of the earlier row, and its inputs do not. The first of a chain of repeats must be
    right: an output that is wrong from the start is the same everywhere for another reason.

    Args:
        ids: [row, slot], rows in the order in which they were computed.
        weights: [row, slot] or None.
        inputs: [row, element] what each row was computed from.
        wrong: [row] whether the row differs from the expected output.
        lag: rows back: 1 for successive steps, the width for the same place in the last launch.
    """
    stale = np.zeros(len(ids), np.bool_)
    later, earlier = slice(lag, None), slice(None, max(len(ids) - lag, 0))
    same = ~differing_rows(
        ids[later],
        None if weights is None else weights[later],
        ids[earlier],
        None if weights is None else weights[earlier],
    )
    changed = (bits(inputs[later]) != bits(inputs[earlier])).any(axis=-1)
    stale[later] = same & changed & wrong[later]
    # In the order of the rows: a repeat of a stale row is stale, one of a wrong row is not.
    for row in np.flatnonzero(stale):
        stale[row] = stale[row - lag] or not wrong[row - lag]
    return stale


def repeats_expected(
    ids: Ints, weights: Floats, expected_ids: Ints, expected_weights: Floats, lag: int
) -> Bools:
    """Return, for each row, whether it has the bits that the row ``lag`` before should have.

    Args:
        ids: [row, slot] of a path.
        weights: [row, slot] of the path.
        expected_ids: [row, slot] of the other path, which does the same arithmetic.
        expected_weights: [row, slot] of the other path.
        lag: rows back.
    """
    result = np.zeros(len(ids), np.bool_)
    later, earlier = slice(lag, None), slice(None, max(len(ids) - lag, 0))
    result[later] = ~differing_rows(
        ids[later], weights[later], expected_ids[earlier], expected_weights[earlier]
    )
    return result


def id_permutation(ids_a: Ints, ids_b: Ints) -> dict[int, int] | None:
    """Return the one-to-one map that turns a's ids into b's slot by slot, or None.

    The map holds the experts that were seen. None where a's expert meets two of b's, where two of
    a's meet one of b's, or where nothing is moved.
    """
    pairs = np.unique(np.stack([ids_a.ravel(), ids_b.ravel()], axis=1), axis=0)
    one_to_one = all(len(np.unique(pairs[:, side])) == len(pairs) for side in (0, 1))
    if not one_to_one or (pairs[:, 0] == pairs[:, 1]).all():
        return None
    return {int(a): int(b) for a, b in pairs}


def never_selected(counts_a: I64, counts_b: I64, confidence: float = 0.999) -> I64:
    """Return the experts that b never chose though a's counts make that incredible.

    Args:
        counts_a: [expert] how often the baseline chose it.
        counts_b: [expert] the same of the candidate, over the same rows.
        confidence: an expert is listed where a count with a's mean would be 0 with a probability
            of at most (1 - confidence) / experts (Poisson, Bonferroni over the experts).
    """
    least = math.log(len(counts_a) / (1.0 - confidence))
    return np.flatnonzero((counts_b == 0) & (counts_a >= least)).astype(np.int64)


def dropped_columns(
    x: npt.NDArray[np.float64],
    weight: npt.NDArray[np.float64],
    missing: npt.NDArray[np.float64],
    bound: npt.NDArray[np.float64],
) -> int | None:
    """Return from which column on a product left its columns out, or None where that is not it.

    The last columns' share of every element must be what is missing from it, within the bound.

    Args:
        x: [row, column].
        weight: [output, column].
        missing: [row, output] exact product minus the path's.
        bound: [row] how far a right element may be off.
    """
    fits = np.ones(x.shape[1], np.bool_)
    for row in range(len(x)):
        shares = weight * x[row]
        # Column k: the sum of the products from k to the end.
        tails = np.cumsum(shares[:, ::-1], axis=1)[:, ::-1]
        with np.errstate(invalid="ignore"):
            fits &= (np.abs(tails - missing[row][:, None]) <= bound[row]).all(axis=0)
    # All columns left out would be no product at all.
    places = np.flatnonzero(fits[1:]) + 1
    return int(places[-1]) if len(places) else None


def always_selected(counts_a: I64, counts_b: I64, rows: int, confidence: float = 0.999) -> I64:
    """Return the experts that b chose in every row though a's counts make that incredible.

    Args:
        counts_a: [expert] how often the baseline chose it.
        counts_b: [expert] the same of the candidate, over the same rows.
        rows: number of rows.
        confidence: an expert is listed where rows that choose it at a's rate (Laplace's estimate,
            (n + 1) / (rows + 2)) would all do so with a probability of at most
            (1 - confidence) / experts (Bonferroni over the experts).
    """
    rate = (counts_a + 1.0) / (rows + 2.0)
    credible = math.log((1.0 - confidence) / len(counts_a))
    chance = rows * np.log(rate)
    return np.flatnonzero((counts_b == rows) & (rows > 0) & (chance <= credible)).astype(np.int64)


def other_slots(weights: Floats, rule: npt.NDArray[np.float64], budget_ulp: int) -> Bools:
    """Return, for each row, whether its weights are the rule's for its ids in other slots.

    Sorted, both are within the budget of FP32 steps; slot by slot, they are not.

    Args:
        weights: float32 [row, slot] of a path.
        rule: float64 [row, slot], what the rule gives to the path's ids.
        budget_ulp: FP32 steps that a weight may be off.
    """
    with np.errstate(over="ignore"):
        expected = rule.astype(np.float32)
    in_place = ulp_distance(weights, expected).within(budget_ulp).all(axis=1)
    line = np.sort(weights, axis=1), np.sort(expected, axis=1)
    return np.asarray(ulp_distance(*line).within(budget_ulp).all(axis=1) & ~in_place)


def oracle_echo(agree: Bools, a_differs: Bools, b_differs: Bools) -> Bools:
    """Return, for each row, whether both paths agree and both differ from the reference.

    A candidate checked against a baseline with the same fault passes; only a third opinion tells.

    Args:
        agree: [row] the paths choose the same set with weights inside the budget.
        a_differs: [row] the baseline differs from the reference beyond window or budget.
        b_differs: [row] the candidate does.
    """
    return agree & a_differs & b_differs


def same_as_expected(ids: Ints, expected: Ints) -> Bools:
    """Return, for each row, whether both hold the same set of ids, in any slot order."""
    return np.asarray((np.sort(ids, axis=-1) == np.sort(expected, axis=-1)).all(axis=-1))


def permuted_layout(ids: Ints, right: Ints, misread: Ints) -> bool:
    """Return whether a path's ids follow from misread inputs and not from the right ones.

    ``right`` and ``misread`` are [row, slot] ids that the reference selects from the inputs as
    they are and as they would be under another layout or stride.
    """
    return bool(same_as_expected(ids, misread).all() and not same_as_expected(ids, right).all())
