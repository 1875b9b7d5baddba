"""What stored evidence says under other limits, and what it cannot answer.

Swaps are classed anew exactly. Wrong weights and batch findings were searched for under the
recorded limits only. A row with a wrong weight has one under a smaller budget too, so that what
failed by it still fails; what may disappear is left out, what may appear is unknown, and both are
told as unanswered.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final, Literal

from ..compare import BASELINE, CANDIDATE
from ..counts import Histograms
from ..histograms import BEYOND, lines_table
from ..metrics.swaps import SetClass
from ..metrics.weights import EXACT_BINS, WeightClass
from ..policy import Policy
from .kept_findings import Change, doubt_text, largest_weight, split
from .reclassify import MOVABLE, Stored, moved

_FAR: Final = frozenset({SetClass.FAR_SWAP, SetClass.MULTI_SWAP})
_BUDGET_FLAGS: Final = ("weights_not_from_ids", "wrong_sum")


@dataclass(frozen=True)
class OtherLimits:
    """What evidence says under other limits.

    Attributes:
        stored: tables as those limits class them, and the findings that hold under them.
        unanswered: what only a new audit tells.
        other_rows: whether they may call other rows wrong than the recorded ones did.
        undecided: whether not even what fails can be told.
    """

    stored: Stored
    unanswered: list[str]
    other_rows: bool = False
    undecided: bool = False


def under(stored: Stored, recorded: Policy, policy: Policy, where: str) -> OtherLimits:
    """Return the tables as ``policy`` would have classed them, and what they cannot answer.

    Args:
        stored: tables and findings.
        recorded: the policy that they were made under.
        policy: the other one, its overrides applied.
        where: the evidence, for messages.

    Raises:
        InputError: differing rows that the tables count have no certificate.
    """
    histograms = Histograms(stored.histograms)
    open_question = _open_question(histograms, recorded, policy)
    if open_question is not None:
        return OtherLimits(stored, [open_question], other_rows=True, undecided=True)
    unanswered: list[str] = []
    found, window = stored, Change().window
    if _windows(recorded) != _windows(policy):
        found = moved(stored, histograms, recorded, policy, where)
        window = _window_change(stored, found, histograms, recorded, policy)
        if window != "same":
            unanswered += _searched_again(stored, found, histograms, recorded, policy)
    lost = _lost_ties(histograms) if policy.tie_contract != recorded.tie_contract else 0
    change = Change(window, _budget_change(recorded, policy), bool(lost))
    if change.budget != "same":
        unanswered += _budget(stored, histograms, recorded, policy)
        found = _without_weight_classes(found, histograms, recorded, policy)
    if change.budget == "larger":
        found = _without_wrong_weights(found)
    if lost and policy.tie_contract == "lower_id":
        unanswered.append(
            f"{lost:,} rows of a path lose an exact tie, and what explains them was not asked "
            "under the recorded tie contract: a new audit is needed to tell"
        )
    held, doubtful = split(stored.findings, change, histograms, policy)
    unanswered += doubt_text(doubtful, *_limits_text(recorded, policy))
    return OtherLimits(replace(found, findings=tuple(held)), unanswered, change != Change())


def _open_question(histograms: Histograms, recorded: Policy, policy: Policy) -> str | None:
    """What must be known before anything can be said of the rows; None where all of it is."""
    places = histograms.places()
    rows = sum(histograms.named(*place, "sample")["rows"] for place in places)
    if rows and policy.flush_to_zero != recorded.flush_to_zero:
        return (
            f"rows were compared with flush_to_zero = {str(recorded.flush_to_zero).lower()}: a new "
            "audit is needed to tell what subnormals change"
        )
    left_out = sum(
        histograms.named(bank, width, "gate")["left_out"]
        for bank, width in places
        if width is not None
    )
    if left_out and _windows(recorded) != _windows(policy):
        return (
            f"{left_out:,} differing rows have no certificate, and so no gap to hold against "
            f"window {policy.window_ulp} ULP and perturbation {policy.noise_abs:g}: a new gate is "
            "needed"
        )
    return None


def _windows(policy: Policy) -> tuple[int, float]:
    return policy.window_ulp, policy.noise_abs


def _limits_text(recorded: Policy, policy: Policy) -> tuple[str, str]:
    """The limits that differ, as they were and as they are."""
    names = [
        name
        for name in ("window_ulp", "noise_abs", "weight_budget_ulp", "tie_contract")
        if getattr(recorded, name) != getattr(policy, name)
    ]
    first, second = (
        ", ".join(f"{name} {getattr(limits, name)}" for name in names)
        for limits in (recorded, policy)
    )
    return first, second


def _budget_change(recorded: Policy, policy: Policy) -> Literal["same", "smaller", "larger"]:
    if policy.weight_budget_ulp == recorded.weight_budget_ulp:
        return "same"
    return "smaller" if policy.weight_budget_ulp < recorded.weight_budget_ulp else "larger"


def _window_change(
    stored: Stored, found: Stored, histograms: Histograms, recorded: Policy, policy: Policy
) -> Literal["same", "narrower", "wider"]:
    if not _rows_between(histograms, recorded, policy) and _far(stored) == _far(found):
        return "same"
    wider = policy.window_ulp > recorded.window_ulp or policy.noise_abs > recorded.noise_abs
    return "wider" if wider else "narrower"


def _lost_ties(histograms: Histograms) -> int:
    """Rows of a path that gave an exact tie to a higher id: failing ones under ``lower_id``."""
    return sum(
        histograms.steps(bank, width, "reference_gap", path)[0]
        for bank, width in histograms.places()
        for path in (BASELINE, CANDIDATE)
    )


def _searched_again(
    stored: Stored, found: Stored, histograms: Histograms, recorded: Policy, policy: Policy
) -> list[str]:
    """What the search for batch findings would see otherwise."""
    moved = _rows_between(histograms, recorded, policy)
    changed = _far(stored) != _far(found)
    narrower = policy.window_ulp < recorded.window_ulp or policy.noise_abs < recorded.noise_abs
    wrong = narrower or _rows_wrong(histograms, min(policy.window_ulp, recorded.window_ulp))
    several = changed and max(_far(found).values(), default=0) > 1
    if not several and not (moved and wrong):
        return []
    return [
        f"batch findings were searched for under window {recorded.window_ulp} ULP and perturbation "
        f"{recorded.noise_abs:g} only, and rows are judged otherwise under {policy.window_ulp} ULP "
        f"and {policy.noise_abs:g}: a new audit is needed to exclude them"
    ]


def _far(stored: Stored) -> dict[tuple[str, int], int]:
    """Differing rows that no tie or perturbation explains, by bank and width."""
    places: Counter[tuple[str, int]] = Counter()
    for certificate in stored.swaps.select(["bank", "width", "set_class"]).to_pylist():
        if certificate["set_class"] in _FAR:
            places[certificate["bank"], certificate["width"]] += 1
    return dict(places)


def _rows_between(histograms: Histograms, recorded: Policy, policy: Policy) -> int:
    """Rows of a path whose distance from the reference the two policies judge otherwise."""
    low, high = sorted((recorded.window_ulp, policy.window_ulp))
    if recorded.noise_abs != policy.noise_abs:
        # A perturbation is no number of steps: it may hold any gap beyond the window.
        high = 1 << 62
    rows = 0
    for bank, width in histograms.places():
        for path in (BASELINE, CANDIDATE):
            gaps = histograms.steps(bank, width, "reference_gap", path)
            rows += sum(n for gap, n in gaps.items() if gap <= high and _bin_end(gap) > low)
            sampled = histograms.named(bank, width, "reference", path)
            rows += sum(sampled[kind] for kind in MOVABLE)
    return rows


def _rows_wrong(histograms: Histograms, window: int) -> bool:
    """Whether a row of a path may be beyond the window of the reference, or has wrong weights."""
    for bank, width in histograms.places():
        for path in (BASELINE, CANDIDATE):
            gaps = histograms.steps(bank, width, "reference_gap", path)
            flags = histograms.named(bank, width, "flag", path)
            sampled = histograms.named(bank, width, "reference", path)
            if (
                any(_bin_end(gap) > window for gap in gaps)
                or histograms.named(bank, width, "reference_gap", path)[BEYOND]
                or any(flags[name] for name in _BUDGET_FLAGS)
                or any(sampled[kind] for kind in (*MOVABLE, SetClass.MULTI_SWAP))
            ):
                return True
    return False


def _bin_end(steps: int) -> int:
    """The widest gap of a bin, see ``EXACT_BINS``."""
    return steps if steps <= EXACT_BINS else 2 * steps - 1


def _budget(stored: Stored, histograms: Histograms, recorded: Policy, policy: Policy) -> list[str]:
    """What is not known of each path's weights by their own rule under another budget."""
    wanted = policy.weight_budget_ulp
    flagged = sum(
        histograms.named(bank, width, "flag", path)[name]
        for bank, width in histograms.places()
        for path in (BASELINE, CANDIDATE)
        for name in _BUDGET_FLAGS
    )
    if wanted > recorded.weight_budget_ulp:
        # Wrong weights there are none; agreeing on a wrong set needs a wrong set.
        settled = not _rows_wrong(histograms, recorded.window_ulp)
        fate = "may have none"
    else:
        settled = _weights_near_reference(stored, histograms, wanted)
        fate = "have one still, others may"
    if settled:
        return []
    counted = f": {flagged:,} rows had a wrong one, and {fate}" if flagged else ""
    return [
        f"each path's weights were held against their own rule within "
        f"{recorded.weight_budget_ulp} FP32 ULP only{counted}: a new audit is needed for {wanted}"
    ]


def _weights_near_reference(stored: Stored, histograms: Histograms, budget: int) -> bool:
    """Whether stored distances prove every weight within the budget of its own rule.

    Where nothing was compared, nothing is beyond it. On rows with the reference's set, the rule's
    weights are the reference's, to within the one step that a value between two FP32 values may
    round to either.
    """
    if not any(histograms.named(*place, "sample") for place in histograms.places()):
        return True
    if stored.values is None:
        return False
    for bank, width in histograms.places():
        for path in (BASELINE, CANDIDATE):
            if histograms.lines(bank, width, "reference_gap", path):
                return False
    sides = [
        row
        for row in stored.values.to_pylist()
        if row["tensor"] == "weights" and row["pair"] != "candidate_baseline"
    ]
    return bool(sides) and all(
        not row["undefined"] and (row["max_ulp"] or 0) + 1 <= budget for row in sides
    )


def _without_weight_classes(
    found: Stored, histograms: Histograms, recorded: Policy, policy: Policy
) -> Stored:
    """Leave out the weight classes of places where a row lies beyond the smaller budget."""
    least = min(recorded.weight_budget_ulp, policy.weight_budget_ulp)
    unknown = set()
    for bank, width in histograms.places():
        kinds = histograms.named(bank, width, "weight_class")
        other = sum(n for k, n in kinds.items() if k not in (WeightClass.EQUAL, WeightClass.DRIFT))
        if other or largest_weight(histograms, bank, width) > least:
            unknown.add((bank, width))
    kept = [
        line
        for line in found.histograms.to_pylist()
        if line["metric"] != "weight_class" or (line["bank"], line["width"]) not in unknown
    ]
    return replace(found, histograms=lines_table(kept))


def _without_wrong_weights(found: Stored) -> Stored:
    """Leave out the rows with a wrong weight: under a larger budget it may be right."""
    kept = [
        line
        for line in found.histograms.to_pylist()
        if line["metric"] != "flag" or line["key"] not in _BUDGET_FLAGS
    ]
    return replace(found, histograms=lines_table(kept))
