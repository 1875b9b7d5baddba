"""The exhaustive scan against a slow loop over scalars, with planted differences."""

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neartie.banks.errors import InputError
from neartie.kernels.contract import F32
from neartie.kernels.exhaustive.block import PIECE, count_nan_scores, count_scores
from neartie.kernels.exhaustive.float_line import (
    MINUS_INFINITY,
    PLACES,
    PLUS_INFINITY,
    PLUS_ZERO,
    RANGES,
    Stretch,
    bits_at,
    place_of,
    stretches,
    value_at,
)
from neartie.kernels.exhaustive.record import (
    BINS,
    EMPTY_FORM,
    EMPTY_PAIR,
    NOWHERE,
    FormCounts,
    FormSlot,
    PairCounts,
    PairSlot,
    RingCounts,
    ScanRecord,
)
from neartie.kernels.exhaustive.scan import (
    scan_block,
    scan_blocks,
    score_at,
    special_scores,
)
from neartie.kernels.scores import FORMS, score

ELEMENTWISE = [name for name, form in FORMS.items() if form.elementwise]
EDGES = [
    MINUS_INFINITY + 1,
    *(place_of(sign * value) for sign in (1.0, -1.0) for value in (16.0, 88.0, 17.0, 1.25, 89.0)),
    PLUS_ZERO,
    PLUS_INFINITY,
]
places = st.one_of(
    st.integers(0, PLACES - 1),
    st.sampled_from(EDGES).flatmap(lambda edge: st.integers(edge - 300, edge + 300)),
    st.floats(-105, 105, width=32).map(place_of),
)


def steps_of(value: Any) -> int:
    bits = int(np.float32(value).view(np.uint32))
    return bits if bits < 1 << 31 else (1 << 31) - bits


def bits_up(exact: Fraction) -> int:
    """FP64 bits of a magnitude, rounded up."""
    nearest = np.float64(float(exact))
    return int(nearest.view(np.int64)) + int(Fraction(float(nearest)) < exact)


def bin_of(distance: int) -> int:
    return distance if distance <= 64 else 65 + (distance - 1).bit_length() - 7


def slow_pair(a: F32, b: F32, place: int) -> tuple[PairCounts, list[int]]:
    names = [slot.name.lower() for slot in PairSlot]
    result: dict[str, int] = dict(zip(names, EMPTY_PAIR, strict=True))
    bins = [0] * BINS
    for i, (one, other) in enumerate(zip(a, b, strict=True)):
        result["inputs"] += 1
        if not (np.isfinite(one) and np.isfinite(other)):
            result["undefined"] += 1
            if result["undefined_at"] == NOWHERE:
                result["undefined_at"] = place + i
            continue
        distance = abs(steps_of(one) - steps_of(other))
        bins[bin_of(distance)] += 1
        result["differ"] += distance > 0
        exact = abs(Fraction(float(one)) - Fraction(float(other)))
        for name, value in (("max_ulp", distance), ("max_abs", bits_up(exact))):
            key = "max_abs_bits" if name == "max_abs" else name
            if value > result[key]:
                result[key], result[f"{name}_at"] = value, place + i
    return PairCounts(**result), bins


def slow_form(scores: F32, place: int, before: int, inputs: int) -> FormCounts:
    own = [(place + i, value) for i, value in enumerate(scores[before : before + inputs])]
    finite = [(at, value) for at, value in own if np.isfinite(value)]
    ones = [at for at, value in finite if value == 1.0]
    zeros = [at for at, value in finite if value == 0.0]
    tiny = [at for at, value in finite if 0.0 < abs(float(value)) < 2.0**-126]
    drops = [
        (place - before + i + 1, low, high)
        for i, (low, high) in enumerate(pairwise(scores))
        if high < low
    ]
    sizes = [
        (at, bits_up(Fraction(float(low)) - Fraction(float(high))))
        for at, low, high in drops
        if np.isfinite(low) and np.isfinite(high)
    ]
    largest = max((bits for _, bits in sizes), default=0)
    return FormCounts(
        nonfinite=inputs - len(finite),
        lowest=min((steps_of(value) for _, value in finite), default=PLACES),
        highest=max((steps_of(value) for _, value in finite), default=-PLACES),
        ones=len(ones),
        first_one=min(ones, default=NOWHERE),
        zeros=len(zeros),
        last_zero=max(zeros, default=NOWHERE),
        subnormals=len(tiny),
        first_subnormal=min(tiny, default=NOWHERE),
        last_subnormal=max(tiny, default=NOWHERE),
        drops=len(drops),
        first_drop=drops[0][0] if drops else NOWHERE,
        drop_bits=largest,
        drop_at=next((at for at, bits in sizes if bits == largest), NOWHERE),
    )


def slow(scores: F32, place: int, before: int, inputs: int) -> RingCounts:
    own = slice(before, before + inputs)
    pair, bins = slow_pair(scores[0, own], scores[1, own], place)
    first, second = (slow_form(row, place, before, inputs) for row in scores)
    return RingCounts(pair, (first, second), tuple(bins))


def fast(scores: F32, place: int, before: int, inputs: int) -> RingCounts:
    pair = np.array(EMPTY_PAIR, np.int64)
    forms = np.array([EMPTY_FORM, EMPTY_FORM], np.int64)
    bins = np.zeros(BINS, np.int64)
    count_scores(scores.copy(), place, before, inputs, pair, forms, bins)
    return RingCounts.of(pair, forms, bins)


def inputs_at(start: int, stop: int) -> F32:
    return np.array([bits_at(p) for p in range(start, stop)], np.uint32).view(np.float32)


def test_slots_are_named_as_the_records_fields() -> None:
    for slots, record in ((PairSlot, PairCounts), (FormSlot, FormCounts)):
        assert [s.name.lower() for s in slots] == list(record.__dataclass_fields__)


def _block_around(start: int, size: int) -> Stretch | None:
    for part in stretches():
        if part.start <= start < part.stop:
            return Stretch(part.ring, start, min(start + size, part.stop))
    return None


@given(st.sampled_from(ELEMENTWISE), st.sampled_from(ELEMENTWISE), places, st.integers(1, 200))
def test_a_block_equals_the_slow_loop(form_a: str, form_b: str, start: int, size: int) -> None:
    block = _block_around(start, size)
    if block is None:
        return
    before = int(block.start >= PLUS_ZERO)
    after = int(not before and block.stop != PLUS_ZERO)
    x = inputs_at(block.start - before, block.stop + after)
    scores = np.stack([score(form, x[None])[0] for form in (form_a, form_b)])
    expected = slow(scores, block.start, before, block.stop - block.start)
    record = scan_block(form_a, form_b, block)
    assert record.rings[block.ring] == expected
    assert record.done == ((block.start, block.stop),)


def test_a_block_longer_than_a_piece_equals_the_slow_loop() -> None:
    start = place_of(17.0) - PIECE
    x = inputs_at(start - 1, start + 2 * PIECE + 5)
    scores = np.stack([score(form, x[None])[0] for form in ("exp", "tanh")])
    block = Stretch("abs88", start, start + 2 * PIECE + 5)
    assert scan_block("exp", "tanh", block).rings["abs88"] == slow(scores, start, 1, 2 * PIECE + 5)


awkward = st.one_of(
    st.floats(width=32),
    st.sampled_from([0.0, -0.0, 1.0, 1e-40, -1e-45, np.inf, -np.inf, np.nan, 2.0**-30, 3.4e38]),
)


@given(st.lists(st.tuples(awkward, awkward), min_size=2, max_size=40), st.integers(0, 1))
def test_any_scores_are_counted_as_by_the_slow_loop(rows: Any, before: int) -> None:
    """Drops, NaNs, infinities and distances that FP64 cannot hold."""
    scores = np.array(rows, np.float32).T.copy()
    inputs = scores.shape[1] - before
    assert fast(scores, 1000, before, inputs) == slow(scores, 1000, before, inputs)


def test_planted_differences_are_found() -> None:
    scores = np.tile(np.linspace(0.25, 0.75, 3000, dtype=np.float32), (2, 1))
    clean = fast(scores, 500, 0, 3000)
    assert clean.pair.differ == clean.forms[0].drops == 0
    assert clean.histogram[0] == 3000
    scores[1, 1234] = np.nextafter(scores[1, 1234], np.float32(1))
    scores[0, 2000] = np.float32(0.25)
    found = fast(scores, 500, 0, 3000)
    assert (found.pair.differ, found.histogram[1]) == (2, 1)
    assert found.pair.max_ulp_at == found.pair.max_abs_at == 2500
    assert [form.drops for form in found.forms] == [1, 0]
    assert found.forms[0].first_drop == found.forms[0].drop_at == 2500
    scores[1, 7] = np.nan
    assert fast(scores, 500, 0, 3000).pair.undefined_at == 507


cuts = st.lists(st.integers(1, 999), unique=True, max_size=6)


@given(st.sampled_from(EDGES[1:-1]), cuts, st.randoms(use_true_random=False))
def test_merging_in_any_order_gives_the_same_record(edge: int, at: list[int], random: Any) -> None:
    block = _block_around(edge - 500 if edge > PLUS_ZERO else edge, 1000)
    assert block is not None
    whole = scan_block("exp", "tanh", block)
    size = block.stop - block.start
    ends = [0, *sorted(cut for cut in at if cut < size), size]
    parts = [
        scan_block("exp", "tanh", Stretch(block.ring, block.start + low, block.start + high))
        for low, high in pairwise(ends)
    ]
    random.shuffle(parts)
    merged = ScanRecord.empty()
    for part in parts:
        merged = merged.merge(part)
    assert merged == whole
    assert ScanRecord.from_dict(merged.as_dict()) == whole


def test_nothing_is_counted_twice() -> None:
    one = scan_block("exp", "tanh", Stretch("abs16", PLUS_ZERO, PLUS_ZERO + 10))
    other = scan_block("exp", "tanh", Stretch("abs16", PLUS_ZERO + 9, PLUS_ZERO + 12))
    with pytest.raises(InputError, match="not evaluated before"):
        one.merge(other)


def test_a_range_holds_those_within() -> None:
    record = ScanRecord.empty()
    for start in (place_of(1.0), place_of(20.0), place_of(100.0)):
        block = _block_around(start, 10)
        assert block is not None
        record = record.merge(scan_block("exp", "tanh", block))
    assert [record.range(name).pair.inputs for name in RANGES] == [10, 20, 30]


def test_threads_change_nothing_and_a_closed_scan_stops() -> None:
    todo = [
        Stretch("abs16", place_of(1.0) + 5000 * n, place_of(1.0) + 5000 * (n + 1)) for n in range(9)
    ]
    merged = []
    for threads in (1, 2, 20):
        record = ScanRecord.empty()
        for part in scan_blocks("exp", "sigmoid", todo, threads=threads):
            record = record.merge(part)
        merged.append(record)
    assert merged[0] == merged[1] == merged[2]
    assert merged[0].done == ((todo[0].start, todo[-1].stop),)
    scan = scan_blocks("exp", "sigmoid", todo, threads=2)
    next(scan)
    scan.close()


def test_forms_that_cannot_be_certified() -> None:
    for form in ("softmax", "relu"):
        with pytest.raises(InputError, match=f"form={form}, but should be one of exp, tanh"):
            list(scan_blocks("exp", form, []))
    with pytest.raises(InputError, match="threads=0"):
        list(scan_blocks("exp", "tanh", [], threads=0))


@pytest.mark.parametrize("form", ["exp", "tanh", "sigmoid"])
def test_special_inputs(form: str) -> None:
    found = special_scores(form)
    assert found.nan_scores == found.nan_inputs == 2 * (2**23 - 1)
    assert found.first_number_at == NOWHERE
    assert (found.minus_infinity, found.plus_infinity) == (0, int(np.float32(1).view(np.uint32)))


def test_inputs_that_give_a_number_are_found() -> None:
    found, first = count_nan_scores(FORMS["exp"].code, PLUS_INFINITY - 5, PLUS_INFINITY + 5001)
    assert (found, first) == (5000, PLUS_INFINITY - 5)


@settings(max_examples=20)
@given(places)
def test_score_at_is_the_forms_score(place: int) -> None:
    expected = score("tanh", np.array([[value_at(place)]], np.float32))[0, 0]
    assert np.array_equal(score_at("tanh", place), expected, equal_nan=True)
