"""The effective policy as text: every limit with its value and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .limits import LIMITS
from .model import ModelLimits, Policy, Provenance

_NO_PROVENANCE = "no provenance given"


def policy_text(policy: Policy) -> str:
    """Return one line per limit: value, and the provenance of that value."""
    lines = [f"policy {policy.name}"]
    lines += _limit_lines(policy, LIMITS, "  ")
    lines.append("required coverage of an audit")
    for name, value in policy.coverage.model_dump(mode="json").items():
        lines.append(f"  {name:<18} {_value(value) if value else 'as given on the command line'}")
    for name, limits in policy.model.items():
        lines.append(f"model {name}")
        lines += _limit_lines(limits, [n for n in LIMITS if n in limits.model_fields_set], "  ")
    return "\n".join(lines)


def _limit_lines(limits: Policy | ModelLimits, names: Any, indent: str) -> Iterator[str]:
    for name in names:
        origin = limits.provenance.get(name)
        value = _value(getattr(limits, name))
        told = _NO_PROVENANCE if origin is None else _told(origin)
        yield f"{indent}{name:<18} {value:<14} {told}"


def _value(value: Any) -> str:
    if value is None:
        return "any"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def _told(origin: Provenance) -> str:
    parts = [origin.measured_at, origin.device, origin.date, origin.source]
    return "; ".join(part for part in parts if part)
