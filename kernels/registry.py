"""Paths by name: built-in ones, adapters, registered ones, entry points, and ``module:factory``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import reduce
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, NamedTuple

from ..banks.errors import InputError, printable
from .adapters.table import ADAPTERS
from .contract import OUTPUTS, Declared, Path, why_unavailable
from .device_front import (
    DEVICE_GENERAL_OPTIONS,
    DEVICE_ROUTE_OPTIONS,
    device_general,
    device_route,
)
from .options import Option, parse_spec
from .paths import GENERAL_OPTIONS, ROUTE_OPTIONS, general, route
from .recorded import RECORDED_OPTIONS, recorded
from .reduce import SCHEDULES

Factory = Callable[[Mapping[str, str]], Path]

ENTRY_POINT_GROUP: Final = "neartie.paths"

_ATTRIBUTES: Final = ("name", "declared", "batches_launches", "outputs")
_METHODS: Final = ("unavailable", "check", "run")
_NAME: Final = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_IMPORTED: Final = re.compile(rf"({_NAME}):({_NAME})((?::.*)?)", re.DOTALL)
_ISLANDS: Final = re.compile(r"two_level:0*[1-9][0-9]{0,8}")


class _Entry(NamedTuple):
    factory: Factory
    origin: str
    options: Mapping[str, Option]


class PathInfo(NamedTuple):
    """One line of ``neartie paths``.

    Attributes:
        name: what ``make_path`` takes.
        origin: ``built in``, ``adapter``, ``registered`` or the distribution that brings it.
        summary: one sentence.
        options: the path's options, as far as its factory tells them (attribute ``options``).
        unavailable: why it cannot run here with default options, or None.
        declared: the arithmetic it declares with default options; None where it did not load.
        device: ``cuda`` where this is what ``make_path(name, "cuda")`` makes.
    """

    name: str
    origin: str
    summary: str
    options: Mapping[str, Option]
    unavailable: str | None
    declared: Declared | None
    device: str = "cpu"


_entries: dict[str, _Entry] = {
    "general": _Entry(general, "built in", GENERAL_OPTIONS),
    "route": _Entry(route, "built in", ROUTE_OPTIONS),
    "recorded": _Entry(recorded, "built in", RECORDED_OPTIONS),
    **{
        name: _Entry(adapter.factory, "adapter", adapter.options)
        for name, adapter in ADAPTERS.items()
    },
}


_on_cuda: Final[dict[str, _Entry]] = {
    "general": _Entry(device_general, "built in", DEVICE_GENERAL_OPTIONS),
    "route": _Entry(device_route, "built in", DEVICE_ROUTE_OPTIONS),
}
"""What ``make_path`` takes for a name on device cuda, where that is another path."""


def register(name: str, factory: Factory) -> None:
    """Make ``factory`` (options -> path) available as ``name`` in this process.

    A factory may carry ``options``, a mapping of names to ``options.Option``, for listings; its
    docstring's first line is the summary.

    Raises:
        InputError: a name that is taken, or one that a path spec cannot hold, or no factory.
    """
    given: Any = name
    if (
        not isinstance(given, str)
        or not name
        or not name.isprintable()
        or any(character in name for character in ":,= ")
    ):
        raise InputError("path name", repr(name), "without ':', ',', '=' and spaces", "register")
    if not callable(factory):
        raise InputError("factory", repr(factory), "callable: options -> path", f"register {name}")
    if name in _entries:
        raise InputError("path name", name, "a new name", f"register ({_entries[name].origin})")
    _entries[name] = _Entry(factory, "registered", _options(factory))


def _options(factory: object) -> Mapping[str, Option]:
    """What a factory tells of its options; what is no ``Option`` is left out of listings."""
    told = getattr(factory, "options", {})
    if not isinstance(told, Mapping):
        return {}
    return {str(name): option for name, option in told.items() if isinstance(option, Option)}


def _points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def path_names() -> list[str]:
    """Names that ``make_path`` knows, loaded or not."""
    return sorted({*_entries, *_points()})


def _reason(error: BaseException) -> str:
    return printable(f"{type(error).__name__}: {error}")


def _load(name: str, point: EntryPoint) -> _Entry:
    """Import another package's factory.

    Raises:
        InputError: it cannot be imported; the message says why.
    """
    try:
        factory: Any = point.load()
    # Whatever a third party's import raises must not take the other paths down.
    except (Exception, SystemExit) as error:
        raise InputError("path", name, "an entry point that loads", _reason(error)) from error
    distribution = point.dist.name if point.dist is not None else point.value
    return _Entry(factory, distribution, _options(factory))


def _split(spec: str) -> tuple[str, dict[str, str]]:
    """Name and options of a spec; the name of what is imported is ``module:factory``.

    Raises:
        InputError: the spec has another form, or an option twice.
    """
    match = _IMPORTED.fullmatch(spec)
    if match is None or _is_known(match[1]):
        return parse_spec(spec)
    # The options alone, behind any name that such a spec may have.
    return f"{match[1]}:{match[2]}", parse_spec(f"{match[1]}{match[3]}")[1]


def can_be_made_elsewhere(spec: str) -> bool:
    """Whether another process makes the path of this spec: False where it is registered here only.

    Raises:
        InputError: the spec has another form, or an option twice.
    """
    entry = _entries.get(_split(spec)[0])
    return entry is None or entry.origin != "registered"


def names_a_path(spec: str) -> bool:
    """Whether a spec has the name of a known path, or is ``module:factory``; nothing is loaded."""
    match = _IMPORTED.fullmatch(spec)
    return _is_known(spec.partition(":")[0]) or match is not None


def _is_known(name: str) -> bool:
    return name in _entries or name in _points()


def _import(name: str) -> _Entry:
    """Import ``module:factory``.

    Raises:
        InputError: there is no such module or factory; the message says why.
    """
    module, _, attribute = name.partition(":")
    try:
        factory: Any = reduce(getattr, attribute.split("."), import_module(module))
    # Whatever a third party's import raises is told in one line.
    except (Exception, SystemExit) as error:
        expected = "module:factory that can be imported (installed, or on PYTHONPATH)"
        raise InputError("path", name, expected, _reason(error)) from error
    if not callable(factory):
        raise InputError("path", name, "a factory: options -> path", type(factory).__name__)
    made: Any = factory
    return _Entry(made, "imported", _options(factory))


def spec_of(path: Path, given: str | None) -> str | None:
    """Return what ``make_path`` takes to make a path again, or None where nothing is known to.

    Its own name, which is canonical, where a path of that name is known here; else the spec that it
    was made by.

    Args:
        path: the path.
        given: the spec that it was made by; None for an object.
    """
    return path.name if _is_known(path.name.partition(":")[0]) else given


def as_path(given: str | Path, where: str, device: str = "cpu") -> Path:
    """Return the path that a spec makes, or the object itself where it is one.

    Raises:
        InputError: as ``make_path`` and ``check_path``.
    """
    return make_path(given, device) if isinstance(given, str) else check_path(given, where)


def check_path(path: object, where: str) -> Path:
    """Return ``path`` where it is one: all that an audit reads of it before it runs is checked.

    Args:
        path: an object that may be a path.
        where: what it is called in messages, such as ``candidate``.

    Raises:
        InputError: an attribute that is missing, cannot be read, or holds what it must not.
    """
    if isinstance(path, type):
        expected = "an object with the Path protocol, not a class"
        raise InputError("path", path.__name__, expected, where)
    kind = type(path).__name__
    found: dict[str, Any] = {}
    for attribute in (*_ATTRIBUTES, *_METHODS):
        try:
            found[attribute] = getattr(path, attribute)
        except AttributeError:
            expected = f"an object with the Path protocol ({attribute} is missing)"
            raise InputError("path", kind, expected, where) from None
        # A property may run anything.
        except (Exception, SystemExit) as error:
            expected = f"an object whose {attribute} can be read"
            raise InputError("path", kind, expected, f"{where}: {_reason(error)}") from error
    for method in _METHODS:
        if not callable(found[method]):
            raise InputError(method, repr(found[method]), "a method", f"path {where}")
    _check_attributes(found, where)
    # The attributes are all there: that is the protocol.
    checked: Any = path
    return checked  # type: ignore[no-any-return]


def _check_attributes(found: Mapping[str, Any], where: str) -> None:
    name, declared, outputs = found["name"], found["declared"], found["outputs"]
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        expected = "a non-empty text of printable characters"
        raise InputError("name", repr(name), expected, f"path {where}")
    if not isinstance(declared, Declared):
        expected = "an instance of neartie.kernels.contract.Declared"
        raise InputError("declared", repr(declared), expected, f"path {name}")
    if not isinstance(found["batches_launches"], bool):
        got = repr(found["batches_launches"])
        raise InputError("batches_launches", got, "True or False", f"path {name}")
    if not isinstance(outputs, tuple | list | set | frozenset):
        raise InputError("outputs", repr(outputs), "a tuple of names", f"path {name}")
    for output in outputs:
        if output not in OUTPUTS:
            expected = f"some of {', '.join(OUTPUTS)}"
            raise InputError("outputs", repr(output), expected, f"path {name}")
    for output in ("ids", "weights"):
        if output not in outputs:
            raise InputError("outputs", repr(outputs), f"with {output!r} in it", f"path {name}")
    schedule: Any = declared.latent_schedule
    if schedule is not None and not (
        isinstance(schedule, str)
        and (schedule == "gather" or schedule in SCHEDULES or _ISLANDS.fullmatch(schedule))
    ):
        expected = f"None, gather or one of {', '.join(SCHEDULES)} (two_level also as two_level:4)"
        raise InputError("declared.latent_schedule", repr(schedule), expected, f"path {name}")


def make_path(spec: str, device: str = "cpu") -> Path:
    """The path of a spec such as ``general:reduce=ring_bf16,select=hf``.

    Args:
        spec: name and options; the name may be ``module:factory``, which is imported:
            ``mypkg.router:MyRoute`` or ``mypkg.router:MyRoute:turns=2``.
        device: ``cpu``, or ``cuda``: ``general`` and ``route`` then run on the GPU, with options of
            their own. Every other path declares where it runs, and is the same for both.

    Raises:
        InputError: an unknown path, option or value (the message lists what exists), an entry
            point or a module that does not load, or a factory that raises or returns no path.

    Example:
        >>> make_path("route:row_blocks=1,fused_rows=1").name
        'route:fused_rows=1'
    """
    name, options = _split(spec)
    points = _points()
    if device == "cuda" and name in _on_cuda:
        entry = _on_cuda[name]
    elif name in _entries:
        entry = _entries[name]
    elif name in points:
        entry = _load(name, points[name])
    elif ":" in name:
        entry = _import(name)
    else:
        expected = f"one of {', '.join(path_names())}, or module:factory"
        raise InputError("path", name, expected, "path name")
    try:
        path = entry.factory(options)
    except InputError:
        raise
    # A third party's factory may raise anything; exit is no verdict either.
    except (Exception, SystemExit) as error:
        raise InputError("path", name, "a factory that makes a path", _reason(error)) from error
    return check_path(path, name)


def _info(name: str, entry: _Entry) -> PathInfo:
    doc = str(entry.factory.__doc__ or "").strip().splitlines()
    summary = printable(doc[0]) if doc else ""
    unavailable: str | None
    declared: Declared | None
    try:
        path = check_path(entry.factory({}), name)
        reason, declared = why_unavailable(path), path.declared
        unavailable = None if reason is None else printable(reason)
    # A listing shows a broken path with its reason, and the others.
    except (Exception, SystemExit) as error:
        unavailable, declared = _reason(error), None
    return PathInfo(name, entry.origin, summary, entry.options, unavailable, declared)


def list_paths(device: str = "cpu") -> list[PathInfo]:
    """Every known path with what it declares, and why it cannot run here where it cannot.

    For device ``cuda``, the paths that ``make_path`` makes otherwise than for ``cpu``.
    """
    if device == "cuda":
        return [_info(name, entry)._replace(device="cuda") for name, entry in _on_cuda.items()]
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
