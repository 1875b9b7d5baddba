"""Paths by name: the built-in ones, registered ones, and entry points of other packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, NamedTuple

from ..banks.errors import InputError
from .contract import Declared, Path
from .options import Option, parse_spec
from .paths import GENERAL_OPTIONS, ROUTE_OPTIONS, general, route
from .recorded import RECORDED_OPTIONS, recorded

Factory = Callable[[Mapping[str, str]], Path]

ENTRY_POINT_GROUP: Final = "neartie.paths"


class _Entry(NamedTuple):
    factory: Factory
    origin: str
    options: Mapping[str, Option]


class PathInfo(NamedTuple):
    """One line of ``neartie paths``.

    Attributes:
        name: what ``make_path`` takes.
        origin: ``built in``, ``registered`` or the distribution that brings it.
        summary: one sentence.
        options: the path's options, as far as its factory tells them (attribute ``options``).
        unavailable: why it cannot run here with default options, or None.
        declared: the arithmetic it declares with default options; None where it did not load.
    """

    name: str
    origin: str
    summary: str
    options: Mapping[str, Option]
    unavailable: str | None
    declared: Declared | None


_entries: dict[str, _Entry] = {
    "general": _Entry(general, "built in", GENERAL_OPTIONS),
    "route": _Entry(route, "built in", ROUTE_OPTIONS),
    "recorded": _Entry(recorded, "built in", RECORDED_OPTIONS),
}


def register(name: str, factory: Factory) -> None:
    """Make ``factory`` (options -> path) available as ``name`` in this process.

    A factory may carry ``options``, a mapping of names to ``options.Option``, for listings; its
    docstring's first line is the summary.

    Raises:
        InputError: a name that is taken, or one that a path spec cannot hold.
    """
    if not name or any(character in name for character in ":,= "):
        raise InputError("path name", repr(name), "without ':', ',', '=' and spaces", "register")
    if name in _entries:
        raise InputError("path name", name, "a new name", f"register ({_entries[name].origin})")
    _entries[name] = _Entry(factory, "registered", getattr(factory, "options", {}))


def _points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def path_names() -> list[str]:
    """Names that ``make_path`` knows, loaded or not."""
    return sorted({*_entries, *_points()})


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _load(name: str, point: EntryPoint) -> _Entry:
    """Import another package's factory.

    Raises:
        InputError: it cannot be imported; the message says why.
    """
    try:
        factory: Any = point.load()
    # Whatever a third party's import raises must not take the other paths down.
    except Exception as error:
        raise InputError("path", name, "an entry point that loads", _reason(error)) from error
    distribution = point.dist.name if point.dist is not None else point.value
    return _Entry(factory, distribution, getattr(factory, "options", {}))


def make_path(spec: str) -> Path:
    """The path of a spec such as ``general:reduce=ring_bf16,select=hf``.

    Raises:
        InputError: an unknown path, option or value (the message lists what exists), or an entry
            point that does not load or does not return a path.

    Example:
        >>> make_path("route:row_blocks=1,fused_rows=1").name
        'route:fused_rows=1'
    """
    name, options = parse_spec(spec)
    points = _points()
    if name in _entries:
        entry = _entries[name]
    elif name in points:
        entry = _load(name, points[name])
    else:
        raise InputError("path", name, f"one of {', '.join(path_names())}", "path name")
    path: Any = entry.factory(options)
    if not isinstance(path, Path):
        raise InputError("path", type(path).__name__, "an object with the Path protocol", name)
    return path


def _info(name: str, entry: _Entry) -> PathInfo:
    doc = (entry.factory.__doc__ or "").strip().splitlines()
    summary = doc[0] if doc else ""
    try:
        path = entry.factory({})
        unavailable, declared = path.unavailable(), path.declared
    # A listing shows a broken path with its reason, and the others.
    except Exception as error:
        unavailable, declared = _reason(error), None
    return PathInfo(name, entry.origin, summary, entry.options, unavailable, declared)


def list_paths() -> list[PathInfo]:
    """Every known path with what it declares, and why it cannot run here where it cannot."""
    found = [_info(name, entry) for name, entry in _entries.items()]
    for name, point in _points().items():
        if name in _entries:
            reason: str = f"the name is taken by a path that is {_entries[name].origin}"
        else:
            try:
                found.append(_info(name, _load(name, point)))
                continue
            except InputError as error:
                reason = error.where
        found.append(PathInfo(name, point.value, "", {}, reason, None))
    return found
