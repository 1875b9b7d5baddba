"""Which evidence may answer a claim, and whether it is enough."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...kernels.options import parse_spec
from ..evidence.load import Evidence
from ..number_words import number_of
from .model import Claim, Scope
from .value_metrics import own_widths


def out_of_scope(scope: Scope, evidence: Evidence) -> str | None:
    """Return what keeps evidence out of a scope, such as ``geometry k3``; None where nothing."""
    record = evidence.record
    geometries = {bank["geometry"]["name"] for bank in record["banks"]}
    if scope.geometry is not None and geometries != {scope.geometry}:
        return f"geometry {scope.geometry}"
    for role in ("baseline", "candidate"):
        wanted = getattr(scope, role)
        if wanted is not None and wanted not in _names(record[role]):
            return f"{role} {wanted}"
    options = parse_spec(record["candidate"]["name"])[1]
    for key, value in scope.options.items():
        if options.get(key) != value:
            return f"candidate with {key}={value}"
    for what in ("device", "ranks"):
        wanted = getattr(scope, what)
        if wanted is not None and record[what] != wanted:
            return f"{what} {wanted}" if what == "device" else number_of(wanted, "rank")
    return None


def scope_text(scope: Scope) -> str:
    """Return what evidence must be to be in scope."""
    parts = [f"geometry {scope.geometry}"] if scope.geometry else []
    parts += [f"{r} {getattr(scope, r)}" for r in ("baseline", "candidate") if getattr(scope, r)]
    parts += [f"candidate with {key}={value}" for key, value in scope.options.items()]
    parts += [f"device {scope.device}"] if scope.device else []
    parts += [number_of(scope.ranks, "rank")] if scope.ranks else []
    return ", ".join(parts) or "any evidence"


def lacking(claim: Claim, evidence: Evidence) -> Iterator[str]:
    """Yield what evidence in scope lacks to support a claim."""
    ran = {width["width"]: width for width in own_widths(evidence) if width["rows"]}
    absent = [str(width) for width in claim.scope.widths if width not in ran]
    if absent:
        yield f"width {', '.join(absent)} was not run"
    asked = [ran[w] for w in claim.scope.widths or ran if w in ran]
    if not asked:
        if not absent:
            yield "no row was compared"
        return
    for item in evidence.record["coverage"]:
        if not item["ran"] and (not claim.scope.widths or item["width"] in claim.scope.widths):
            yield f"{item['bank']} at width {item['width']} was not run: {item['reason']}"
    banks = len(evidence.record["banks"])
    if banks < claim.needs.banks:
        yield f"{banks} of {claim.needs.banks} banks"
    rows = _rows(evidence, asked)
    if rows < claim.needs.rows:
        yield f"{rows:,} of {claim.needs.rows:,} rows"


def _rows(evidence: Evidence, widths: list[Mapping[str, Any]]) -> int:
    counts = [int(width["unique_rows"]) for width in widths]
    return sum(counts) if evidence.kind == "gate" else min(counts)


def _names(side: Mapping[str, Any]) -> set[str]:
    """A side by its path's name; a gate's also by the select that it was given."""
    return {str(side[key]).partition(":")[0] for key in ("name", "spec") if key in side}
