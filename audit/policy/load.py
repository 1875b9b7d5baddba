"""Read a policy file, and tell what a file may hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ..toml_model import read_toml, validated
from .model import Policy

SCHEMA_ID: Final = "https://json-schema.org/draft/2020-12/schema"


def load_policy(path: str | Path | None) -> Policy:
    """Read a policy file; None gives the defaults.

    Raises:
        InputError: the file cannot be read, is no TOML, or has a key or value that is refused.
    """
    if path is None:
        return Policy()
    return validated(Policy, read_toml(path, "policy"), str(path))


def policy_schema() -> dict[str, Any]:
    """Return the JSON schema of a policy file; ``docs/policy.schema.json`` holds it."""
    return {"$schema": SCHEMA_ID, **Policy.model_json_schema()}
