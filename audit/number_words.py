"""Numbers in words: probabilities in percent, counts with their noun."""

from __future__ import annotations

from decimal import Decimal


def percent(probability: float) -> str:
    """Return a probability in percent; no digit is rounded away, so that 0.9995 is not 100%.

    Example:
        >>> percent(0.95), percent(0.999)
        ('95%', '99.9%')
    """
    # repr has the fewest digits that are this number, 7% and not 7.000000000000001%.
    return f"{(Decimal(repr(float(probability))) * 100).normalize():f}%"


def number_of(number: int, noun: str) -> str:
    """Return a count with its noun, in the plural where it is one.

    Example:
        >>> number_of(1, "rank"), number_of(3200, "row")
        ('1 rank', '3,200 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
