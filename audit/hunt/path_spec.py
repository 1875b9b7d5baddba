"""A path by spec, by an object, or by the module and class that make it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ...banks.errors import InputError
from ...kernels.contract import Path
from ...kernels.options import parse_spec
from ...kernels.registry import check_path, make_path, path_names


def path_of(given: str | Path, role: str) -> Path:
    """Return a path.

    Args:
        given: an object; a spec such as ``route:select=standalone``; or ``module:Class`` with
            options after a second colon, ``package.module:Class:key=value``. The class, or any
            other callable, takes the options as a mapping, as a registered factory does.
        role: ``baseline`` or ``candidate``, for messages.

    Raises:
        InputError: nothing of that name, a module that does not import, or what is no path.
    """
    if not isinstance(given, str):
        return check_path(given, role)
    name, colon, rest = given.partition(":")
    attribute, more, _ = rest.partition(":")
    if name in path_names() or not colon or not attribute.isidentifier():
        return make_path(given)
    _, options = parse_spec(rest) if more else ("", {})
    factory = _imported(name, attribute, role)
    try:
        path = factory(options)
    except InputError:
        raise
    # Somebody's own code may raise anything; that is no verdict.
    except (Exception, SystemExit) as error:
        reason = f"{role}: {type(error).__name__}: {error}"
        raise InputError("path", given, "a factory (options -> path)", reason) from error
    return check_path(path, role)


def _imported(module: str, attribute: str, role: str) -> Callable[[Any], Any]:
    where = f"{role}: {module}:{attribute}"
    try:
        found: Any = getattr(import_module(module), attribute)
    # Whatever the module's own code raises while it is imported.
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        expected = f"one of {', '.join(path_names())}, or a module that imports ({reason})"
        raise InputError("path", module, expected, where) from error
    if not callable(found):
        raise InputError(attribute, repr(found), "a class or a factory", where)
    callable_: Callable[[Any], Any] = found
    return callable_
