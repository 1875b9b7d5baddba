"""Figures of the selected sets and weights, of an audit or a gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ..evidence.load import Evidence
from ..metrics.swaps import SET_CLASSES, SetClass
from ..number_words import percent
from .measure import Measure, Metric, Query
from .value_metrics import widths_of

_SAME_SET: Final = (SetClass.IDENTICAL, SetClass.REORDERED)
_EXPLAINED: Final = (*_SAME_SET, SetClass.EXACT_TIE, SetClass.GROUP_TIE, SetClass.NEAR_TIE)
_BOTH: Final = ("audit", "gate")


def _counted(
    evidence: Evidence, query: Query, count: Callable[[Mapping[str, int]], int]
) -> list[Measure]:
    """A count of (row, rank) pairs at each width, told with both denominators."""
    return [
        Measure(
            f"width {width['width']}",
            count(width["counts"]),
            f"of {width['rows']:,} (row, rank) pairs, which are {width['unique_rows']:,} rows and "
            f"{width['units']:,} independent ones",
            width["units"],
        )
        for width in widths_of(evidence, query)
    ]


def swaps(evidence: Evidence, query: Query) -> list[Measure]:
    """(row, rank) pairs of one set class at each width."""
    return _counted(evidence, query, lambda counts: counts.get(query.set_class, 0))


def differing_rows(evidence: Evidence, query: Query) -> list[Measure]:
    """Independent rows whose sets differ on any rank, at each width."""
    return [
        Measure(
            f"width {width['width']}",
            width["differing_units"],
            f"of {width['units']:,} independent rows ({width['rows']:,} (row, rank) pairs)",
            width["units"],
        )
        for width in widths_of(evidence, query)
    ]


def other_ids(evidence: Evidence, query: Query) -> list[Measure]:
    """(row, rank) pairs whose ids are not the same in every slot, invalid ones too."""
    return _counted(evidence, query, lambda counts: _outside(counts, (SetClass.IDENTICAL,)))


def unexplained_differences(evidence: Evidence, query: Query) -> list[Measure]:
    """(row, rank) pairs whose sets differ by more than an exact or near tie, invalid ones too."""
    return _counted(evidence, query, lambda counts: _outside(counts, _EXPLAINED))


def _outside(counts: Mapping[str, int], classes: tuple[SetClass, ...]) -> int:
    return sum(counts.get(name, 0) for name in SET_CLASSES if name not in classes)


def max_weight_ulp(evidence: Evidence, query: Query) -> list[Measure]:
    """Largest distance of one expert's weight at each width, on rows with equal sets."""
    return [
        Measure(
            f"width {width['width']}",
            width["max_weight_ulp"],
            f"over {width['unique_rows']:,} rows"
            if width["max_weight_ulp"] is not None
            else "no row has weights that could be compared",
        )
        for width in widths_of(evidence, query)
    ]


def set_rate_upper(evidence: Evidence, query: Query) -> list[Measure]:
    """Exact one-sided bound of the rate of differing independent rows; of a gate pooled too.

    An audit's is over the rows of the gate that it started, too.
    """
    measures = [
        Measure(
            f"width {width['width']}",
            width["set_rate_upper"],
            f"{width['differing_units']:,} of {width['units']:,} independent rows differ, "
            f"confidence {percent(width['confidence'])}",
        )
        for width in evidence.record["widths"]
        if not query.widths or width["width"] in query.widths
    ]
    whole = evidence.record.get("pooled")
    if whole is not None and len(measures) == len(evidence.record["widths"]):
        seen = whole["observed"]
        note = f"{seen['differing']:,} of {seen['units']:,} independent rows differ"
        measures.append(Measure("all widths", seen["upper"], note))
    return measures


def distinct_rows(evidence: Evidence, query: Query) -> list[Measure]:
    """Distinct rows: at each width of an audit, over the widths of a gate."""
    widths = list(widths_of(evidence, query))
    if evidence.kind == "gate":
        names = ", ".join(str(width["width"]) for width in widths)
        where = f"width{'s' if len(widths) > 1 else ''} {names}"
        return [Measure(where, sum(width["unique_rows"] for width in widths))]
    return [Measure(f"width {width['width']}", width["unique_rows"]) for width in widths]


def violations(evidence: Evidence, query: Query) -> list[Measure]:
    """Rows of a gate whose sets differ by more than a tie, at each width."""
    return [
        Measure(f"width {width['width']}", width["violations"], f"of {width['rows']:,} rows")
        for width in widths_of(evidence, query)
    ]


def _of_certificates(
    evidence: Evidence, query: Query, figure: Callable[[list[dict[str, Any]]], int | None]
) -> list[Measure]:
    """A figure of what swapped; without a swap, or a certificate for each, there is none."""
    started = evidence.record.get("gate") or {"banks": []}
    others = {bank["name"] for bank in started["banks"]}
    records = [
        record
        for record in evidence.tables["swaps"].to_pylist()
        if record["bank"] not in others and (not query.widths or record["width"] in query.widths)
    ]
    left = evidence.record.get("pooled", {}).get("certificates_left_out", 0)
    if left:
        return [Measure("all rows", None, f"{left:,} differing rows have no certificate")]
    if not records:
        return [Measure("all rows", None, "no set differs: nothing was seen to swap")]
    value = figure(records)
    if value is None:
        return [Measure("all rows", None, "a gap to a score that is not finite has no size")]
    return [Measure("all rows", value, f"{len(records):,} certificates")]


def largest_gap_ulp(evidence: Evidence, query: Query) -> list[Measure]:
    """Widest gap of a set difference on the reference's biased scores."""

    def widest(records: list[dict[str, Any]]) -> int | None:
        gaps = [record["gap_ulp"] for record in records]
        return None if None in gaps else max(gaps)

    return _of_certificates(evidence, query, widest)


def swaps_of_several(evidence: Evidence, query: Query) -> list[Measure]:
    """Set differences that exchange more than one expert."""

    def several(records: list[dict[str, Any]]) -> int:
        return sum(len(record["dropped"]) != 1 for record in records)

    return _of_certificates(evidence, query, several)


def swaps_outside_the_last_slot(evidence: Evidence, query: Query) -> list[Measure]:
    """Set differences that touch another slot than the last one of either path."""
    last = {bank["name"]: bank["geometry"]["top_k"] - 1 for bank in evidence.record["banks"]}

    def outside(records: list[dict[str, Any]]) -> int:
        return sum(
            any(slot != last[r["bank"]] for slot in (*r["slots_dropped"], *r["slots_added"]))
            for r in records
        )

    return _of_certificates(evidence, query, outside)


SET_METRICS: Final = (
    Metric("swaps", _BOTH, "(row, rank) pairs", ("set_class",),
           "(row, rank) pairs of one set class at each width", swaps),
    Metric("differing_rows", _BOTH, "independent rows", (),
           "independent rows whose sets differ on any rank, at each width", differing_rows),
    Metric("other_ids", _BOTH, "(row, rank) pairs", (),
           "(row, rank) pairs whose ids differ in any slot", other_ids),
    Metric("unexplained_differences", _BOTH, "(row, rank) pairs", (),
           "(row, rank) pairs that differ by more than an exact or near tie",
           unexplained_differences),
    Metric("max_weight_ulp", _BOTH, "FP32 ULP", (),
           "largest distance of one expert's weight at each width", max_weight_ulp),
    Metric("set_rate_upper", _BOTH, "", (),
           "exact upper bound of the rate of differing independent rows", set_rate_upper),
    Metric("distinct_rows", _BOTH, "rows", (),
           "distinct rows: at each width of an audit, over the widths of a gate", distinct_rows),
    Metric("violations", ("gate",), "rows", (),
           "rows whose sets differ by more than a tie, at each width", violations),
    Metric("largest_gap_ulp", _BOTH, "FP32 ULP", (),
           "widest gap of a set difference on the reference's biased scores", largest_gap_ulp),
    Metric("swaps_of_several", _BOTH, "rows", (),
           "set differences that exchange more than one expert", swaps_of_several),
    Metric("swaps_outside_the_last_slot", _BOTH, "rows", (),
           "set differences that touch another slot than the last", swaps_outside_the_last_slot),
)  # fmt: skip
