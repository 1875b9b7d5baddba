"""What stored evidence says under other limits, and what it cannot answer.

Swaps are classed anew exactly. Batch findings and row flags were searched for under the recorded
limits only: where a stored count shows that other limits would judge a row otherwise, either a
finding could disappear, which is refused, or one could appear, which is told as unanswered.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from ..compare import BASELINE, CANDIDATE
from ..counts import Histograms
from ..histograms import BEYOND, lines_table
from ..metrics.findings import Finding
from ..metrics.swaps import SetClass
from ..metrics.weights import EXACT_BINS, WeightClass
from ..policy import Policy
from .reclassify import MOVABLE, Stored, moved, refuse

_FAR: Final = frozenset({SetClass.FAR_SWAP, SetClass.MULTI_SWAP})
_WHATEVER_THE_LIMITS: Final = frozenset(
    {
        Finding.RANK_DISAGREEMENT,
        Finding.LAYOUT_PERMUTATION,
        Finding.NEVER_SELECTED,
        Finding.NONDETERMINISTIC,
        Finding.WIDTH_DEPENDENT,
        Finding.REFERENCE_INVALID,
        Finding.NONFINITE_OUTPUT,
        Finding.WRONG_LOGITS,
        Finding.SCHEDULE_MISMATCH,
    }
)
"""Findings that no window and no budget has a part in."""
_BUDGET_FLAGS: Final = ("weights_not_from_ids", "wrong_sum")


def under(stored: Stored, recorded: Policy, policy: Policy, where: str) -> tuple[Stored, list[str]]:
    """Return the tables as ``policy`` would have classed them, and what they cannot answer.

    Args:
        stored: tables and findings' names.
        recorded: the policy that they were made under.
        policy: the other one.
        where: the evidence, for messages.

    Raises:
        InputError: an answer would need rows that are not kept.
    """
    unanswered: list[str] = []
    found = stored
    histograms = Histograms(stored.histograms)
    if (policy.window_ulp, policy.noise_abs) != (recorded.window_ulp, recorded.noise_abs):
        found = moved(stored, histograms, recorded, policy, where)
        unanswered += _searched_again(stored, found, histograms, recorded, policy, where)
    if policy.weight_budget_ulp != recorded.weight_budget_ulp:
        unanswered += _budget(stored, histograms, recorded, policy, where)
        found = _without_weight_classes(found, histograms, recorded, policy)
    if policy.tie_contract == "lower_id" != recorded.tie_contract:
        unanswered += _lost_ties(histograms)
    return found, unanswered


def _lost_ties(histograms: Histograms) -> list[str]:
    """Exact ties that a path gave to a higher id: failing rows from now on."""
    rows = sum(
        histograms.steps(bank, width, "reference_gap", path)[0]
        for bank, width in histograms.places()
        for path in (BASELINE, CANDIDATE)
    )
    if not rows:
        return []
    return [
        f"{rows:,} rows of a path lose an exact tie, and what explains them was not asked under "
        "the recorded tie contract: a new audit is needed to tell"
    ]


def _searched_again(
    stored: Stored,
    found: Stored,
    histograms: Histograms,
    recorded: Policy,
    policy: Policy,
    where: str,
) -> list[str]:
    """What the search for batch findings would see otherwise."""
    moved = _rows_between(histograms, recorded, policy)
    changed = _far(stored) != _far(found)
    if not moved and not changed:
        return []
    depends = sorted(set(stored.findings) - _WHATEVER_THE_LIMITS)
    if depends:
        refuse(recorded, policy, f"{', '.join(depends)} was found under them", where)
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


def _budget(
    stored: Stored, histograms: Histograms, recorded: Policy, policy: Policy, where: str
) -> list[str]:
    """What row flags and findings would be under another weight budget."""
    depends = sorted(set(stored.findings) - _WHATEVER_THE_LIMITS)
    flagged = sum(
        histograms.named(bank, width, "flag", path)[name]
        for bank, width in histograms.places()
        for path in (BASELINE, CANDIDATE)
        for name in _BUDGET_FLAGS
    )
    if flagged:
        depends.append(f"a wrong weight in {flagged:,} rows")
    if depends:
        refuse(recorded, policy, f"{', '.join(depends)} was found under them", where)
    if policy.weight_budget_ulp > recorded.weight_budget_ulp:
        # Wrong weights there are none; agreeing on a wrong set needs a wrong set.
        settled = not _rows_wrong(histograms, recorded.window_ulp)
    else:
        settled = _weights_near_reference(stored, histograms, policy.weight_budget_ulp)
    if settled:
        return []
    return [
        f"each path's weights were held against their own rule within "
        f"{recorded.weight_budget_ulp} FP32 ULP only: a new audit is needed for "
        f"{policy.weight_budget_ulp}"
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
        worst = max((x["steps"] for x in histograms.lines(bank, width, "worst_weight")), default=0)
        if other or worst > least:
            unknown.add((bank, width))
    kept = [
        line
        for line in found.histograms.to_pylist()
        if line["metric"] != "weight_class" or (line["bank"], line["width"]) not in unknown
    ]
    return Stored(found.swaps, lines_table(kept), found.values, found.findings)
