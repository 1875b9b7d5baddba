"""Options in a path's name: ``general:reduce=ring_bf16,select=hf`` and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from ..banks.errors import InputError

_WHOLE: Final = re.compile(r"[0-9]{1,9}")


class Option(NamedTuple):
    """One option of a path.

    Attributes:
        default: its value where it is left out; empty where the select decides.
        choices: the accepted values; None accepts any name.
        lowest: for whole numbers, the least accepted value (``choices`` is then None).
        words: what it changes.
    """

    default: str
    choices: tuple[str, ...] | None
    words: str
    lowest: int | None = None


def parse_spec(spec: str) -> tuple[str, dict[str, str]]:
    """The name and options of ``name[:key=value,...]``.

    Raises:
        InputError: the spec has another form, or an option twice.
    """
    name, colon, rest = spec.partition(":")
    options: dict[str, str] = {}
    if not name or (colon and not rest):
        raise InputError("path", repr(spec), "name[:key=value,...]", "path name")
    for part in rest.split(",") if colon else ():
        key, equals, value = part.partition("=")
        if not key or not equals or not value:
            raise InputError("option", repr(part), "key=value", spec)
        if key in options:
            raise InputError("option", repr(part), f"given once ({key}={options[key]})", spec)
        options[key] = value
    return name, options


def resolve(name: str, options: Mapping[str, str], table: Mapping[str, Option]) -> dict[str, str]:
    """Every option of the table with its given or default value.

    Raises:
        InputError: an option that the path does not have, or a value that it does not accept.
    """
    for key, value in options.items():
        if key not in table:
            raise InputError("option", key, f"one of {', '.join(table)}", f"path {name}")
        option = table[key]
        if option.lowest is not None:
            if not (_WHOLE.fullmatch(value) and int(value) >= option.lowest):
                expected = f"a whole number, at least {option.lowest}"
                if value.isdigit() and len(value) > 9:
                    expected += ", of at most 9 digits"
                raise InputError(key, value, expected, f"path {name}")
        elif option.choices is not None and value not in option.choices:
            raise InputError(key, value, f"one of {', '.join(option.choices)}", f"path {name}")
    values = {key: options.get(key, option.default) for key, option in table.items()}
    return {
        key: str(int(value)) if table[key].lowest is not None else value
        for key, value in values.items()
    }


def canonical(name: str, values: Mapping[str, str], table: Mapping[str, Option]) -> str:
    """The path's one name: options that differ from their default, sorted."""
    changed = [
        f"{key}={value}" for key, value in sorted(values.items()) if value != table[key].default
    ]
    return f"{name}:{','.join(changed)}" if changed else name
