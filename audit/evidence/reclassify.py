"""The class of a stored swap under a window and a perturbation; tables with swaps classed anew.

An audit keeps the gap of every differing row, so another window or perturbation moves 1-for-1
swaps from class to class exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import pyarrow as pa

from ...banks.errors import InputError
from ..counts import Histograms
from ..histograms import lines_table
from ..metrics.swaps import SetClass
from ..observed import BatchFinding
from ..policy import Policy

MOVABLE: Final = frozenset({SetClass.NEAR_TIE, SetClass.NOISE_SWAP, SetClass.FAR_SWAP})
"""Classes of a 1-for-1 swap that window and perturbation decide; ties have a gap of 0."""


@dataclass(frozen=True, eq=False)
class Stored:
    """What an evidence directory keeps of the rows: tables as in ``Evidence``, and findings."""

    swaps: pa.Table
    histograms: pa.Table
    values: pa.Table | None
    findings: tuple[BatchFinding, ...]


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


def moved(
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
            refuse(
                recorded, policy, f"{missing:,} swaps of {bank} at width {width} are counted and "
                "have no certificate", where,
            )  # fmt: skip


def refuse(recorded: Policy, policy: Policy, why: str, where: str) -> NoReturn:
    """Raise: the policy's limits ask for rows that are not kept."""
    names = [
        name
        for name in ("window_ulp", "noise_abs", "weight_budget_ulp")
        if getattr(recorded, name) != getattr(policy, name)
    ]
    got = ", ".join(f"{name} {getattr(policy, name):g}" for name in names)
    known = ", ".join(f"{getattr(recorded, name):g}" for name in names)
    raise InputError("policy", got, f"{known} as recorded: {why}; audit again", where)
