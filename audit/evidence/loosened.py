"""Which limits of a policy accept what another policy refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..policy import Policy


@dataclass(frozen=True, slots=True)
class Loosened:
    """A field with a new value that accepts more than the old one."""

    field: str
    old: Any
    new: Any


def _higher(old: Any, new: Any) -> bool:
    return bool(new > old)


LOOSER: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "window_ulp": _higher,
    "set_rate": _higher,
    "confidence": lambda old, new: bool(new < old),
    "weight_budget_ulp": _higher,
    "tie_contract": lambda old, new: old == "lower_id" and new != old,
    "one_for_one": lambda old, new: bool(old and not new),
    "noise_abs": _higher,
    "flush_to_zero": lambda old, new: bool(new and not old),
}
"""Per field, whether a new value accepts more than an old one."""


def loosened_budgets(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Loosened]:
    """Return what a new policy's record accepts more than an old one's.

    Records are as ``audit.json`` holds them under ``policy``; a key that one lacks has its default.

    Example:
        >>> loosened_budgets({"window_ulp": 2}, {"window_ulp": 4})
        [Loosened(field='window_ulp', old=2, new=4)]
    """
    defaults = Policy().model_dump(mode="json")
    before, after = {**defaults, **old}, {**defaults, **new}
    return [
        Loosened(name, before[name], after[name])
        for name, looser in LOOSER.items()
        if looser(before[name], after[name])
    ]
