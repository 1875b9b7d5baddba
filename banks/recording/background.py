"""A writing thread behind a queue that holds at most so many bytes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from ..errors import InputError

Work = Callable[[], None]


class RecordingError(RuntimeError):
    """The writing thread failed (a full disk, say): the recording is lost, and says why."""


class BackgroundWriter:
    """Runs work in one thread, in order; who hands over more than the limit waits.

    Bytes count from ``reserve``, before they are copied, until the work on them is done.

    Attributes:
        limit: bytes that may be held at once.
        peak: most bytes held at once so far.
        waited: seconds that ``reserve`` waited for room.
    """

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        self.peak = 0
        self.waited = 0.0
        self._held = 0
        self._queue: deque[tuple[int, Work]] = deque()
        self._change = threading.Condition()
        self._ending = False
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
            self.peak = max(self.peak, self._held)
        self.waited += time.perf_counter() - started

    def put(self, size: int, work: Work) -> None:
        """Hand over work on ``size`` reserved bytes.

        Raises:
            RecordingError: the thread failed.
        """
        with self._change:
            self._raise()
            self._queue.append((size, work))
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
            self._queue.clear()
        self._end()

    def _end(self) -> None:
        with self._change:
            self._ending = True
            self._change.notify_all()
        self._thread.join()

    def _raise(self) -> None:
        if self._error is not None:
            raise RecordingError(f"nothing was recorded: {self._error}") from self._error

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._queue or self._ending)
                if not self._queue:
                    return
                size, work = self._queue.popleft()
            try:
                work()
            # Whatever it is, the recording thread of the model must hear of it.
            except BaseException as error:
                with self._change:
                    self._error = error
                    self._queue.clear()
                    self._change.notify_all()
                return
            del work
            with self._change:
                self._held -= size
                self._change.notify_all()
