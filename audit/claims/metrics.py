"""All metrics by name, and the check that a claim asks a metric for what it takes."""

from __future__ import annotations

from typing import Final

from ...banks.errors import InputError
from .live_metrics import LIVE_METRICS
from .measure import LiveMetric, Metric, Query
from .model import PARAMETERS, Claim
from .set_metrics import SET_METRICS
from .value_metrics import VALUE_METRICS

METRICS: Final[dict[str, Metric | LiveMetric]] = {
    metric.name: metric for metric in (*VALUE_METRICS, *SET_METRICS, *LIVE_METRICS)
}


def metric_of(claim: Claim, where: str) -> Metric | LiveMetric:
    """Return the metric of a claim that has one.

    Raises:
        InputError: no metric has the name, it is not of the claim's kind of evidence, or the claim
            lacks a parameter that it takes or has one that it does not.
    """
    metric = METRICS.get(claim.metric or "")
    if metric is None:
        known = f"one of {', '.join(METRICS)}"
        raise InputError(f"{claim.id}.metric", claim.metric, known, where)
    kinds = ("audit", "gate") if claim.kind == "any" else (claim.kind,)
    if not set(kinds) <= set(metric.kinds):
        expected = f"{' or '.join(metric.kinds)}, which {metric.name} is a figure of"
        raise InputError(f"{claim.id}.kind", claim.kind, expected, where)
    for name in PARAMETERS:
        got = getattr(claim, name)
        if (got is not None) != (name in metric.takes):
            expected = f"{'given' if name in metric.takes else 'left out'} for {metric.name}"
            raise InputError(f"{claim.id}.{name}", got or "nothing", expected, where)
    return metric


def query_of(claim: Claim) -> Query:
    """Return what a claim asks of its metric."""
    return Query(
        tensor=claim.tensor or "",
        pair=claim.pair or "",
        set_class=claim.set_class or "",
        path=claim.path or "",
        geometry=claim.scope.geometry or "",
        ranks=claim.scope.ranks,
        widths=claim.scope.widths,
    )
