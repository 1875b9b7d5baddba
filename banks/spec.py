"""Generator specs such as ``near_tie:gap=1,slot=16,rows=60k``, parsed strictly."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from .bank import Bank
from .errors import InputError

_SCALES: Final = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}

MOST_ROWS: Final = 10**12
"""Rows of a generator at most."""

_MOST_REAL: Final = 1e37
"""Normal values reach some six standard deviations; beyond it, they would be infinite."""

_INTEGER: Final = re.compile(r"(-?\d{1,18}(?:\.\d{1,9})?(?:e(?:\d|1[0-2]))?)([kMG]?)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a generator.

    ``parse`` returns the value of a text and raises ValueError with what is expected.
    """

    name: str
    default: str
    parse: Callable[[str], Any]
    help: str


@dataclass(frozen=True, slots=True)
class Generator:
    """A named source of generated banks."""

    name: str
    summary: str
    options: tuple[Option, ...]
    build: Callable[[Spec], Bank]


@dataclass(frozen=True, slots=True)
class Spec:
    """A parsed spec: ``text`` is canonical (options in order, defaults left out)."""

    text: str
    values: Mapping[str, Any]


def integer(text: str) -> int:
    """Return a whole number; ``60k``, ``3.2M`` and ``1e9`` are allowed."""
    match = _INTEGER.fullmatch(text)
    value = Decimal(match[1]) * _SCALES[match[2]] if match else Decimal("0.5")
    if value != int(value):
        raise ValueError("a whole number such as 960, 60k or 3.2M")
    return int(value)


def at_least(least: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from ``least`` on."""

    def parse(text: str) -> int:
        value = integer(text)
        if value < least:
            raise ValueError(f"at least {least}")
        return value

    return parse


def between(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers in ``least``..``most``."""

    def parse(text: str) -> int:
        value = at_least(least)(text)
        if value > most:
            raise ValueError(f"at most {most:,}")
        return value

    return parse


row_count: Final = between(1, MOST_ROWS)
"""Parser of a generator's number of rows."""


def real(text: str) -> float:
    """Return a number that float32 holds, and ten times it too."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError("a number") from None
    if not abs(value) < float("inf"):
        raise ValueError("a finite number")
    if abs(value) > _MOST_REAL:
        raise ValueError(f"a number within +-{_MOST_REAL:g}, of which float32 holds ten times")
    return value


def positive(text: str) -> float:
    """Return a finite number above 0."""
    value = real(text)
    if value <= 0:
        raise ValueError("a number above 0")
    return value


def choice(*names: str) -> Callable[[str], str]:
    """Return a parser of one of several words."""

    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"one of {', '.join(names)}")
        return text

    return parse


def parse_spec(text: str, generators: Mapping[str, Generator]) -> tuple[Generator, Spec]:
    """Return the generator that a spec names and its option values.

    Raises:
        InputError: an unknown generator or option, an option given twice, or a bad value; the
            message lists what exists.
    """
    name, _, rest = text.partition(":")
    generator = generators.get(name)
    if generator is None:
        raise InputError("generator", name, f"one of {', '.join(generators)}", text)
    options = {option.name: option for option in generator.options}
    given: dict[str, str] = {}
    for part in rest.split(",") if rest else ():
        key, separator, value = part.partition("=")
        if key not in options:
            raise InputError("option", key or part, f"one of {', '.join(options)}", text)
        if not separator or not value:
            raise InputError(f"option {key}", value or "nothing", f"{key}=VALUE", text)
        if key in given:
            raise InputError(f"option {key}", "given twice", "given once", text)
        given[key] = value
    values = {}
    for key, option in options.items():
        raw = given.get(key, option.default)
        try:
            values[key] = option.parse(raw)
        except ValueError as error:
            raise InputError(f"option {key}", raw, error, text) from None
    defaults = {key: option.parse(option.default) for key, option in options.items()}
    shown = [f"{key}={given[key]}" for key in options if values[key] != defaults[key]]
    return generator, Spec(":".join([name, ",".join(shown)] if shown else [name]), values)
