"""Text of a record as a terminal shows it."""

from __future__ import annotations

from rich.markup import escape

from ...banks.errors import printable


def shown(text: str) -> str:
    """Return text on one line for rich, which reads no markup in it and sends no escape of it.

    A record may be a file that somebody else made.
    """
    return escape(printable(text))
