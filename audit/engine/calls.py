"""Which parts a worker is handed in one call, and which ones a second time; nothing runs here.

A call is large while much is left and a single part at the end (guided self-scheduling,
Polychronopoulos and Kuck 1987): few calls, and no worker ends long after the others. A worker may
bring a call back half done, and the rest is handed out again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from .contract import Part

CALL_SECONDS: Final = 0.4
"""After so long a worker begins no other part of its call. Handing a call over costs some
milliseconds, so a hundredth of it."""
MOST_PARTS: Final = 32
"""Of one call: it bounds the documents that come back at once."""
LATE_FACTOR: Final = 3.0
"""A call is late after so many times of what its rows took others on average. Rows of one bank
take much the same, and another process on the same core makes a call twice as long."""
LATE_SECONDS: Final = 1.0
"""And not before: what is to be won must be worth a second run."""


@dataclass
class Call:
    """Parts that one worker has.

    Attributes:
        parts: in the order in which it runs them.
        began: when a worker was free for it, in seconds of a monotonic clock; None before.
    """

    parts: tuple[Part, ...]
    began: float | None = None


class Handout:
    """Parts that wait, and parts of which no document came yet.

    A part is handed out once, and a second time where its call is late: documents are the same
    bits on every worker, so the first one counts.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._waiting = deque(parts)
        self._holders = {part.number: 1 for part in parts}
        """Of each part without a document: the calls that have it, and one more where it waits."""
        self._lost = Counter[int]()
        self._seconds = 0.0
        self._rows = 0

    def __len__(self) -> int:
        """Parts without a document."""
        return len(self._holders)

    @property
    def waits(self) -> bool:
        """Whether there is a part to be handed out."""
        return bool(self._waiting)

    def take(self, calls: int) -> Call:
        """Return the next call; one whose worker was lost comes again part by part.

        Args:
            calls: how many are out at a time; one gets its share of what waits, rounded up.
        """
        count = min(MOST_PARTS, -(-len(self._waiting) // calls))
        known = [part for part in islice(self._waiting, count) if part.number in self._lost]
        if known:
            self._waiting.remove(known[0])
            return Call((known[0],))
        return Call(tuple(self._waiting.popleft() for _ in range(count)))

    def returned(self, call: Call, finished: int, seconds: float) -> list[Part]:
        """Take a call back; return the parts whose documents are the first to come.

        Args:
            call: what ``take`` gave.
            finished: parts of it that have a document, from its first on.
            seconds: what they took the worker.
        """
        self._seconds += seconds
        self._rows += sum(part.rows for part in call.parts[:finished])
        first = [part for part in call.parts[:finished] if part.number in self._holders]
        for part in first:
            del self._holders[part.number]
        self._put_back(call.parts[finished:])
        return first

    def lost(self, call: Call) -> int:
        """Take back a call whose worker was lost; return how often one of its parts was."""
        self._lost.update(part.number for part in call.parts)
        self._put_back(call.parts)
        return max(self._lost[part.number] for part in call.parts)

    def _put_back(self, parts: Sequence[Part]) -> None:
        for part in reversed(parts):
            if self._holders.get(part.number) == 1:
                self._waiting.appendleft(part)
            elif part.number in self._holders:
                self._holders[part.number] -= 1

    def is_over(self, call: Call) -> bool:
        """Whether all parts of a call have documents, of others."""
        return not any(part.number in self._holders for part in call.parts)

    def hand_out_again(self, call: Call, now: float) -> None:
        """Let a late call's parts wait once more, those that nobody else has.

        The last ones first: the first one may be what takes so long, here as there.
        """
        if not self._is_late(call, now):
            return
        for part in reversed(call.parts):
            if self._holders.get(part.number) == 1:
                self._holders[part.number] = 2
                self._waiting.append(part)

    def _is_late(self, call: Call, now: float) -> bool:
        if call.began is None or not self._rows:
            return False
        each = self._seconds / self._rows
        rows = [part.rows for part in call.parts]
        # A call ends early, with the part in which its time was over.
        expected = min(sum(rows) * each, CALL_SECONDS + max(rows) * each)
        return now - call.began > max(LATE_SECONDS, LATE_FACTOR * expected)
