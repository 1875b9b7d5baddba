"""Texts of ``neartie bank``: what options say, and what is said of a bank that was made."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from ..banks.errors import InputError, printable
from ..banks.geometry import ScoreFunction, ScoringRule
from ..banks.row_filter import parse_ranges

_MOST_LAYERS = 100_000
_MOST_NAMES = 8


def made(directory: Path, digest: str, as_json: bool, **more: list[str]) -> None:
    """Print where a new bank is, and its digest; ``more`` is in the JSON document alone."""
    if as_json:
        print(json.dumps({"directory": str(directory), "digest": digest, **more}))
    else:
        print(f"{printable(str(directory))}: sha256 {digest}")


def print_left_out(names: Sequence[str]) -> None:
    """Say on stderr which tensors of a file are not in the bank."""
    shown = ", ".join(names[:_MOST_NAMES])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    told = f"left out {printable(shown)}{more}: no tensor of such a bank (--tensor, --key, --drop)"
    print(f"neartie: {told}", file=sys.stderr)


def names_of(text: str) -> tuple[str, ...]:
    """Return the names of a comma-separated list."""
    return tuple(part for part in text.split(",") if part)


def pair_of(text: str, option: str) -> tuple[str, str]:
    """Return both sides of NAME=VALUE.

    Raises:
        InputError: one is missing.
    """
    name, _, value = text.partition("=")
    if not name or not value:
        raise InputError(option.lstrip("-"), text, "NAME=VALUE", option)
    return name, value


def rows_of(text: str) -> int:
    """Return a number of rows per launch.

    Raises:
        InputError: not a number above 0.
    """
    if not text.isdecimal() or not 0 < len(text) < 10 or not int(text):
        raise InputError("width", text, "a whole number above 0", "--width")
    return int(text)


def numbers_of(text: str, option: str) -> frozenset[int]:
    """Return the numbers of a list such as 0-3,7.

    Raises:
        InputError: not such a list, or numbers of no layer.
    """
    ranges = parse_ranges(text, option.lstrip("-"))
    if ranges and max(high for _, high in ranges) >= _MOST_LAYERS:
        raise InputError(option.lstrip("-"), text, f"below {_MOST_LAYERS:,}", option)
    return frozenset(n for low, high in ranges for n in range(low, high + 1))


def scoring_rule(rule: ScoringRule, function: str | None, scale: float | None) -> ScoringRule:
    """Return the rule with what the options change.

    Raises:
        InputError: an unknown function, or a scale that is not finite and above 0.
    """
    known: tuple[ScoreFunction, ...] = get_args(ScoreFunction)
    for name in known:
        if name == function:
            rule = replace(rule, function=name)
    if function is not None and rule.function != function:
        raise InputError("scoring", function, f"one of {', '.join(known)}", "--scoring")
    return rule if scale is None else replace(rule, scale=scale)
