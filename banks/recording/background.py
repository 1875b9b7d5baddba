"""A writing thread behind a queue that holds at most so many bytes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final

from ..errors import InputError

Work = Callable[[], None]

_BURSTS: Final = 8
"""Work begins when this part of the limit waits."""

_PATIENCE: Final = 0.05
"""Seconds after which it begins anyway."""


class RecordingError(RuntimeError):
    """The writing thread failed (a full disk, say): the recording is lost, and says why."""


class BackgroundWriter:
    """Runs work in one thread, in order; who hands over more than the limit waits.

    Bytes count from ``reserve``, before they are copied, until the work on them is done. What they
    were copied into may be kept for the next copy, within the same limit: fresh memory costs the
    system ten times the copy itself.

    Attributes:
        limit: bytes that may be held at once, kept ones included.
        peak: most bytes held at once so far.
        waited: seconds that ``reserve`` waited for room.
    """

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        self.peak = 0
        self.waited = 0.0
        self._held = 0
        self._waiting = 0
        self._kept: dict[Hashable, list[tuple[int, Any]]] = {}
        self._kept_bytes = 0
        self._queue: deque[tuple[int, Work]] = deque()
        self._change = threading.Condition()
        self._ending = self._abandoned = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="neartie-record", daemon=True)
        self._thread.start()

    def reserve(self, size: int) -> None:
        """Wait until ``size`` more bytes fit, and count them as held.

        Raises:
            InputError: they never fit.
            RecordingError: the thread failed.
        """
        if size > self.limit:
            expected = f"at least the {size} of one row"
            raise InputError("memory", self.limit, expected, "record")
        started = time.perf_counter()
        with self._change:
            self._change.wait_for(lambda: self._error or self._held + size <= self.limit)
            self._raise()
            self._held += size
            while self._held + self._kept_bytes > self.limit:
                self._forget_one()
            self.peak = max(self.peak, self._held + self._kept_bytes)
        self.waited += time.perf_counter() - started

    def _forget_one(self) -> None:
        kind = next(iter(self._kept))
        self._take_kept(kind)

    def _take_kept(self, kind: Hashable) -> Any:
        found = self._kept[kind]
        size, thing = found.pop()
        self._kept_bytes -= size
        if not found:
            del self._kept[kind]
        return thing

    def kept(self, kind: Hashable) -> Any:
        """Return something of that kind that was kept, or None."""
        with self._change:
            return self._take_kept(kind) if kind in self._kept else None

    def keep(self, kind: Hashable, size: int, thing: Any) -> None:
        """Keep ``thing`` of ``size`` bytes for ``kept``, where there is room; called by work.

        Its bytes are still reserved at that time: there is room where they fit beside those.
        """
        with self._change:
            if self._held + self._kept_bytes <= self.limit:
                self._kept.setdefault(kind, []).append((size, thing))
                self._kept_bytes += size

    def put(self, size: int, work: Work) -> None:
        """Hand over work on ``size`` reserved bytes.

        Raises:
            RecordingError: the thread failed.
        """
        with self._change:
            self._raise()
            self._queue.append((size, work))
            self._waiting += size
            # In bursts: two threads that take turns at every call hold each other up.
            if self._due():
                self._change.notify_all()

    def close(self) -> None:
        """Wait until all work is done and end the thread.

        Raises:
            RecordingError: the thread failed.
        """
        self._end()
        self._raise()

    def abandon(self) -> None:
        """End the thread without the work that it has not begun."""
        with self._change:
            self._abandoned = True
        self._end()

    def _end(self) -> None:
        with self._change:
            self._ending = True
            self._change.notify_all()
        self._thread.join()

    def _raise(self) -> None:
        if self._error is not None:
            raise RecordingError(f"nothing was recorded: {self._error}") from self._error

    def _due(self) -> bool:
        return self._ending or self._waiting >= self.limit // _BURSTS

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(self._due, _PATIENCE)
                works, last = list(self._queue), self._ending
                self._queue.clear()
                self._waiting = 0
            for place, (size, work) in enumerate(works):
                if self._abandoned:
                    return
                try:
                    work()
                # Whatever it is, the recording thread of the model must hear of it.
                except BaseException as error:
                    with self._change:
                        self._error = error
                        self._change.notify_all()
                    return
                # It holds the copies.
                works[place] = (0, _nothing)
                with self._change:
                    self._held -= size
                    self._change.notify_all()
            if last:
                return


def _nothing() -> None:
    """Work that is done."""
