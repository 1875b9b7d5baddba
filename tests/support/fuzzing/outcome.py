"""What a reader did with one input."""

from __future__ import annotations

import re
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

from neartie.banks.errors import InputError

Kind = Literal["accepted", "refused", "traceback", "too long", "wrong pass"]
FAULTS: Final = ("traceback", "too long", "wrong pass")
SECONDS: Final = 30
"""A reader that needs longer for an input of some kilobytes has met a bomb."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """``detail`` is the kind of message of a refusal, or where an error came from."""

    kind: Kind
    detail: str = ""

    @property
    def faulty(self) -> bool:
        """Whether no input may end like this."""
        return self.kind in FAULTS


class WrongPass(Exception):
    """A checker accepted what is not what it was."""


class _TooLong(BaseException):
    """Nothing that a reader may catch."""


_NUMBER: Final = re.compile(r"\d+")


def refusal_kind(error: InputError) -> str:
    """The field that a refusal is about, without the places that vary."""
    name = re.split(r"[\[\s]", str(error.what), maxsplit=1)[0]
    return _NUMBER.sub("N", ".".join(name.split(".")[:2]))[:40] or "nothing"


def read(reader: Callable[[], Any]) -> Outcome:
    """Call a reader: a value is accepted, an InputError refused, all else is a fault."""
    try:
        with _within(SECONDS):
            told = reader()
    except InputError as error:
        if "\n" in str(error):
            return Outcome("traceback", f"a message of several lines: {refusal_kind(error)}")
        return Outcome("refused", refusal_kind(error))
    except WrongPass as error:
        return Outcome("wrong pass", str(error))
    except _TooLong:
        return Outcome("too long", f"more than {SECONDS} s")
    # Whatever else comes out of a reader is what is looked for.
    except Exception as error:
        return Outcome("traceback", _place(error))
    return Outcome("accepted", "" if told is None else str(told))


def _place(error: Exception) -> str:
    """Type of an error and the last line of the package that it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/neartie/" in f.filename or "/banks/" in f.filename]
    last = (ours or frames)[-1]
    where = "/".join(last.filename.split("/")[-2:])
    return f"{type(error).__name__} at {where}:{last.lineno} {last.name}"


@contextmanager
def _within(seconds: int) -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        raise _TooLong

    # Time of the processor: a busy machine is no bomb.
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
