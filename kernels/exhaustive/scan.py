"""Two elementwise score forms on every FP32 bit pattern, in blocks that finish in any order."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...banks.errors import InputError
from ..scores import FORMS, score
from .block import count_block, count_nan_scores
from .float_line import MINUS_INFINITY, PLACES, PLUS_INFINITY, Stretch, bits_at, stretches
from .record import BINS, EMPTY_FORM, EMPTY_PAIR, NOWHERE, RingCounts, ScanRecord

BLOCK_PLACES: Final = 1 << 24
"""Places of one block: 0.1 s of work, 256 blocks in all."""

FINITE_PLACES: Final = PLUS_INFINITY - MINUS_INFINITY - 1


def check_form(form: str) -> None:
    """Refuse a form that cannot be certified.

    Raises:
        InputError: an unknown form, or one whose scores depend on the other logits of the row.
    """
    known = [name for name, entry in FORMS.items() if entry.elementwise]
    if form not in known:
        raise InputError("form", form, f"one of {', '.join(known)}", "certify")


def blocks(places: int = BLOCK_PLACES) -> list[Stretch]:
    """Return all finite places in order of value, cut at range ends, at zero and at size.

    Args:
        places: largest size of a block.
    """
    result = []
    for ring, start, stop in sorted(stretches(), key=lambda part: part.start):
        for first in range(start, stop, places):
            result.append(Stretch(ring, first, min(first + places, stop)))
    return result


def scan_block(form_a: str, form_b: str, block: Stretch) -> ScanRecord:
    """Return the record of one block.

    Args:
        form_a: an elementwise form of ``scores.FORMS``.
        form_b: another.
        block: places of one ring and one sign.
    """
    pair = np.array(EMPTY_PAIR, np.int64)
    forms = np.array([EMPTY_FORM, EMPTY_FORM], np.int64)
    bins = np.zeros(BINS, np.int64)
    codes = (FORMS[form_a].code, FORMS[form_b].code)
    count_block(codes, block.start, block.stop, pair, forms, bins)
    rings = ScanRecord.empty().rings
    rings[block.ring] = RingCounts.of(pair, forms, bins)
    return ScanRecord(rings, ((block.start, block.stop),))


def scan_blocks(
    form_a: str,
    form_b: str,
    todo: list[Stretch],
    *,
    threads: int = 2,
) -> Generator[ScanRecord, None, None]:
    """Yield the record of each block as it is finished; numba releases the interpreter's lock.

    Closing the generator, or an exception such as KeyboardInterrupt, waits for the blocks at work
    and starts no other.

    Args:
        form_a: an elementwise form of ``scores.FORMS``.
        form_b: another.
        todo: blocks, as ``blocks`` cuts them.
        threads: blocks at work at once.

    Raises:
        InputError: a form that cannot be certified, or no thread.
    """
    check_form(form_a)
    check_form(form_b)
    if threads < 1:
        raise InputError("threads", threads, "at least 1", "certify")
    waiting = iter(todo)
    running: set[Future[ScanRecord]] = set()
    with ThreadPoolExecutor(threads) as pool:
        for block in waiting:
            running.add(pool.submit(scan_block, form_a, form_b, block))
            if len(running) >= threads:
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        yield from (future.result() for future in running)


@dataclass(frozen=True, slots=True)
class SpecialScores:
    """What one form makes of the inputs that are not finite.

    Attributes:
        minus_infinity: bits of its score of -inf.
        plus_infinity: bits of its score of +inf.
        nan_inputs: NaN bit patterns, all evaluated.
        nan_scores: how many of them give NaN.
        first_number_at: place of the first NaN that gives a number.
    """

    minus_infinity: int
    plus_infinity: int
    nan_inputs: int
    nan_scores: int
    first_number_at: int


def special_scores(form: str) -> SpecialScores:
    """Return a form's scores of both infinities and of every NaN.

    Raises:
        InputError: a form that cannot be certified.

    Example:
        >>> found = special_scores("exp")
        >>> found.nan_scores == found.nan_inputs == 2**24 - 2
        True
    """
    check_form(form)
    ends = score(form, np.array([[-np.inf, np.inf]], np.float32))[0].view(np.uint32)
    nan_scores, first_number_at = 0, NOWHERE
    intervals = ((0, MINUS_INFINITY), (PLUS_INFINITY + 1, PLACES))
    for start, stop in intervals:
        found, first = count_nan_scores(FORMS[form].code, start, stop)
        nan_scores += found
        if first_number_at == NOWHERE:
            first_number_at = first
    total = sum(stop - start for start, stop in intervals)
    return SpecialScores(int(ends[0]), int(ends[1]), total, nan_scores, first_number_at)


def score_at(form: str, place: int) -> np.float32:
    """Return the score of the input at one place.

    Raises:
        InputError: an unknown form.
    """
    bits = np.array([[bits_at(place)]], np.uint32)
    result: np.float32 = score(form, bits.view(np.float32))[0, 0]
    return result
