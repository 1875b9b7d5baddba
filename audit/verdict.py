"""The rules that turn counts into a state, its reasons and a numerics class.

Source: the design's sections "Verdict states" and "Numerics classes, by rule".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from .metrics.rates import lower_bound, rows_needed
from .metrics.swaps import SetClass
from .number_words import percent
from .observed import Observed
from .policy import Policy, RequiredCoverage
from .required_coverage import missing_coverage


class State(StrEnum):
    """Where an audit ends. The order is the order of precedence, strongest first."""

    FAIL = "FAIL"
    NOT_RUN = "NOT_RUN"
    INCONCLUSIVE = "INCONCLUSIVE"
    PASS_WITH_LIMITATIONS = "PASS_WITH_LIMITATIONS"
    PASS = "PASS"


EXIT_STATUS: dict[State, int] = {
    State.PASS: 0,
    State.PASS_WITH_LIMITATIONS: 0,
    State.FAIL: 1,
    State.INCONCLUSIVE: 3,
    State.NOT_RUN: 3,
}


class NumericsClass(StrEnum):
    """What a maintainer may sign."""

    BITWISE = "BITWISE"
    REORDER = "REORDER"
    LIGHT = "LIGHT"
    VISIBLE = "VISIBLE"
    BEHAVIOURAL = "BEHAVIOURAL"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Reason:
    """One sentence of a verdict, and the state that it alone would lead to.

    ``width`` and ``bank`` say what it is about; None: all of them.
    """

    state: State
    code: str
    text: str
    width: int | None = None
    bank: str | None = None


@dataclass(frozen=True)
class Verdict:
    """A state with its reasons, and the class that may be signed.

    ``provisional_class`` is what the rows that were seen would be signed as; it differs from
    ``numerics_class`` only where coverage is too small for a signature (UNKNOWN).
    """

    state: State
    reasons: tuple[Reason, ...]
    numerics_class: NumericsClass
    provisional_class: NumericsClass
    structural_tag: str | None

    @property
    def exit_status(self) -> int:
        """0 pass, 1 fail, 3 inconclusive or not run."""
        return EXIT_STATUS[self.state]


NOT_KEPT = "not_kept"
"""Code of a reason that stored tables cannot answer; an audit has none."""

TIES = (SetClass.EXACT_TIE, SetClass.GROUP_TIE, SetClass.NEAR_TIE)
EXACT_TIES = (SetClass.EXACT_TIE, SetClass.GROUP_TIE, SetClass.TIE_GROUP)


def judge(observed: Observed, policy: Policy) -> Verdict:
    """Return the verdict that the policy gives to the observed."""
    reasons = tuple(
        reason
        for rule in (
            _coverage,
            _not_compared,
            _unanswered,
            _contracts,
            _findings,
            _sets,
            _weights,
            _rates,
            _doubts,
            _limitations,
        )
        for reason in rule(observed, policy)
    )
    missing = tuple(_required(observed, policy))
    failing = {r.code for r in reasons if r.state is State.FAIL}
    provisional, tag = _numerics_class(observed, failing)
    reasons = (*missing, *_allowed(provisional, policy), *reasons)
    order = list(State)
    state = min((r.state for r in reasons), key=order.index, default=State.PASS)
    certified = bool(observed.widths) and all(w.certified for w in observed.widths)
    ran = all(c.ran for c in observed.coverage) and not observed.not_compared
    required = not any(r.state is State.INCONCLUSIVE for r in missing)
    covered = certified and ran and required and not (observed.doubts or observed.unanswered)
    final = provisional
    if provisional is not NumericsClass.BEHAVIOURAL and not covered:
        final = NumericsClass.UNKNOWN
    return Verdict(state, reasons, final, provisional, tag)


def _coverage(observed: Observed, policy: Policy) -> Iterator[Reason]:
    missing = [c for c in observed.coverage if not c.ran]
    nothing_ran = bool(missing) and len(missing) == len(observed.coverage)
    for item in missing:
        state = State.NOT_RUN if nothing_ran else State.INCONCLUSIVE
        text = f"{item.bank} at width {item.width} was not run: {item.reason}"
        yield Reason(state, "not_run", text, item.width, item.bank)
    if not nothing_ran and not sum(w.rows for w in observed.widths):
        yield Reason(State.FAIL, "no_rows", "zero rows were compared")


def _required(observed: Observed, policy: Policy) -> Iterator[Reason]:
    required = policy.coverage
    if required == RequiredCoverage():
        return
    if observed.conditions is None:
        text = "the required coverage speaks of audits; a gate does not judge it"
        yield Reason(State.PASS_WITH_LIMITATIONS, "coverage_not_judged", text)
        return
    for text in missing_coverage(required, observed.coverage, observed.conditions):
        yield Reason(State.INCONCLUSIVE, "coverage", f"required coverage is missing: {text}")


def _allowed(found: NumericsClass, policy: Policy) -> Iterator[Reason]:
    """Say whether what was seen may be signed at all; more rows cannot cure a class."""
    unsigned = found in (NumericsClass.BEHAVIOURAL, NumericsClass.UNKNOWN)
    if unsigned or found in policy.allowed_classes:
        return
    allowed = ", ".join(policy.allowed_classes)
    text = f"the rows seen are {found}, and the policy allows {allowed}"
    yield Reason(State.FAIL, "class_not_allowed", text)


def _contracts(observed: Observed, policy: Policy) -> Iterator[Reason]:
    for summary in observed.widths:
        for kind, table in (("breach", summary.breaches), ("flag", summary.flags)):
            for path, counts in table.items():
                for name, count in counts.items():
                    rows = f"{count:,} of {summary.rows:,} rows"
                    text = f"{path} at width {summary.width}: {name} in {rows}"
                    yield Reason(State.FAIL, f"{kind}:{name}", text, summary.width)


def _findings(observed: Observed, policy: Policy) -> Iterator[Reason]:
    for finding in observed.findings:
        state = State.FAIL if finding.fails else State.PASS_WITH_LIMITATIONS
        where = f"{finding.path} on {finding.bank} at width {finding.width}"
        text = f"{finding.name}: {where}: {finding.text}"
        yield Reason(state, finding.name, text, finding.width, finding.bank)
    fit = observed.schedule
    if fit is not None and fit.fits is False:
        off = "no number" if fit.distance is None else f"{fit.distance:.2%} off"
        text = (
            f"latent errors do not fit the declared {fit.declared} ({off}); "
            f"nearest is {fit.nearest}"
        )
        yield Reason(State.FAIL, "schedule_mismatch", text)
    if fit is not None and fit.fits is None and _latent_differs(observed):
        text = f"latent values differ and no schedule can explain it: {fit.declared}"
        yield Reason(State.INCONCLUSIVE, "no_schedule", text)


def _not_compared(observed: Observed, policy: Policy) -> Iterator[Reason]:
    for missing in observed.not_compared:
        text = f"{missing.tensor} was not compared: {missing.path} shows none"
        yield Reason(State.INCONCLUSIVE, "not_compared", text)


def _unanswered(observed: Observed, policy: Policy) -> Iterator[Reason]:
    for text in observed.unanswered:
        yield Reason(State.INCONCLUSIVE, NOT_KEPT, text)


def _latent_differs(observed: Observed) -> bool:
    return any(not w.bits_equal.get("latent", True) for w in observed.widths)


def _sets(observed: Observed, policy: Policy) -> Iterator[Reason]:
    for summary in observed.widths:
        for name in SetClass:
            count = summary.counts.get(name, 0)
            if not count or name in (SetClass.IDENTICAL, SetClass.REORDERED, SetClass.INVALID):
                continue
            where = f"{count:,} of {summary.rows:,} rows at width {summary.width}"
            state, text = set_reason(name, where, policy)
            yield Reason(state, name, text, summary.width)


def set_reason(name: SetClass, where: str, policy: Policy) -> tuple[State, str]:
    """State and sentence of differing rows of one class."""
    if name in EXACT_TIES and policy.tie_contract == "lower_id":
        return State.FAIL, f"{name}: {where}; the tie contract demands the lower id"
    if name in TIES or (name is SetClass.TIE_GROUP and not policy.one_for_one):
        return State.PASS_WITH_LIMITATIONS, f"{name}: {where}"
    if name is SetClass.NOISE_SWAP:
        text = f"{name}: {where}, within the declared perturbation {policy.noise_abs:g}"
        return State.PASS_WITH_LIMITATIONS, text
    if name is SetClass.TIE_GROUP:
        return State.FAIL, f"{name}: {where}; only 1-for-1 swaps may be ties"
    return State.FAIL, f"{name}: {where}, beyond the window of {policy.window_ulp} ULP"


def _weights(observed: Observed, policy: Policy) -> Iterator[Reason]:
    for summary in observed.widths:
        largest = summary.max_weight_ulp
        if largest is not None and largest > policy.weight_budget_ulp:
            kinds = ", ".join(
                f"{name} {count:,}"
                for name, count in summary.weight_classes.items()
                if name not in ("equal", "drift")
            )
            text = (
                f"weights differ by up to {largest:,} FP32 ULP at width {summary.width}, "
                f"budget {policy.weight_budget_ulp}" + (f" ({kinds} rows)" if kinds else "")
            )
            yield Reason(State.FAIL, "weight_budget", text, summary.width)


def _rates(observed: Observed, policy: Policy) -> Iterator[Reason]:
    # Bonferroni over the widths: one of several must not fail by luck.
    alpha = (1 - policy.confidence) / max(1, len(observed.widths))
    for summary in observed.widths:
        if summary.certified or not summary.rows:
            continue
        if not summary.units:
            text = (
                f"no valid row at width {summary.width} is an independent sample of what differs: "
                "no rate is bounded"
            )
            yield Reason(State.INCONCLUSIVE, "set_rate", text, summary.width)
            continue
        seen = f"{summary.differing_units:,} of {summary.units:,} units differ"
        least = lower_bound(summary.differing_units, summary.units, 1 - alpha)
        if least > policy.set_rate:
            text = (
                f"set rate at width {summary.width} is at least {least:.2e}, limit "
                f"{policy.set_rate:g} ({seen})"
            )
            yield Reason(State.FAIL, "set_rate", text, summary.width)
            continue
        needed = rows_needed(policy.set_rate, 1 - alpha, summary.differing_units)
        text = (
            f"set rate at width {summary.width} is at most {summary.set_rate_upper:.2e} at "
            f"{percent(policy.confidence)}, limit {policy.set_rate:g} ({seen}); with no further "
            f"event {needed:,} units would certify it over {len(observed.widths)} widths"
        )
        yield Reason(State.INCONCLUSIVE, "set_rate", text, summary.width)


def _doubts(observed: Observed, policy: Policy) -> Iterator[Reason]:
    for text in observed.doubts:
        yield Reason(State.INCONCLUSIVE, "gate_contradicted", text)


def _limitations(observed: Observed, policy: Policy) -> Iterator[Reason]:
    for text in observed.limitations:
        yield Reason(State.PASS_WITH_LIMITATIONS, "limitation", text)
    for text in observed.uncounted:
        yield Reason(State.PASS_WITH_LIMITATIONS, "independence_unit", text)
    if policy.flush_to_zero:
        text = "the policy declares that subnormals may be flushed to zero: they count as zero"
        yield Reason(State.PASS_WITH_LIMITATIONS, "flush_to_zero", text)


def _numerics_class(observed: Observed, failing: set[str]) -> tuple[NumericsClass, str | None]:
    """Return the class of what was seen, and the structural tag of LIGHT."""
    widths = [w for w in observed.widths if w.rows]
    if not widths:
        return NumericsClass.UNKNOWN, None
    if failing:
        return NumericsClass.BEHAVIOURAL, None
    if all(all(w.bits_equal.values()) for w in widths):
        return NumericsClass.BITWISE, None
    present = {name for w in widths for name, count in w.counts.items() if count}
    same_values = all(
        equal
        for w in widths
        for name, equal in w.bits_equal.items()
        if name in ("latent", "logits")
    )
    same_weights = all(not w.max_weight_ulp for w in widths)
    if present <= {SetClass.IDENTICAL, SetClass.REORDERED} and same_values and same_weights:
        return NumericsClass.REORDER, None
    if SetClass.NOISE_SWAP in present:
        return NumericsClass.VISIBLE, None
    if not _latent_differs(observed):
        return NumericsClass.LIGHT, "FP32-structural"
    fit = observed.schedule
    if fit is None or fit.fits is None:
        return NumericsClass.UNKNOWN, None
    return NumericsClass.LIGHT, "BF16-structural"
