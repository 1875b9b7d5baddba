"""The errors that a user's input can cause; the command line turns each into exit status 2."""

from __future__ import annotations

import re
from typing import Any


def printable(text: str) -> str:
    r"""Return text on one line: what a terminal would not show as itself becomes an escape.

    Example:
        >>> printable("a\nb")
        'a\\nb'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def first_sentence(text: str) -> str:
    """Return the first sentence of another library's error, on one line.

    Such errors go on with advice, or with places in the library's own sources.

    Example:
        >>> first_sentence("No header found. Please report it (at a.cc:1).")
        'No header found'
    """
    return re.split(r"[.!?]\s", " ".join(text.split()), maxsplit=1)[0].rstrip(".")


class InputError(ValueError):
    """Bad input, told in one line: ``what=got, but should be expected [where]``.

    Example:
        >>> str(InputError("width", 21, "1..20", "--rows"))
        'width=21, but should be 1..20 [--rows]'
    """

    def __init__(self, what: str, got: object, expected: object, where: str) -> None:
        super().__init__(printable(f"{what}={got}, but should be {expected} [{where}]"))
        self.what = what
        self.got = got
        self.expected = expected
        self.where = where

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by the parts: the ranks of a group raise one rank's error."""
        return type(self), (self.what, str(self.got), str(self.expected), self.where)


def check_name(what: str, name: str, where: str) -> None:
    """Refuse a name that a terminal would not show as itself, or that shows nothing.

    A line break in a name would let it forge lines of a report, and an escape rules the terminal.

    Raises:
        InputError: no printable text.
    """
    if not name.strip() or not name.isprintable():
        raise InputError(what, repr(name), "printable text", where)


class BankError(InputError):
    """A bank's files or fields do not hold what ``bank.json`` says."""


class EnvelopeError(InputError):
    """A path was asked for a width, rank count or geometry that it does not accept."""
