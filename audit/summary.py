"""Pool the outcomes of the banks into one summary per width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .bank_run import BankOutcome
from .compare import BASELINE, CANDIDATE
from .metrics.closeness import Closeness, closer
from .metrics.rates import at_most_p_value, holm, upper_bound
from .metrics.swaps import SET_CLASSES
from .metrics.values import PairTally, rho
from .observed import Conditions, Observed, ScheduleFit, WidthSummary
from .policy import Policy
from .tally import Tally
from .value_table import PAIRS, TENSORS, Pair


def summarise(
    outcomes: Sequence[BankOutcome],
    widths: Sequence[int],
    policy: Policy,
    limitations: Sequence[str],
    doubts: Sequence[str] = (),
    conditions: Conditions | None = None,
) -> Observed:
    """Return what the verdict looks at.

    A bound is certified by Holm's step-down over the widths: the least certain width must hold at
    alpha / widths (Holm, Scand. J. Statistics 6, 1979).
    """
    tallies = {width: pooled_tally(outcomes, width) for width in widths}
    counted, uncounted = _of_unit(outcomes, policy.independence_unit)
    samples = {width: rate_tally(counted, width) for width in widths}
    p_values = [at_most_p_value(t.events, t.units, policy.set_rate) for t in samples.values()]
    certified = holm(p_values, 1 - policy.confidence) if p_values else []
    summaries = [
        _width_summary(width, tally, samples[width], bool(held), outcomes, policy)
        for (width, tally), held in zip(tallies.items(), certified, strict=True)
        if tally.rows
    ]
    coverage = [item for outcome in outcomes for item in outcome.coverage]
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    missing = sorted(
        {item for outcome in outcomes for item in outcome.not_compared},
        key=lambda item: (item.tensor, item.path),
    )
    return Observed(
        summaries,
        findings,
        coverage,
        _schedule(outcomes),
        (*limitations, *uncounted),
        tuple(missing),
        tuple(doubts),
        conditions,
    )


def _of_unit(
    outcomes: Sequence[BankOutcome], unit: str | None
) -> tuple[list[BankOutcome], list[str]]:
    """The banks whose rows may bound a rate under a required unit, and a text on the others."""
    counted = [o for o in outcomes if unit is None or o.independence_unit == unit]
    others = [o for o in outcomes if o not in counted and o.tallies]
    if not others:
        return counted, []
    units = ", ".join(sorted({str(o.independence_unit) for o in others}))
    text = (
        f"{len(others)} of {len(outcomes)} banks bound no rate: the policy asks for the "
        f"independence unit {unit}, theirs is {units}"
    )
    return counted, [text]


def pooled_tally(outcomes: Sequence[BankOutcome], width: int) -> Tally:
    """Return the counts of one width over all banks."""
    total = Tally()
    for outcome in outcomes:
        if width in outcome.tallies:
            total.merge(outcome.tallies[width])
    return total


def rate_tally(outcomes: Sequence[BankOutcome], width: int) -> Tally:
    """Return the counts that bound the set rate of one width.

    Rows that start at the select stage share the paths' logits: they can only show differences of
    the select. Where the paths' own logits differ, or were not compared, only rows that ran all
    stages are samples of what differs.
    """
    if logits_agree(outcomes, width):
        return pooled_tally(outcomes, width)
    return pooled_tally([o for o in outcomes if o.full_chain], width)


def logits_agree(outcomes: Sequence[BankOutcome], width: int) -> bool:
    """Return whether the paths' own logits have the same bits, on every row that ran all stages."""
    full = [o for o in outcomes if o.full_chain and width in o.tallies]
    return all(o.bits_equal.get(width, {}).get("logits", False) for o in full)


def triangle(
    outcomes: Sequence[BankOutcome], width: int, tensors: Sequence[str] = TENSORS
) -> dict[str, dict[str, Any]]:
    """Return the pooled error triangle of one width: per tensor three relative RMS and rho."""
    result: dict[str, dict[str, Any]] = {}
    for tensor in tensors:
        pooled = {pair: _pooled_pair(outcomes, width, tensor, pair) for pair in PAIRS}
        if not any(p is not None for p in pooled.values()):
            continue
        sides: dict[str, Any] = {}
        for pair, tally in pooled.items():
            sides[pair] = None if tally is None else tally.result().relative_rms
        sides["rho"] = rho(
            sides["baseline_reference"], sides["candidate_reference"], sides["candidate_baseline"]
        )
        result[tensor] = sides
    return result


def closeness(outcomes: Sequence[BankOutcome], width: int, tensor: str) -> Closeness | None:
    """Return whether the candidate is closer to the reference than the baseline, per row."""
    mine = _pooled_pair(outcomes, width, tensor, "candidate_reference")
    other = _pooled_pair(outcomes, width, tensor, "baseline_reference")
    if mine is None or other is None:
        return None
    a, b = mine.error_squares(), other.error_squares()
    return closer(a, b) if len(a) == len(b) else None


def _pooled_pair(
    outcomes: Sequence[BankOutcome], width: int, tensor: str, pair: Pair
) -> PairTally | None:
    total = PairTally()
    found = False
    for outcome in outcomes:
        ranked = outcome.values.pairs.get((width, tensor, pair))
        if ranked is not None:
            total.merge(ranked.pooled())
            found = True
    return total if found else None


def _width_summary(
    width: int,
    tally: Tally,
    sample: Tally,
    certified: bool,
    outcomes: Sequence[BankOutcome],
    policy: Policy,
) -> WidthSummary:
    differing, units = sample.events, sample.units
    latent = triangle(outcomes, width, ("latent",)).get("latent", {})
    return WidthSummary(
        width=width,
        rows=tally.rows,
        unique_rows=tally.unique_rows,
        units=units,
        differing_units=differing,
        counts={str(c): tally.counts[str(c)] for c in SET_CLASSES},
        set_rate=differing / units if units else None,
        set_rate_upper=upper_bound(differing, units, policy.confidence),
        certified=certified,
        confidence=policy.confidence,
        max_weight_ulp=tally.worst_weight.value if tally.worst_weight else None,
        weight_classes=dict(tally.weight_classes),
        flags={role: dict(tally.flags[role]) for role in (BASELINE, CANDIDATE)},
        breaches={role: dict(tally.breaches[role]) for role in (BASELINE, CANDIDATE)},
        bits_equal=_bits_equal(outcomes, width),
        rho=latent.get("rho"),
    )


def _bits_equal(outcomes: Sequence[BankOutcome], width: int) -> dict[str, bool]:
    equal: dict[str, bool] = {}
    for outcome in outcomes:
        for name, same in outcome.bits_equal.get(width, {}).items():
            equal[name] = equal.get(name, True) and same
    return equal


def _schedule(outcomes: Sequence[BankOutcome]) -> ScheduleFit | None:
    """The fit of the bank that fits worst; a bank that could not be judged outranks the rest."""
    fits = [outcome.schedule for outcome in outcomes if outcome.schedule is not None]
    if not fits:
        return None
    order = {False: 0, None: 1, True: 2}
    return min(fits, key=lambda fit: (order[fit.fits], -(fit.distance or 0.0)))
