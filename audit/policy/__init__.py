"""The policy: limits, their provenance, required coverage, and the rules to compare two."""

from .limits import LIMITS, Limits
from .load import load_policy, policy_schema
from .model import Policy, Provenance, RequiredCoverage
from .of_model import effective_policy, model_names, policy_of_models

__all__ = [
    "LIMITS",
    "Limits",
    "Policy",
    "Provenance",
    "RequiredCoverage",
    "effective_policy",
    "load_policy",
    "model_names",
    "policy_of_models",
    "policy_schema",
]
