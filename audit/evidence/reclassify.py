"""What stored certificates and counts say under other limits, and where they cannot answer.

An audit keeps the gap of every differing row, so another window or perturbation moves 1-for-1
swaps from class to class exactly. Batch findings and row flags were searched for under the recorded
limits only: where a stored count shows that other limits would judge a row otherwise, either a
finding could disappear, which is refused, or one could appear, which is told as unanswered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ...banks.errors import InputError
from ..compare import BASELINE, CANDIDATE
from ..counts import Histograms
from ..histograms import BEYOND, lines_table
from ..metrics.findings import Finding
from ..metrics.swaps import SetClass
from ..metrics.weights import EXACT_BINS, WeightClass
from ..policy import Policy

MOVABLE: Final = frozenset({SetClass.NEAR_TIE, SetClass.NOISE_SWAP, SetClass.FAR_SWAP})
"""Classes of a 1-for-1 swap that window and perturbation decide; ties have a gap of 0."""
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


@dataclass(frozen=True, eq=False)
class Stored:
    """What an evidence directory keeps of the rows: tables as in ``Evidence``, and findings."""

    swaps: pa.Table
    histograms: pa.Table
    values: pa.Table | None
    findings: tuple[str, ...]


def classes_of(certificate: Mapping[str, Any], policy: Policy) -> tuple[SetClass, ...]:
    """Return the set classes that a certificate's gaps allow; one, but for several equal gaps.

    The rules are those of ``classify_sets``. Whether all exchanged keys are equal is more than
    their gaps of 0 say, so several experts at gap 0 may be a ``tie_group`` or a ``multi_swap``.
    """
    gap, absolute = certificate["gap_ulp"], certificate["gap_abs"]
    if len(certificate["dropped"]) == 1 and gap == 0:
        return (SetClass.EXACT_TIE,)
    if certificate["gap_group_ulp"] == 0:
        return (SetClass.GROUP_TIE,)
    if len(certificate["dropped"]) != 1:
        both = (SetClass.TIE_GROUP, SetClass.MULTI_SWAP)
        return both if gap == 0 else (SetClass.MULTI_SWAP,)
    if gap is not None and gap <= policy.window_ulp:
        return (SetClass.NEAR_TIE,)
    if absolute is not None and absolute <= policy.noise_abs:
        return (SetClass.NOISE_SWAP,)
    return (SetClass.FAR_SWAP,)


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
        found = _moved(stored, histograms, recorded, policy, where)
        unanswered += _searched_again(stored, found, histograms, recorded, policy, where)
    if policy.weight_budget_ulp != recorded.weight_budget_ulp:
        unanswered += _budget(stored, histograms, recorded, policy, where)
        found = _without_weight_classes(found, histograms, recorded, policy)
    return found, unanswered


def _moved(
    stored: Stored, histograms: Histograms, recorded: Policy, policy: Policy, where: str
) -> Stored:
    """Put every 1-for-1 swap into the class that its gap has under the policy."""
    certificates = stored.swaps.to_pylist()
    _check_complete(certificates, histograms, recorded, policy, where)
    moves: dict[tuple[str, int], Counter[str]] = {}
    classes = []
    for certificate in certificates:
        old = new = certificate["set_class"]
        if old in MOVABLE:
            (new,) = classes_of(certificate, policy)
        classes.append(str(new))
        place = moves.setdefault((certificate["bank"], certificate["width"]), Counter())
        place[old] -= certificate["replicas"]
        place[str(new)] += certificate["replicas"]
    index = stored.swaps.schema.get_field_index("set_class")
    field = stored.swaps.schema.field(index)
    swaps = stored.swaps.set_column(index, field, pa.array(classes, field.type))
    lines = list(_recounted(stored.histograms.to_pylist(), moves))
    return Stored(swaps, lines_table(lines), stored.values, stored.findings)


def _recounted(
    lines: list[dict[str, Any]], moves: Mapping[tuple[str, int], Counter[str]]
) -> Iterator[dict[str, Any]]:
    """Apply the moves to the lines of ``set_class``, and to those of all widths of a bank."""
    open_moves: dict[tuple[str, int | None], Counter[str]] = {}
    classed = {(line["bank"], line["width"]) for line in lines if line["metric"] == "set_class"}
    for (bank, width), counts in moves.items():
        for place in ((bank, width), (bank, None)):
            if place in classed:
                open_moves.setdefault(place, Counter()).update(counts)
    last = {
        (line["bank"], line["width"]): number
        for number, line in enumerate(lines)
        if line["metric"] == "set_class"
    }
    for number, line in enumerate(lines):
        place = (line["bank"], line["width"])
        if line["metric"] != "set_class" or place not in open_moves:
            yield line
            continue
        yield {**line, "count": line["count"] + open_moves[place].pop(line["key"], 0)}
        if number == last[place]:
            for key, count in open_moves[place].items():
                if count:
                    yield {**line, "key": key, "count": count}


def _check_complete(
    certificates: list[dict[str, Any]],
    histograms: Histograms,
    recorded: Policy,
    policy: Policy,
    where: str,
) -> None:
    """Refuse where a differing row has no certificate: its gap is not known."""
    held: Counter[tuple[str, int]] = Counter()
    for certificate in certificates:
        if certificate["set_class"] in MOVABLE:
            held[certificate["bank"], certificate["width"]] += certificate["replicas"]
    for bank, width in histograms.places():
        if width is None:
            continue
        counted = histograms.named(bank, width, "set_class")
        missing = sum(counted[kind] for kind in MOVABLE) - held[bank, width]
        if missing:
            _refuse(
                recorded, policy, f"{missing:,} swaps of {bank} at width {width} are counted and "
                "have no certificate", where,
            )  # fmt: skip


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
        _refuse(recorded, policy, f"{', '.join(depends)} was found under them", where)
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
        _refuse(recorded, policy, f"{', '.join(depends)} was found under them", where)
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

    On rows with the reference's set, the rule's weights are the reference's, to within the one
    step that a value between two FP32 values may round to either.
    """
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


def _refuse(recorded: Policy, policy: Policy, why: str, where: str) -> None:
    names = [
        name
        for name in ("window_ulp", "noise_abs", "weight_budget_ulp")
        if getattr(recorded, name) != getattr(policy, name)
    ]
    got = ", ".join(f"{name} {getattr(policy, name):g}" for name in names)
    known = ", ".join(f"{getattr(recorded, name):g}" for name in names)
    raise InputError("policy", got, f"{known} as recorded: {why}; audit again", where)
