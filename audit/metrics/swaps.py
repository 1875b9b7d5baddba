"""Set differences: the class of every row, and how far apart the exchanged experts are."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...banks.errors import InputError
from .ulp import Bools, finite, ordered

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
I8 = npt.NDArray[np.int8]
Ids = npt.NDArray[np.integer[Any]]


class SetClass(enum.StrEnum):
    """What kind of difference two paths' expert sets show; codes in this order."""

    IDENTICAL = "identical"
    REORDERED = "reordered"
    EXACT_TIE = "exact_tie"
    TIE_GROUP = "tie_group"
    GROUP_TIE = "group_tie"
    NEAR_TIE = "near_tie"
    NOISE_SWAP = "noise_swap"
    FAR_SWAP = "far_swap"
    MULTI_SWAP = "multi_swap"
    INVALID = "invalid"


SET_CLASSES: Final = tuple(SetClass)
SET_CODE: Final = {kind: code for code, kind in enumerate(SET_CLASSES)}

# Differing rows are compared slot by slot in pieces, which bounds memory at K * K bytes a row.
_PIECE_ROWS: Final = 1 << 15


@dataclass(frozen=True, eq=False, slots=True)
class SetDifferences:
    """What ``classify_sets`` found. [row] is every row given, [n] the valid rows whose sets differ.

    Attributes:
        set_class: int8 [row], codes of ``SET_CLASSES``.
        rows: int64 [n], ascending.
        dropped: int32 [n, slot], ascending experts in a and not in b, then -1.
        added: int32 [n, slot], ascending experts in b and not in a, then -1.
        n_swapped: int32 [n].
        gap_ulp: int64 [n], largest distance in FP32 steps between the reference's biased keys of
            dropped and added experts, each side sorted and paired; -1 where a pair has none.
        gap_abs: float64 [n], the same as an absolute difference; NaN where a pair has none.
        group_gap_ulp: int64 [n], widest distance among the keys of the groups that dropped and
            added experts lie in, where those are different groups; -1 elsewhere.
    """

    set_class: I8
    rows: I64
    dropped: I32
    added: I32
    n_swapped: I32
    gap_ulp: I64
    gap_abs: F64
    group_gap_ulp: I64

    def counts(self) -> dict[SetClass, int]:
        """Return the rows of each class, all classes named."""
        found = np.bincount(self.set_class, minlength=len(SET_CLASSES))
        return {kind: int(found[code]) for code, kind in enumerate(SET_CLASSES)}


def classify_sets(
    ids_a: Ids,
    ids_b: Ids,
    keys: F32,
    *,
    window_ulp: int = 2,
    noise_abs: float = 0.0,
    invalid: Bools | None = None,
    group_keys: F32 | None = None,
    groups: int = 1,
) -> SetDifferences:
    """Return the set class of each row: exactly one, the first of these that holds.

    - ``invalid``: told by the caller; the row leaves every rate.
    - ``identical``, ``reordered``: the same set, in the same or another order.
    - one for one: ``exact_tie`` with equal keys; ``group_tie`` across two groups of equal group
      keys; ``near_tie`` within the window; ``noise_swap`` within ``noise_abs``; ``far_swap``.
    - several: ``group_tie`` where all dropped experts lie in groups other than all added ones and
      all those groups' keys are equal; ``tie_group`` where all exchanged keys are equal;
      ``multi_swap``.

    Keys are equal at 0 steps: -0 equals +0, and equal infinities are equal. A gap to a NaN, or
    between an infinity and another value, is undefined and never a tie of any kind.

    Args:
        ids_a: [row, slot] integers of the baseline.
        ids_b: [row, slot] integers of the candidate.
        keys: float32 [row, expert], the reference's biased scores.
        window_ulp: FP32 steps that still count as a near tie.
        noise_abs: declared perturbation of the difference of two keys, absolute.
        invalid: [row], rows with a breach in either path.
        group_keys: float32 [row, group] of the reference, or None without groups.
        groups: equal, consecutive groups of experts.

    Raises:
        InputError: shapes do not fit, a limit is negative or not a number, or a row that is not
            marked invalid holds an id twice.
    """
    bad = _checked(ids_a, ids_b, keys, window_ulp, noise_abs, invalid, group_keys, groups)
    code = np.full(len(ids_a), SET_CODE[SetClass.IDENTICAL], dtype=np.int8)
    code[bad] = SET_CODE[SetClass.INVALID]
    unlike = np.flatnonzero((ids_a != ids_b).any(axis=1) & ~bad)
    sorted_a, sorted_b = np.sort(ids_a[unlike], axis=1), np.sort(ids_b[unlike], axis=1)
    _refuse_duplicates(sorted_a, unlike, "ids_a")
    _refuse_duplicates(sorted_b, unlike, "ids_b")
    other = (sorted_a != sorted_b).any(axis=1)
    code[unlike[~other]] = SET_CODE[SetClass.REORDERED]
    rows = unlike[other].astype(np.int64)
    dropped = _not_in(sorted_a[other], sorted_b[other])
    added = _not_in(sorted_b[other], sorted_a[other])
    swapped = (dropped >= 0).sum(axis=1).astype(np.int32)
    gap_ulp, gap_abs = _key_gaps(keys, rows, dropped, added)
    group_gap = np.full(len(rows), -1, dtype=np.int64)
    if group_keys is not None and groups > 1:
        size = keys.shape[1] // groups
        group_gap = _group_gaps(group_keys, rows, dropped // size, added // size)
    # From the last rule to the first: a later line overrules the lines before it.
    kind = np.where(swapped == 1, SET_CODE[SetClass.FAR_SWAP], SET_CODE[SetClass.MULTI_SWAP])
    one, tied = swapped == 1, gap_ulp == 0
    with np.errstate(invalid="ignore"):
        kind[one & (gap_abs <= noise_abs)] = SET_CODE[SetClass.NOISE_SWAP]
    kind[one & (gap_ulp >= 0) & (gap_ulp <= window_ulp)] = SET_CODE[SetClass.NEAR_TIE]
    kind[~one & _all_equal(keys, rows, dropped, added)] = SET_CODE[SetClass.TIE_GROUP]
    kind[group_gap == 0] = SET_CODE[SetClass.GROUP_TIE]
    kind[one & tied] = SET_CODE[SetClass.EXACT_TIE]
    code[rows] = kind
    return SetDifferences(code, rows, dropped, added, swapped, gap_ulp, gap_abs, group_gap)


def _checked(
    ids_a: Ids,
    ids_b: Ids,
    keys: F32,
    window_ulp: int,
    noise_abs: float,
    invalid: Bools | None,
    group_keys: F32 | None,
    groups: int,
) -> Bools:
    """Refuse what does not fit; return the invalid rows."""
    where = "classify_sets"
    if ids_a.ndim != 2 or ids_a.shape != ids_b.shape:
        raise InputError("ids_b.shape", ids_b.shape, f"[row, slot] as ids_a {ids_a.shape}", where)
    if keys.ndim != 2 or len(keys) != len(ids_a) or keys.dtype != np.float32:
        got = f"{keys.dtype}{list(keys.shape)}"
        raise InputError("keys", got, f"float32[{len(ids_a)}, expert]", where)
    if window_ulp < 0:
        raise InputError("window_ulp", window_ulp, "at least 0", where)
    if not (noise_abs >= 0.0 and np.isfinite(noise_abs)):
        raise InputError("noise_abs", noise_abs, "finite and at least 0", where)
    if groups < 1 or keys.shape[1] % groups:
        raise InputError("groups", groups, f"a divisor of {keys.shape[1]} experts", where)
    if group_keys is not None and group_keys.shape != (len(ids_a), groups):
        raise InputError("group_keys.shape", group_keys.shape, (len(ids_a), groups), where)
    if invalid is None:
        return np.zeros(len(ids_a), dtype=np.bool_)
    if invalid.shape != ids_a.shape[:1]:
        raise InputError("invalid.shape", invalid.shape, ids_a.shape[:1], where)
    return invalid.astype(np.bool_)


def _refuse_duplicates(sorted_ids: Ids, rows: I64, what: str) -> None:
    twice = np.flatnonzero((sorted_ids[:, 1:] == sorted_ids[:, :-1]).any(axis=1))
    if twice.size:
        row = int(rows[twice[0]])
        got = sorted_ids[twice[0]].tolist()
        raise InputError(f"{what}[row {row}]", got, "distinct ids, or invalid", "classify_sets")


def _not_in(mine: Ids, theirs: Ids) -> I32:
    """Ids [n, slot] of mine that theirs lack, ascending, then -1. Both ascend in each row."""
    result = np.full(mine.shape, -1, dtype=np.int32)
    for start in range(0, len(mine), _PIECE_ROWS):
        part = slice(start, start + _PIECE_ROWS)
        alone = ~(mine[part, :, None] == theirs[part, None, :]).any(axis=2)
        row, slot = np.nonzero(alone)
        place = (np.cumsum(alone, axis=1) - 1)[row, slot]
        result[start + row, place] = mine[part][row, slot]
    return result


def _gather(keys: F32, rows: I64, experts: I32) -> F32:
    """Keys [n, slot] of experts; NaN for ids that have none, such as shared experts."""
    known = (experts >= 0) & (experts < keys.shape[1])
    result: F32 = keys[rows[:, None], np.where(known, experts, 0)]
    return np.where(known, result, np.float32(np.nan))


def _key_gaps(keys: F32, rows: I64, dropped: I32, added: I32) -> tuple[I64, F64]:
    """Largest pair gap [n] in steps (-1 undefined) and absolute (NaN undefined)."""
    there = dropped >= 0
    # NaN sorts last, so padding and undefined keys stay at the end of both sides.
    left = np.sort(_gather(keys, rows, dropped), axis=1)
    right = np.sort(_gather(keys, rows, added), axis=1)
    equal = left == right
    defined = equal | (finite(left) & finite(right))
    with np.errstate(invalid="ignore"):
        absolute = np.abs(left.astype(np.float64) - right.astype(np.float64))
    absolute = np.where(equal, 0.0, absolute)
    steps = np.abs(ordered(left) - ordered(right))
    whole = (defined | ~there).all(axis=1)
    used = there & defined
    gap_ulp = np.where(whole, np.where(used, steps, 0).max(axis=1, initial=0), -1)
    gap_abs = np.where(whole, np.where(used, absolute, 0.0).max(axis=1, initial=0.0), np.nan)
    return gap_ulp.astype(np.int64), gap_abs


def _all_equal(keys: F32, rows: I64, dropped: I32, added: I32) -> Bools:
    """Whether all exchanged experts of a row have one key."""
    experts = np.concatenate([dropped, added], axis=1)
    values = _gather(keys, rows, experts)
    # Every row has a dropped expert, and it stands first.
    result: Bools = ((values == values[:, :1]) | (experts < 0)).all(axis=1)
    return result


def _group_gaps(group_keys: F32, rows: I64, dropped: I32, added: I32) -> I64:
    """Widest distance [n] of the keys of the groups given, -1 where undefined or shared.

    Args:
        group_keys: [row, group].
        rows: [n].
        dropped: [n, slot] group of each dropped expert, -1 for none.
        added: [n, slot] group of each added expert, -1 for none.
    """
    count = group_keys.shape[1]
    left, right = _member(dropped, count), _member(added, count)
    known = (dropped < count).all(axis=1) & (added < count).all(axis=1)
    part = left | right
    values = group_keys[rows]
    steps = ordered(values)
    highest = np.where(part, steps, np.iinfo(np.int64).min).max(axis=1)
    lowest = np.where(part, steps, np.iinfo(np.int64).max).min(axis=1)
    # Equal infinities are equal keys, so 0 apart; another distance from infinity is undefined.
    nan = (part & np.isnan(values)).any(axis=1)
    usable = ~nan & ((highest == lowest) | (finite(values) | ~part).all(axis=1))
    disjoint = known & ~(left & right).any(axis=1)
    return np.where(disjoint & usable, highest - lowest, -1)


def _member(groups_of: I32, count: int) -> Bools:
    """[n, group] whether a group occurs in the row's list."""
    result = np.zeros((len(groups_of), count), dtype=np.bool_)
    row, slot = np.nonzero((groups_of >= 0) & (groups_of < count))
    result[row, groups_of[row, slot]] = True
    return result


def boundary_counts(
    boundary_ulp: npt.NDArray[np.int64], limits: Sequence[int] = (0, 1, 2, 16, 64)
) -> dict[str, int]:
    """Return how many rows have their K-th and next key within each limit; counts add up.

    Args:
        boundary_ulp: int64 [row], the reference's; -1 where undefined.
        limits: FP32 steps.

    Returns:
        ``rows``, ``undefined``, and ``at_most_N`` for each limit, in that order.

    Example:
        >>> boundary_counts(np.array([0, 2, -1, 90]), limits=(0, 2))
        {'rows': 4, 'undefined': 1, 'at_most_0': 1, 'at_most_2': 2}
    """
    defined = boundary_ulp >= 0
    result = {"rows": len(boundary_ulp), "undefined": int(np.count_nonzero(~defined))}
    for limit in limits:
        result[f"at_most_{limit}"] = int(np.count_nonzero(defined & (boundary_ulp <= limit)))
    return result
