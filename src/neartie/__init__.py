"""Numerics equivalence and near-tie audit for Mixture-of-Experts routing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .audit.certify import certify_forms
    from .audit.claims.check import check_claims
    from .audit.claims.load import load_claims
    from .audit.equivalence import assert_equivalent
    from .audit.evidence.load import load_evidence
    from .audit.evidence.verify import verify_evidence
    from .audit.explain import explain_rows
    from .audit.gate.run import run_gate
    from .audit.hunt.check_rows import check_rows
    from .audit.hunt.run import hunt
    from .audit.plan import plan_rows
    from .audit.policy import Policy, load_policy
    from .audit.replay import replay_row
    from .audit.run import run_audit
    from .audit.why.recover import recover_order
    from .audit.why.run import why
    from .audit.why.schedules import attribute_schedule
    from .banks.open import open_bank
    from .banks.recording.merge import merge_ranks
    from .banks.recording.record import record
    from .banks.recording.spec import GateSpec
    from .kernels.registry import make_path, register

__version__ = "0.1.0"

# Loaded on first use: `import neartie` itself stays quick.
_HOMES = {
    "GateSpec": "banks.recording.spec",
    "Policy": "audit.policy",
    "assert_equivalent": "audit.equivalence",
    "attribute_schedule": "audit.why.schedules",
    "certify_forms": "audit.certify",
    "check_claims": "audit.claims.check",
    "check_rows": "audit.hunt.check_rows",
    "explain_rows": "audit.explain",
    "hunt": "audit.hunt.run",
    "load_claims": "audit.claims.load",
    "load_evidence": "audit.evidence.load",
    "load_policy": "audit.policy",
    "make_path": "kernels.registry",
    "merge_ranks": "banks.recording.merge",
    "open_bank": "banks.open",
    "plan_rows": "audit.plan",
    "record": "banks.recording.record",
    "recover_order": "audit.why.recover",
    "register": "kernels.registry",
    "replay_row": "audit.replay",
    "run_audit": "audit.run",
    "run_gate": "audit.gate.run",
    "verify_evidence": "audit.evidence.verify",
    "why": "audit.why.run",
}

__all__ = [
    "GateSpec",
    "Policy",
    "__version__",
    "assert_equivalent",
    "attribute_schedule",
    "certify_forms",
    "check_claims",
    "check_rows",
    "explain_rows",
    "hunt",
    "load_claims",
    "load_evidence",
    "load_policy",
    "make_path",
    "merge_ranks",
    "open_bank",
    "plan_rows",
    "record",
    "recover_order",
    "register",
    "replay_row",
    "run_audit",
    "run_gate",
    "verify_evidence",
    "why",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
