"""Figures of an audit's values: the error triangle, closeness, and the declared schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..counts import Histograms, pooled_counts
from ..evidence.load import Evidence
from ..metrics.values import BF16_UNIT_ROUNDOFF, GAUSSIAN_ROUNDING
from .measure import Measure, Metric, Query


def widths_of(evidence: Evidence, query: Query) -> Iterator[Mapping[str, Any]]:
    """Yield the figures of each width that was run and is asked for, over the banks' own rows."""
    for width in own_widths(evidence):
        if not query.widths or width["width"] in query.widths:
            yield width


def own_widths(evidence: Evidence) -> Iterator[Mapping[str, Any]]:
    """Yield the figures of each width without the rows of a gate that the audit started.

    A statement about so many rows of some banks is about these rows; the bound of the set rate
    stays the recorded one.
    """
    gate = evidence.record.get("gate")
    if gate is None:
        yield from evidence.record["widths"]
        return
    histograms = Histograms(evidence.tables["histograms"])
    others = [bank["name"] for bank in gate["banks"]]
    for width in evidence.record["widths"]:
        own = pooled_counts(histograms, width["width"], without=others)
        yield {
            **width,
            "rows": own.rows,
            "unique_rows": own.unique_rows,
            "units": own.rate_units,
            "differing_units": own.rate_differing,
            "counts": own.counts,
            "max_weight_ulp": own.max_weight_ulp,
        }


def _side(width: Mapping[str, Any], query: Query) -> float | None:
    found: float | None = width["triangle"].get(query.tensor, {}).get(query.pair)
    return found


def relative_rms(evidence: Evidence, query: Query) -> list[Measure]:
    """||x - ref|| / ||ref|| of one tensor and pair at each width, pooled over banks and ranks."""
    return [
        Measure(f"width {width['width']}", _side(width, query), _missing(width, query))
        for width in widths_of(evidence, query)
    ]


def relative_rms_in_roundoffs(evidence: Evidence, query: Query) -> list[Measure]:
    """The relative RMS in units of BF16's unit roundoff u = 2^-8."""
    u = BF16_UNIT_ROUNDOFF
    measures = []
    for width in widths_of(evidence, query):
        side = _side(width, query)
        where = f"width {width['width']}"
        if side is None:
            measures.append(Measure(where, None, _missing(width, query)))
            continue
        note = (
            f"{side:.3e}; u = 2^-8 = {u:.3e}; one rounding of normal data is "
            f"{GAUSSIAN_ROUNDING:.3f} u = {GAUSSIAN_ROUNDING * u:.2e}"
        )
        measures.append(Measure(where, side / u, note))
    return measures


def closer_to_reference(evidence: Evidence, query: Query) -> list[Measure]:
    """Sign test by row and ratio of RMS errors: closer, not distinguishable or farther."""
    measures = []
    for width in widths_of(evidence, query):
        test = width["closer_to_reference"].get(query.tensor)
        note = _missing(width, query)
        if test is not None:
            note = (
                f"{test['wins']:,} rows closer, {test['losses']:,} farther, {test['ties']:,} "
                f"alike; p {_p_value(test['p_value'])}{_ratio(test)}"
            )
        measures.append(Measure(f"width {width['width']}", test and test["answer"], note))
    return measures


def schedule_fits(evidence: Evidence, query: Query) -> list[Measure]:
    """Whether the latent errors fit the schedule that the paths declare: fits or does not fit."""
    fit = evidence.record["schedule"]
    if fit is None or fit["fits"] is None:
        return [Measure("all widths", None, "no schedule was predicted")]
    if fit["distance"] is None:
        return [Measure("all widths", "does not fit", f"{fit['declared']}: no number")]
    note = (
        f"{fit['declared']}: {fit['distance']:.2%} off, limit {fit['tolerance']:.2%}; nearest is "
        f"{fit['nearest']}"
    )
    return [Measure("all widths", "fits" if fit["fits"] else "does not fit", note)]


def _ratio(test: Mapping[str, Any]) -> str:
    """The ratio with its interval and what stands against an answer; older evidence has neither."""
    if test.get("ratio_low") is None:
        return ""
    high = "no limit" if test["ratio_high"] is None else f"{test['ratio_high']:.4f}"
    found = f"; ratio of RMS errors {test['ratio']:.4f} ({test['ratio_low']:.4f} to {high})"
    return "; ".join([found, *test["reasons"]])


def _p_value(value: float) -> str:
    """An exact p-value; what is too small for FP64 is below the smallest normal one."""
    return f"= {value:.1e}" if value else "< 1e-300"


def _missing(width: Mapping[str, Any], query: Query) -> str:
    shown = query.tensor in width["triangle"]
    return "" if shown else f"{query.tensor} was not compared"


VALUE_METRICS: Final = (
    Metric("relative_rms", ("audit",), "", ("tensor", "pair"),
           "relative RMS at each width, pooled over banks and ranks", relative_rms),
    Metric("relative_rms_in_roundoffs", ("audit",), "u", ("tensor", "pair"),
           "the same in BF16 unit roundoffs, u = 2^-8", relative_rms_in_roundoffs),
    Metric("closer_to_reference", ("audit",), "", ("tensor",),
           "sign test by row and ratio of errors: closer, not distinguishable, farther",
           closer_to_reference),
    Metric("schedule_fits", ("audit",), "", (),
           "latent errors against the declared schedule: fits, does not fit", schedule_fits),
)  # fmt: skip
