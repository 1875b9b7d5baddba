"""SIGINT and SIGTERM end a command with status 130, at whatever moment they come.

Python runs a handler between two steps of what the main thread is at, and what the handler raises
goes on from there. In four places that ends badly, and each has its answer here:

- While the command line itself is imported nothing is written, so the process leaves at once.
- An import that is torn may become another error, and a callback of llvmlite's that raises crashes
  LLVM or loses the interrupt. While a frame of these is on the stack, the handler only sets a
  timer, at which it looks again.
- Cleaning up after an interrupt must not be torn by the next one, which waits for it.
- A destructor, a callback and a bare ``except`` swallow an interrupt. So it comes again until the
  command is over, or says with ``heard`` that it has stopped what it was at.

What cannot be covered: the time before ``Interrupts.begin`` (Python's own start, about 20 ms, in
which Python's handler or the system's ends the process), and a call of C that does not return (the
handler runs after it; the longest of ours takes one chunk of rows).

Nothing is installed by importing this module, and it imports nothing heavy.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

INTERRUPTED: Final = 130
"""Exit status of a command that was interrupted."""
PATIENCE_S: Final = 10.0
"""So long an interrupt waits for an import, a compiler or a clean-up that does not end."""
_LOOK_S: Final = 0.02
_AGAIN_S: Final = 0.5
_Handler = Callable[[int, FrameType | None], None] | signal.Handlers
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
# Packages by the module of a frame. LLVM calls back into llvmlite, which must not raise at all.
_NEVER: Final = frozenset({"llvmlite"})
_LATER: Final = frozenset({"importlib", "_frozen_importlib", "_frozen_importlib_external", "numba"})


class Interrupts:
    """The handlers of one command. ``begin`` before the imports, then ``attend``, then ``end``.

    A signal that is ignored when the command starts, as a shell does for ``&``, stays ignored.
    """

    def __init__(self) -> None:
        self.unheard = False
        """Whether one came that nobody has answered: what the command ends with follows from it."""
        self._since: float | None = None
        """When the one that waits came, by the monotonic clock, in seconds."""
        self._over = False
        self._hook = sys.unraisablehook

    def begin(self) -> None:
        """Let an interrupt end the process at once, in one line: nothing is written yet."""
        # The last of all at exit, being the first that is registered.
        atexit.register(self._ignore)
        self._handle(self._leave)

    def attend(self, *numbers: signal.Signals) -> None:
        """Let an interrupt raise ``KeyboardInterrupt`` where that does no harm, and not be lost.

        Args:
            numbers: SIGINT or SIGTERM, where the other keeps the handler that it has.
        """
        global _attending
        _attending = self
        sys.unraisablehook = self._unraisable
        signal.signal(signal.SIGALRM, self._look)
        self._handle(self._come, numbers or _SIGNALS)

    def end(self) -> None:
        """The status is known: an interrupt of what Python does at exit ends the process."""
        self._over = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._handle(self._leave_silently)

    def heard(self) -> None:
        """Take an interrupt as answered: it does not come again."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.unheard, self._since = False, None

    def _handle(self, handler: _Handler, numbers: Sequence[signal.Signals] = _SIGNALS) -> None:
        for number in numbers:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handler)

    def _ignore(self) -> None:
        self._handle(signal.SIG_IGN)

    def _leave(self, number: int, frame: FrameType | None) -> NoReturn:
        # Not by print: the signal may have come within one.
        os.write(2, b"neartie: interrupted; nothing was written\n")
        os._exit(INTERRUPTED)

    def _leave_silently(self, number: int, frame: FrameType | None) -> NoReturn:
        os._exit(INTERRUPTED)

    def _come(self, number: int, frame: FrameType | None) -> None:
        self.unheard = True
        if self._since is None:
            self._since = time.monotonic()
        self._look(number, frame)

    def _look(self, number: int, frame: FrameType | None) -> None:
        """Raise, or set the timer to look again: the handler of the timer too."""
        if self._over or not self.unheard:
            # The timer had run out as it was stopped.
            return
        if self._since is None:
            if _cleaning_up():
                signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
                return
            # The one that was raised was swallowed.
            self._since = time.monotonic()
        patient = time.monotonic() - self._since < PATIENCE_S
        packages = _packages(frame)
        # A shield blocks the signal for this thread alone: another thread may take it and wake us.
        if _shields or packages & _NEVER or (patient and (packages & _LATER or _cleaning_up())):
            signal.setitimer(signal.ITIMER_REAL, _LOOK_S)
            return
        self._since = None
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        raise KeyboardInterrupt

    def _unraisable(self, told: sys.UnraisableHookArgs) -> None:
        """One that was swallowed is not told: it comes again."""
        if not (self.unheard and isinstance(told.exc_value, KeyboardInterrupt)):
            self._hook(told)


_attending: Interrupts | None = None
_shields = 0
"""How many ``shielded`` blocks are open."""


def heard() -> None:
    """Say that a command has stopped for an interrupt and now ends in its own way."""
    if _attending is not None:
        _attending.heard()


@contextmanager
def shielded() -> Iterator[None]:
    """Start processes to which an interrupt of the terminal's whole group never comes.

    They inherit the blocked signal; one for this process waits until the block has ended, so that a
    process that is half started is not left behind.
    """
    global _shields
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    _shields += 1
    try:
        yield
    finally:
        _shields -= 1
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _packages(frame: FrameType | None) -> set[str]:
    """The top-level packages of a frame and of all that called it, through calls of C too."""
    found = set()
    while frame is not None:
        found.add(str(frame.f_globals.get("__name__")).partition(".")[0])
        frame = frame.f_back
    return found


def _cleaning_up() -> bool:
    """Whether the main thread is in an ``except``, ``finally`` or ``with`` of an interrupt."""
    error, seen = sys.exc_info()[1], set[int]()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__context__
    return False
