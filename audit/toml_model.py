"""Read a TOML file into a pydantic model; whatever is wrong with it is one clear error."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ..banks.errors import InputError
from .small_file import read_small

Model = TypeVar("Model", bound=BaseModel)

_WORDS: Final[Mapping[str, str]] = {
    "too_short": "a list of at least {min_length}",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
}
"""What a file should hold, by pydantic's type of error whose message names types of Python."""


def read_toml(
    path: str | Path, what: str, parse_float: Callable[[str], Any] = float
) -> dict[str, Any]:
    """Return the content of a TOML file.

    Args:
        path: the file.
        what: how a message calls it, such as ``policy``.
        parse_float: makes a value of a number's text; ``Decimal`` keeps the digits as written.

    Raises:
        InputError: the file cannot be read, or is no TOML.
    """
    where = str(path)
    try:
        text = read_small(Path(path), what, "a readable file")
        return tomllib.loads(text, parse_float=parse_float)
    except InputError:
        raise
    # TOML and UTF-8 errors are ValueErrors, and so is a number of too many digits; a Decimal raises
    # an ArithmeticError for an exponent that it cannot hold.
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise InputError(what, where, "a TOML file", str(error)) from error


def validated(model: type[Model], data: dict[str, Any], where: str) -> Model:
    """Return the data as the model.

    Raises:
        InputError: the first key or value that is refused, by its dotted name.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"] if part != "[key]") or "file"
        got = first.get("input")
        if first["type"] == "missing":
            got = "nothing"
        elif isinstance(got, dict):
            got = "a table"
        raise InputError(field, got, _expected(model, first), where) from error


def _expected(model: type[BaseModel], error: ErrorDetails) -> str:
    if error["type"] == "extra_forbidden":
        known = _fields_at(model, error["loc"][:-1])
        return f"a known key: {', '.join(known)}" if known else "absent (unknown key)"
    if error["type"] == "missing":
        return "present"
    if error["type"] in _WORDS:
        return _WORDS[error["type"]].format(**error.get("ctx", {}))
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return message[:1].lower() + message[1:]


def _fields_at(model: type[BaseModel], place: tuple[int | str, ...]) -> list[str]:
    """The keys that the model at a place takes; none where the place is in no model."""
    found: Any = model
    for part in place:
        fields = getattr(found, "model_fields", {})
        if part in fields:
            found = _inner_model(fields[part].annotation)
    return list(getattr(found, "model_fields", {}))


def _inner_model(annotation: Any) -> Any:
    """The model in ``dict[str, Model]``, ``tuple[Model, ...]`` or ``Model | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (_inner_model(part) for part in getattr(annotation, "__args__", ()))
    return next((one for one in inner if one is not None), None)
