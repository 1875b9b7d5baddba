"""Words for numbers of things."""

from __future__ import annotations


def number_of(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural but for 1.

    Example:
        >>> number_of(1, "row"), number_of(1200, "row")
        ('1 row', '1,200 rows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
