"""The one set of limits of an audit: the policy with the overrides of its banks' model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...banks.bank import Bank
from ...banks.errors import InputError
from .limits import LIMITS
from .model import Policy


def model_names(bank: Bank) -> tuple[str, ...]:
    """Return the names that an override may call a bank's model by, its provenance's first.

    ``provenance.model`` is a text such as ``k3-mini: 281M parameters`` (its name ends at the
    colon) or a table with a ``name``; a generated bank has no model but the geometry's name.
    """
    given: Any = bank.provenance.get("model")
    if isinstance(given, dict):
        given = given.get("name")
    named = given.partition(":")[0].strip() if isinstance(given, str) else ""
    return tuple(dict.fromkeys(name for name in (named, bank.geometry.name) if name))


def effective_policy(policy: Policy, banks: Sequence[Bank]) -> Policy:
    """Return the policy whose limits are those of the banks' model; as ``policy_of_models``."""
    return policy_of_models(policy, [(bank.name, model_names(bank)) for bank in banks])


def policy_of_models(policy: Policy, banks: Sequence[tuple[str, Sequence[str]]]) -> Policy:
    """Return the policy whose limits are those of the banks' model.

    Its ``model`` keeps the override that was applied and no other, so that a record shows which
    limits it changed; applying it again changes nothing.

    Args:
        policy: as a file holds it.
        banks: each bank's name, and what ``model_names`` gives for it; a record has them.

    Raises:
        InputError: the banks are of models whose limits differ. No one verdict holds for both, and
            the strictest of two budgets was measured on neither: run an audit for each.
    """
    if not policy.model:
        return policy
    first: tuple[str, Policy] | None = None
    for name, models in banks:
        mine = of_models(policy, models)
        if first is None:
            first = name, mine
        for limit in LIMITS:
            if getattr(mine, limit) != getattr(first[1], limit):
                banks_named = f"{first[0]} and {name}"
                expected = f"of one model: their {limit} differs; audit each model by itself"
                raise InputError("banks", banks_named, expected, f"policy {policy.name}")
    return policy if first is None else first[1]


def of_models(policy: Policy, models: Sequence[str]) -> Policy:
    """Return the policy of a bank whose model has these names; the first that is known counts."""
    key = next((name for name in models if name in policy.model), None)
    if key is None:
        return policy.model_copy(update={"model": {}})
    override = policy.model[key]
    changes: dict[str, Any] = {
        name: getattr(override, name) for name in LIMITS if name in override.model_fields_set
    }
    # What the policy says of a limit's origin is not true of another figure.
    kept = {name: one for name, one in policy.provenance.items() if name not in changes}
    changes["provenance"] = {**kept, **override.provenance}
    changes["model"] = {key: override}
    return policy.model_copy(update=changes)
