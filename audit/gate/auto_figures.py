"""The figures of the gate that an audit started, made from the stored counts alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..counts import Counts, Histograms, pooled_counts
from ..metrics.margins import check_sample
from ..policy import Policy
from .histograms import read_pooled
from .record import figures


def gate_section(told: Mapping[str, Any], histograms: Histograms, policy: Policy) -> dict[str, Any]:
    """Return the ``gate`` object of ``audit.json``.

    Args:
        told: the object, or what ``auto_gate`` says of its plan; figures in it are made again.
        histograms: the audit's, with the gate's lines.
        policy: limits to judge by.
    """
    names = [bank["name"] for bank in told["banks"]]
    groups = {group["first"]: group["widths"] for group in told["groups"]}
    firsts = list(groups)
    # One of several widths must not contradict by luck.
    confidence = 1 - (1 - policy.confidence) / max(1, sum(len(ws) for ws in groups.values()))
    widths = []
    for first, members in groups.items():
        found = figures(read_pooled(histograms, names, [first]), policy)
        for width in members:
            own = pooled_counts(histograms, width, unit=policy.independence_unit, without=names)
            sample = _sample(own, found["observed"], confidence)
            widths.append({"width": width, "rows_of_width": first, **found, "sample": sample})
    return {
        **told,
        "banks": [
            {**bank, **figures(read_pooled(histograms, [bank["name"]], firsts), policy)}
            for bank in told["banks"]
        ],
        "widths": sorted(widths, key=lambda width: width["width"]),
        "pooled": figures(read_pooled(histograms, names, firsts), policy),
        "contradicted": any(_contradicts(width) for width in widths),
    }


def gate_doubts(section: Mapping[str, Any]) -> list[str]:
    """Return why the gate's rows may not stand for the audit's own."""
    return [_doubt(width) for width in section["widths"] if _contradicts(width)]


def _sample(own: Counts, seen: Mapping[str, Any], confidence: float) -> dict[str, Any] | None:
    """The audit's own rows of one width, held against the gate's."""
    if not own.rate_units or not seen["units"]:
        return None
    return asdict(
        check_sample(
            own.rate_differing, own.rate_units, seen["differing"], seen["units"], confidence
        )
    )


def _contradicts(width: Mapping[str, Any]) -> bool:
    """Whether the audit's own rows differ more often than the gate's: then these prove little."""
    sample = width["sample"]
    if sample is None or not sample["contradicts"]:
        return False
    return bool(sample["events"] / sample["trials"] > width["observed"]["rate"])


def _doubt(width: Mapping[str, Any]) -> str:
    sample, seen = width["sample"], width["observed"]
    return (
        f"at width {width['width']} the banks' own rows differ more often than the gate's: "
        f"{sample['events']:,} of {sample['trials']:,} against {seen['differing']:,} of "
        f"{seen['units']:,} (p = {sample['p_value']:.2g}, Fisher): its rows do not stand for them"
    )
