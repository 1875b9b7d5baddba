"""Set classes against a slow row-by-row oracle, and the properties that a partition must have."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neartie.audit.metrics.swaps import (
    SET_CLASSES,
    SetClass,
    SetDifferences,
    boundary_counts,
    classify_sets,
)
from neartie.audit.metrics.ulp import from_ordered, ordered
from neartie.banks.errors import InputError

F32 = npt.NDArray[np.float32]
INF, NAN = math.inf, math.nan


def classes(found: SetDifferences) -> list[str]:
    return [str(SET_CLASSES[code]) for code in found.set_class]


def one(a: list[int], b: list[int], keys: list[float], **rest: Any) -> SetDifferences:
    """The differences of a single row."""
    for name in ("group_keys",):
        if rest.get(name) is not None:
            rest[name] = np.array([rest[name]], np.float32)
    return classify_sets(np.array([a]), np.array([b]), np.array([keys], np.float32), **rest)


def steps(x: float, y: float) -> int:
    """Slow gap of two float32 keys: -1 undefined."""
    if x == y:
        return 0
    if not (math.isfinite(x) and math.isfinite(y)):
        return -1
    bits = []
    for value in (x, y):
        raw = int(np.float32(value).view(np.uint32))
        bits.append(-(raw & 0x7FFF_FFFF) if raw >> 31 else raw)
    return abs(bits[0] - bits[1])


def slow_class(
    a: list[int],
    b: list[int],
    keys: list[float],
    window: int,
    noise: float,
    bad: bool,
    group_keys: list[float] | None,
    groups: int,
) -> tuple[str, list[int], list[int], int]:
    """Class, dropped, added and gap of one row, by the text of the rules."""
    if bad:
        return "invalid", [], [], -1
    if a == b:
        return "identical", [], [], -1
    dropped, added = sorted(set(a) - set(b)), sorted(set(b) - set(a))
    if not dropped:
        return "reordered", [], [], -1

    def down(experts: list[int]) -> list[float]:
        values = [keys[e] for e in experts]
        return sorted((v for v in values if v == v), reverse=True) + [v for v in values if v != v]

    gaps = [steps(x, y) for x, y in zip(down(dropped), down(added), strict=True)]
    gap = -1 if -1 in gaps else max(gaps)
    group_tie = False
    if group_keys is not None and groups > 1:
        size = len(keys) // groups
        left, right = {e // size for e in dropped}, {e // size for e in added}
        values = [group_keys[g] for g in left | right]
        group_tie = not left & right and all(v == values[0] for v in values)
    if len(dropped) == 1:
        absolute = 0.0 if gap == 0 else abs(keys[dropped[0]] - keys[added[0]])
        if gap == 0:
            name = "exact_tie"
        elif group_tie:
            name = "group_tie"
        elif 0 <= gap <= window:
            name = "near_tie"
        elif gap >= 0 and absolute <= noise:
            name = "noise_swap"
        else:
            name = "far_swap"
    else:
        everyone = [keys[e] for e in dropped + added]
        if group_tie:
            name = "group_tie"
        elif all(v == everyone[0] for v in everyone):
            name = "tie_group"
        else:
            name = "multi_swap"
    return name, dropped, added, gap


POOL = [0.0, -0.0, 1.0, 1.0 + 2.0**-23, 1.0 + 2.0**-22, 1.0 - 2.0**-24, -1.0, 0.5, 1e-45, -1e-45]
KEYS = st.sampled_from([*POOL, 1.0, 1.0, 0.25, INF, -INF, NAN])


@st.composite
def blocks(draw: st.DrawFn) -> dict[str, Any]:
    """Rows of small selections whose keys often tie, with or without groups."""
    groups = draw(st.sampled_from([1, 2, 3]))
    experts = groups * draw(st.integers(2, 4))
    top_k = draw(st.integers(1, min(4, experts)))
    rows = draw(st.integers(1, 5))
    chosen = st.permutations(range(experts)).map(lambda ids: list(ids[:top_k]))
    row_keys = st.lists(KEYS, min_size=experts, max_size=experts)
    row_groups = st.lists(st.sampled_from([1.0, 2.0, -0.0, 0.0, NAN, INF]), min_size=groups,
                          max_size=groups)  # fmt: skip
    return {
        "a": [draw(chosen) for _ in range(rows)],
        "b": [draw(chosen) for _ in range(rows)],
        "keys": [draw(row_keys) for _ in range(rows)],
        "group_keys": [draw(row_groups) for _ in range(rows)] if groups > 1 else None,
        "groups": groups,
        "window": draw(st.integers(0, 3)),
        "noise": draw(st.sampled_from([0.0, 1e-6, 0.6])),
        "invalid": draw(st.lists(st.booleans(), min_size=rows, max_size=rows)),
    }


def classify(block: dict[str, Any], **changes: Any) -> SetDifferences:
    block = block | changes
    group_keys = block["group_keys"]
    return classify_sets(
        np.array(block["a"], np.int32),
        np.array(block["b"], np.int32),
        np.array(block["keys"], np.float32),
        window_ulp=block["window"],
        noise_abs=block["noise"],
        invalid=np.array(block["invalid"]),
        group_keys=None if group_keys is None else np.array(group_keys, np.float32),
        groups=block["groups"],
    )


def pad(experts: list[int], width: int) -> list[int]:
    return experts + [-1] * (width - len(experts))


@settings(max_examples=300)
@given(blocks())
def test_every_row_gets_the_class_of_the_slow_oracle(block: dict[str, Any]) -> None:
    found = classify(block)
    place = 0
    keys32 = np.array(block["keys"], np.float32).astype(np.float64).tolist()
    for row in range(len(block["a"])):
        name, dropped, added, gap = slow_class(
            block["a"][row],
            block["b"][row],
            keys32[row],
            block["window"],
            block["noise"],
            block["invalid"][row],
            None if block["group_keys"] is None else block["group_keys"][row],
            block["groups"],
        )
        assert classes(found)[row] == name
        if not dropped:
            continue
        width = len(block["a"][row])
        assert found.rows[place] == row
        assert found.dropped[place].tolist() == pad(dropped, width)
        assert found.added[place].tolist() == pad(added, width)
        assert found.n_swapped[place] == len(dropped)
        assert found.gap_ulp[place] == gap
        assert np.isnan(found.gap_abs[place]) == (gap == -1)
        place += 1
    assert place == len(found.rows)
    # A partition: each row has one class, and the counts add up.
    assert sum(found.counts().values()) == len(block["a"])


@given(blocks())
def test_exchanging_the_paths_keeps_classes_and_gaps(block: dict[str, Any]) -> None:
    there = classify(block)
    back = classify(block, a=block["b"], b=block["a"])
    assert there.set_class.tolist() == back.set_class.tolist()
    assert there.dropped.tolist() == back.added.tolist()
    assert there.added.tolist() == back.dropped.tolist()
    assert there.gap_ulp.tolist() == back.gap_ulp.tolist()
    assert there.group_gap_ulp.tolist() == back.group_gap_ulp.tolist()
    assert np.array_equal(there.gap_abs, back.gap_abs, equal_nan=True)


@given(blocks(), st.randoms())
def test_permuting_experts_permutes_them_and_keeps_classes(
    block: dict[str, Any], random: Any
) -> None:
    experts = len(block["keys"][0])
    moved = list(range(experts))
    if block["groups"] == 1:
        random.shuffle(moved)
    else:
        # Groups stay whole: only the order within each group changes.
        size = experts // block["groups"]
        for start in range(0, experts, size):
            part = moved[start : start + size]
            random.shuffle(part)
            moved[start : start + size] = part
    keys = [[0.0] * experts for _ in block["keys"]]
    for row, values in enumerate(block["keys"]):
        for expert, value in enumerate(values):
            keys[row][moved[expert]] = value
    a, b = ([[moved[e] for e in row] for row in block[side]] for side in "ab")
    first, second = classify(block), classify(block, keys=keys, a=a, b=b)
    assert first.set_class.tolist() == second.set_class.tolist()
    assert first.gap_ulp.tolist() == second.gap_ulp.tolist()
    for before, after in ((first.dropped, second.dropped), (first.added, second.added)):
        for old, new in zip(before.tolist(), after.tolist(), strict=True):
            assert sorted(moved[e] for e in old if e >= 0) == [e for e in new if e >= 0]


@given(
    st.sampled_from([1.0, -1.0, 2.0, 0.3, -0.7, 0.0, 2.0**-126, 1e-45, -3e-45, 1e30]),
    st.integers(0, 4),
    st.integers(-3, 3),
    st.booleans(),
)
def test_a_planted_gap_is_near_exactly_within_the_window(
    base: float, window: int, offset: int, reverse: bool
) -> None:
    gap = max(0, window + offset)
    low = np.float32(base)
    # Both sides of a power of two, of the smallest normal value and of zero.
    high = from_ordered(ordered(low) + gap, np.float32)
    keys = [9e30, float(high), float(low), -9e30]
    a, b = ([0, 2], [0, 1]) if reverse else ([0, 1], [0, 2])
    found = one(a, b, keys, window_ulp=window)
    expected = "exact_tie" if gap == 0 else "near_tie" if gap <= window else "far_swap"
    assert classes(found) == [expected]
    assert found.gap_ulp.tolist() == [gap]


def test_gap_across_a_binade_counts_steps_not_widths() -> None:
    below = float(np.nextafter(np.float32(1.0), np.float32(0.0)))
    above = float(np.nextafter(np.float32(1.0), np.float32(2.0)))
    found = one([0], [1], [above, below], window_ulp=2)
    assert classes(found) == ["near_tie"]
    assert found.gap_abs.tolist() == [2.0**-23 + 2.0**-24]
    assert classes(one([0], [1], [above, below], window_ulp=1)) == ["far_swap"]


def test_undefined_gaps_are_never_ties() -> None:
    wide = {"window_ulp": 2**40, "noise_abs": 1e300}
    for keys in ([NAN, NAN], [NAN, 1.0], [1.0, NAN], [INF, 1.0], [INF, -INF], [-INF, 0.0]):
        found = one([0], [1], keys, **wide)
        assert classes(found) == ["far_swap"]
        assert found.gap_ulp.tolist() == [-1]
        assert np.isnan(found.gap_abs).all()
    assert classes(one([0, 1], [2, 3], [NAN] * 4, **wide)) == ["multi_swap"]


def test_equal_infinities_and_zeros_are_equal_keys() -> None:
    for keys in ([INF, INF], [-INF, -INF], [0.0, -0.0]):
        found = one([0], [1], keys)
        assert classes(found) == ["exact_tie"]
        assert (found.gap_ulp[0], found.gap_abs[0]) == (0, 0.0)
    assert classes(one([0, 1], [2, 3], [-INF] * 4)) == ["tie_group"]


def test_noise_swap_lies_beyond_the_window() -> None:
    keys = [0.5, 0.5 + 2.0**-20]
    assert classes(one([0], [1], keys)) == ["far_swap"]
    assert classes(one([0], [1], keys, noise_abs=2.0**-20)) == ["noise_swap"]
    assert classes(one([0], [1], keys, noise_abs=2.0**-20 * (1 - 2.0**-50))) == ["far_swap"]
    assert classes(one([0], [1], keys, noise_abs=1.0, window_ulp=16)) == ["near_tie"]
    assert classes(one([0, 1], [2, 3], [0.5, 0.5, 0.6, 0.6], noise_abs=9.0)) == ["multi_swap"]


def test_one_unequal_key_makes_a_tie_group_a_multi_swap() -> None:
    equal = [1.0, 0.5, 0.5, 0.5, 0.5]
    assert classes(one([0, 1, 2], [0, 3, 4], equal)) == ["tie_group"]
    off = float(np.nextafter(np.float32(0.5), np.float32(1.0)))
    found = one([0, 1, 2], [0, 3, 4], [1.0, 0.5, 0.5, 0.5, off])
    # Each pair would be a near tie by itself; several at once are not.
    assert classes(found) == ["multi_swap"]
    assert found.gap_ulp.tolist() == [1]
    # Both pairs at distance 0, but at two levels: not one tie.
    levels = [0.5, 0.25, 0.5, 0.25]
    found = one([0, 1], [2, 3], levels)
    assert (classes(found), found.gap_ulp.tolist()) == (["multi_swap"], [0])


def test_group_ties() -> None:
    flat = [0.5] * 4
    tied = {"group_keys": [1.0, 1.0], "groups": 2}
    found = one([0, 1], [2, 3], flat, **tied)
    assert (classes(found), found.group_gap_ulp.tolist()) == (["group_tie"], [0])
    uneven = [0.7, 0.3, 0.6, 0.4]
    assert classes(one([0, 1], [2, 3], uneven, **tied)) == ["group_tie"]
    # One for one: equal keys are an exact tie, unequal ones across tied groups a group tie.
    assert classes(one([0], [2], flat, **tied)) == ["exact_tie"]
    assert classes(one([0], [2], uneven, **tied)) == ["group_tie"]
    # Within a group, or between groups that differ, group keys explain nothing.
    assert classes(one([0], [1], uneven, **tied)) == ["far_swap"]
    apart = {"group_keys": [1.0, 1.0 + 2.0**-23], "groups": 2}
    found = one([0, 1], [2, 3], uneven, **apart)
    assert (classes(found), found.group_gap_ulp.tolist()) == (["multi_swap"], [1])
    assert classes(one([0, 1], [2, 3], flat, **apart)) == ["tie_group"]
    # A swap that also exchanges an expert within its group is more than the group tie.
    mixed = one([0, 1, 4], [2, 3, 5], [0.5, 0.5, 0.4, 0.4, 0.9, 0.8], group_keys=[1, 1, 2],
                groups=3)  # fmt: skip
    assert (classes(mixed), mixed.group_gap_ulp.tolist()) == (["multi_swap"], [-1])
    undefined = one([0, 1], [2, 3], uneven, group_keys=[NAN, NAN], groups=2)
    assert (classes(undefined), undefined.group_gap_ulp.tolist()) == (["multi_swap"], [-1])
    assert classes(one([0, 1], [2, 3], uneven, group_keys=[INF, INF], groups=2)) == ["group_tie"]


def test_invalid_rows_are_set_apart_before_anything_else() -> None:
    ids_a, ids_b = np.array([[0, 0], [0, 1], [0, 1]]), np.array([[0, 1], [0, 1], [1, 0]])
    keys = np.zeros((3, 2), np.float32)
    found = classify_sets(ids_a, ids_b, keys, invalid=np.array([True, True, False]))
    assert classes(found) == ["invalid", "invalid", "reordered"]
    assert len(found.rows) == 0
    with pytest.raises(InputError, match=r"ids_a\[row 0\]=\[0, 0\], but should be distinct ids"):
        classify_sets(ids_a, ids_b, keys)


def test_ids_without_a_key_have_no_gap() -> None:
    # Shared experts stand behind the routed ones and have no key.
    found = one([0, 2], [0, 3], [0.5, 0.5])
    assert (classes(found), found.gap_ulp.tolist()) == (["far_swap"], [-1])
    shared = one([0, 2], [1, 2], [0.5, 0.5])
    assert (classes(shared), shared.gap_ulp.tolist()) == (["exact_tie"], [0])


def test_many_rows_fall_into_several_pieces() -> None:
    rows = (1 << 15) + 7
    ids_a = np.tile(np.array([[0, 1]], np.int32), (rows, 1))
    ids_b = np.tile(np.array([[2, 0]], np.int32), (rows, 1))
    found = classify_sets(ids_a, ids_b, np.zeros((rows, 3), np.float32))
    assert found.counts()[SetClass.EXACT_TIE] == rows
    assert (found.dropped == [1, -1]).all()
    assert (found.added == [2, -1]).all()


def test_no_rows_and_no_differences() -> None:
    empty = classify_sets(np.zeros((0, 2), int), np.zeros((0, 2), int), np.zeros((0, 4), "f4"))
    assert empty.set_class.shape == (0,)
    assert empty.dropped.shape == (0, 2)
    assert classes(one([2, 0], [2, 0], [1.0, NAN, 1.0])) == ["identical"]


def test_boundary_counts_add_up() -> None:
    gaps = np.array([0, 0, 1, 2, 3, 16, 17, 64, 65, -1])
    found = boundary_counts(gaps)
    assert found == {
        "rows": 10, "undefined": 1, "at_most_0": 2, "at_most_1": 3, "at_most_2": 4,
        "at_most_16": 6, "at_most_64": 8,
    }  # fmt: skip
    first, second = boundary_counts(gaps[:4]), boundary_counts(gaps[4:])
    assert {name: first[name] + second[name] for name in found} == found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids_b": np.zeros((2, 3), int)}, "ids_b.shape=(2, 3)"),
        ({"keys": np.zeros((2, 4))}, "keys=float64[2, 4], but should be float32[2, expert]"),
        ({"keys": np.zeros((3, 4), "f4")}, "keys=float32[3, 4], but should be float32[2, expert]"),
        ({"window_ulp": -1}, "window_ulp=-1, but should be at least 0 [classify_sets]"),
        ({"noise_abs": NAN}, "noise_abs=nan, but should be finite and at least 0"),
        ({"groups": 3}, "groups=3, but should be a divisor of 4 experts"),
        ({"groups": 2, "group_keys": np.zeros((2, 4), "f4")}, "group_keys.shape=(2, 4)"),
        ({"invalid": np.zeros(3, bool)}, "invalid.shape=(3,), but should be (2,)"),
    ],
)
def test_bad_input_is_named(changes: dict[str, Any], message: str) -> None:
    given_: dict[str, Any] = {
        "ids_a": np.array([[0, 1], [0, 1]]),
        "ids_b": np.array([[0, 1], [0, 2]]),
        "keys": np.zeros((2, 4), np.float32),
    }
    with pytest.raises(InputError) as told:
        classify_sets(**(given_ | changes))
    assert message in str(told.value)
