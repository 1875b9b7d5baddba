"""Which parts are handed out: each document once, whoever is slow, and no call too large."""

from dataclasses import dataclass
from pathlib import Path
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from neartie.audit.engine.calls import (
    CALL_SECONDS,
    LATE_FACTOR,
    LATE_SECONDS,
    MOST_PARTS,
    Call,
    Handout,
)
from neartie.audit.engine.contract import Part


def parts_of(*rows: int) -> list[Part]:
    return [Part(number * 3, count, Path(f"{number}")) for number, count in enumerate(rows)]


def numbers(parts: tuple[Part, ...] | list[Part]) -> list[int]:
    return [part.number for part in parts]


ROWS = st.lists(st.integers(1, 50), max_size=100)


@given(ROWS, st.integers(1, 9), st.integers(0, 1 << 32))
def test_each_part_is_finished_once_whatever_workers_do(
    rows: list[int], slots: int, seed: int
) -> None:
    """Workers bring calls back in any order, half done, are lost, and one hangs."""
    chance = Random(seed)
    parts = parts_of(*rows)
    handout, out, now = Handout(parts), list[Call](), 0.0
    got, hung = list[int](), set[int]()
    while handout:
        now += 1000.0
        if not handout.waits:
            for call in out:
                handout.hand_out_again(call, now)
        while handout.waits and (len(out) < slots or all(id(c) in hung for c in out)):
            call = handout.take(slots)
            assert 1 <= len(call.parts) <= MOST_PARTS
            call.began = now
            out.append(call)
        free = [call for call in out if id(call) not in hung]
        call = chance.choice(free or out)
        # One worker may hang, where others go on; it comes back where nobody else is left.
        if not hung and len(free) > 1 and chance.random() < 0.5:
            hung.add(id(call))
            continue
        out.remove(call)
        if chance.random() < 0.1:
            assert handout.lost(call) >= 1
            continue
        finished = chance.randint(1, len(call.parts))
        first = handout.returned(call, finished, 0.1)
        assert set(numbers(first)) <= set(numbers(call.parts[:finished]))
        got += numbers(first)
        out = [call for call in out if not handout.is_over(call)]
    assert sorted(got) == numbers(parts)
    assert not handout.waits


@given(ROWS, st.integers(1, 9))
def test_calls_are_in_order_and_shrink_to_single_parts(rows: list[int], slots: int) -> None:
    parts = parts_of(*rows)
    handout, calls = Handout(parts), list[Call]()
    while handout.waits:
        left = len(parts) - sum(len(call.parts) for call in calls)
        calls.append(handout.take(slots))
        assert len(calls[-1].parts) <= -(-left // slots)
    assert [part for call in calls for part in call.parts] == parts
    sizes = [len(call.parts) for call in calls]
    assert sizes == sorted(sizes, reverse=True)
    # While the last one runs, each other worker has a single part.
    if len(parts) >= slots > 1:
        assert sizes[1 - slots :] == [1] * (slots - 1)


def test_much_work_is_few_calls_and_none_is_too_large() -> None:
    handout, sizes = Handout(parts_of(*[16384] * 196)), list[int]()
    while handout.waits:
        sizes.append(len(handout.take(4).parts))
    assert sizes[0] == max(sizes) == MOST_PARTS < 196 / 4
    assert len(sizes) < 30


def test_what_a_worker_left_is_handed_out_next() -> None:
    handout = Handout(parts_of(1, 1, 1, 1, 1, 1))
    call = handout.take(2)
    assert numbers(call.parts) == [0, 3, 6]
    assert numbers(handout.returned(call, 1, 0.1)) == [0]
    assert numbers(handout.take(2).parts) == [3, 6, 9]
    assert len(handout) == 5


def test_a_lost_call_comes_again_part_by_part_so_that_the_one_at_fault_is_named() -> None:
    handout = Handout(parts_of(1, 1, 1, 1, 1, 1))
    assert handout.lost(handout.take(2)) == 1
    single = handout.take(2)
    assert numbers(single.parts) == [0]
    assert handout.lost(single) == 2
    assert numbers(handout.returned(handout.take(2), 1, 0.1)) == [0]
    assert [numbers(handout.take(2).parts) for _ in range(4)] == [[3], [6], [9, 12], [15]]


@dataclass(frozen=True)
class Running:
    """A call of two parts that began at 100 s; two others of the same rows took a second."""

    handout: Handout
    call: Call


def running(seconds: float) -> Running:
    handout = Handout(parts_of(10, 10, 10, 10))
    done, late = handout.take(2), handout.take(1)
    handout.returned(done, 2, seconds)
    late.began = 100.0
    return Running(handout, late)


def test_a_late_call_is_handed_out_again_once_and_the_first_document_counts() -> None:
    made = running(0.02)
    made.handout.hand_out_again(made.call, 100.0 + LATE_SECONDS)
    assert not made.handout.waits
    made.handout.hand_out_again(made.call, 100.1 + LATE_SECONDS)
    made.handout.hand_out_again(made.call, 200.0)
    again = made.handout.take(1)
    assert again.parts == made.call.parts[::-1]
    again.began = 101.0
    made.handout.hand_out_again(again, 500.0)
    assert not made.handout.waits
    assert numbers(made.handout.returned(made.call, 1, 9.0)) == [6]
    assert not made.handout.is_over(again)
    assert numbers(made.handout.returned(again, 1, 0.01)) == [9]
    assert made.handout.is_over(made.call)
    assert not made.handout


def test_a_part_waits_again_only_when_both_of_its_calls_are_lost() -> None:
    made = running(0.02)
    made.handout.hand_out_again(made.call, 200.0)
    again = made.handout.take(1)
    made.handout.lost(made.call)
    assert not made.handout.waits
    made.handout.lost(again)
    assert [numbers(made.handout.take(1).parts) for _ in range(2)] == [[9], [6]]
    assert not made.handout.waits


def test_how_late_follows_from_what_other_rows_took() -> None:
    """A second a row: the call ends with the part in which its time is over."""
    made = running(20.0)
    limit = LATE_FACTOR * (CALL_SECONDS + 10.0)
    made.handout.hand_out_again(made.call, 100.0 + limit - 0.1)
    assert not made.handout.waits
    made.handout.hand_out_again(made.call, 100.0 + limit + 0.1)
    assert made.handout.waits


def test_no_call_is_late_before_one_has_come_back_or_before_it_began() -> None:
    handout = Handout(parts_of(10, 10))
    call = handout.take(1)
    call.began = 0.0
    handout.hand_out_again(call, 1e6)
    waiting = running(0.02)
    waiting.call.began = None
    waiting.handout.hand_out_again(waiting.call, 1e6)
    assert not handout.waits
    assert not waiting.handout.waits
