"""Compare two policies: which limits of the new one accept what the old one refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .limits import Limits
from .model import Policy, RequiredCoverage


@dataclass(frozen=True, slots=True)
class Loosened:
    """A field by its dotted name, with a new value that accepts more than the old one."""

    field: str
    old: Any
    new: Any


Looser = Callable[[Any, Any], bool]


def _higher(old: Any, new: Any) -> bool:
    return bool(new > old)


def _lower(old: Any, new: Any) -> bool:
    return bool(new < old)


def _on(old: Any, new: Any) -> bool:
    return bool(new and not old)


def _off(old: Any, new: Any) -> bool:
    return bool(old and not new)


def _added(old: Any, new: Any) -> bool:
    return bool(set(new) - set(old))


def _removed(old: Any, new: Any) -> bool:
    """Something required is no longer; an empty list asks for whatever the audit was given."""
    return bool(set(old) - set(new))


def _no_longer(old: Any, new: Any) -> bool:
    """A demand was dropped or is another: what the old one refused may pass."""
    return old is not None and new != old


LOOSER: Final[Mapping[str, Looser]] = {
    "window_ulp": _higher,
    "set_rate": _higher,
    "confidence": _lower,
    "weight_budget_ulp": _higher,
    "tie_contract": lambda old, new: old == "lower_id" and new != old,
    "one_for_one": _off,
    "noise_abs": _higher,
    "flush_to_zero": _on,
    "allowed_classes": _added,
    "independence_unit": _no_longer,
    "coverage.banks": _removed,
    "coverage.widths": _removed,
    "coverage.ranks": _no_longer,
    "coverage.device": _no_longer,
}
"""Per field, whether a new value accepts more than an old one."""


def loosened(old: Policy, new: Policy) -> list[Loosened]:
    """Return the fields of ``new`` that accept more than those of ``old``."""
    return loosened_budgets(old.model_dump(mode="json"), new.model_dump(mode="json"))


def loosened_budgets(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Loosened]:
    """Return what a new policy's record accepts more than an old one's.

    Records are ``model_dump(mode="json")``, as ``audit.json`` holds them under ``policy``. A key
    that an older version did not write has its default. Overrides are compared model by model, as
    the limits that they lead to.

    Example:
        >>> loosened_budgets({"window_ulp": 2}, {"window_ulp": 4})
        [Loosened(field='window_ulp', old=2, new=4)]
    """
    found = list(_looser("", _flat(old), _flat(new)))
    for model in sorted({*old.get("model", {}), *new.get("model", {})}):
        before = _flat({**old, **old.get("model", {}).get(model, {})})
        after = _flat({**new, **new.get("model", {}).get(model, {})})
        of_model = _looser(f"model.{model}.", before, after)
        # A limit that is looser for every model is told once.
        told = {(one.field, repr(one.old), repr(one.new)) for one in found}
        found += [
            one
            for one in of_model
            if (one.field.removeprefix(f"model.{model}."), repr(one.old), repr(one.new)) not in told
        ]
    return found


def _looser(prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Loosened]:
    for name, looser in LOOSER.items():
        if looser(old[name], new[name]):
            yield Loosened(prefix + name, old[name], new[name])


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """The compared fields of a record by dotted name, with defaults for what it lacks."""
    whole = {**Limits().model_dump(mode="json"), **record}
    coverage = {**RequiredCoverage().model_dump(mode="json"), **record.get("coverage", {})}
    named = {**whole, **{f"coverage.{name}": value for name, value in coverage.items()}}
    return {name: named[name] for name in LOOSER}
