"""A record as a list of checks, each of one width, bank and metric: what JUnit readers show.

A check repeats what the verdict says; it judges nothing anew. Reasons name their width in their
text, and the counts of a bank say whether the bank takes part in a reason of its width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..metrics.flags import FAILING, Breach, names
from ..metrics.swaps import SetClass
from ..number_words import percent
from ..record import AuditRecord
from ..verdict import State
from .figures import schedule_line

ALL_BANKS: Final = "all banks"
ALL_WIDTHS: Final = "all widths"
BANK_METRICS: Final = ("set_classes", "weight_budget", "contracts", "findings")
"""Metrics that exist per bank; ``set_rate`` is pooled over the banks of a width."""

_SETS: Final = frozenset(str(c) for c in SetClass)
_POOLED: Final = ("schedule_mismatch", "no_schedule")


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        width: rows per launch; None where the check is of all widths.
        bank: name, or ``ALL_BANKS``.
        metric: one of ``BANK_METRICS``, ``set_rate``, ``schedule`` or ``verdict``.
        state: what the check comes to; its reasons are in ``text``.
    """

    width: int | None
    bank: str
    metric: str
    state: State
    text: str = ""


def checks(result: AuditRecord) -> list[Check]:
    """Return every check of a record: by width, then by bank, then what is of all widths."""
    record = result.record
    counts, largest = _counts(result), _largest_weights(result)
    found: list[Check] = []
    # A width of which nothing ran has no summary, yet it was asked for.
    for width in dict.fromkeys(item["width"] for item in record["coverage"]):
        for item in record["coverage"]:
            if item["width"] == width:
                found += _of_bank(record, item, counts, largest)
        found.append(_set_rate(record, width))
    return [*found, _schedule(record), _verdict(record)]


Counts = Mapping[tuple[str, int], Mapping[str, int]]
Largest = Mapping[tuple[str, int], int]


def _counts(result: AuditRecord) -> Counts:
    """By (bank, width): counts by set class, and by the codes of breaches and flags."""
    counts: dict[tuple[str, int], dict[str, int]] = {}
    for line in result.histograms.to_pylist():
        if line["metric"] not in ("set_class", "breach", "flag"):
            continue
        code = line["key"] if line["metric"] == "set_class" else f"{line['metric']}:{line['key']}"
        table = counts.setdefault((line["bank"], line["width"]), {})
        table[code] = table.get(code, 0) + line["count"]
    return counts


def _largest_weights(result: AuditRecord) -> Largest:
    """By (bank, width): the largest distance of a weight in FP32 ULP."""
    largest: dict[tuple[str, int], int] = {}
    for line in result.histograms.to_pylist():
        if line["metric"] == "weight_ulp" and line["count"]:
            key = line["bank"], line["width"]
            largest[key] = max(largest.get(key, 0), line["steps"])
    return largest


def _of_bank(
    record: Mapping[str, Any], item: Mapping[str, Any], counts: Counts, largest: Largest
) -> Iterator[Check]:
    bank, width = item["bank"], item["width"]
    if not item["ran"]:
        for metric in BANK_METRICS:
            yield Check(width, bank, metric, State.NOT_RUN, item["reason"])
        return
    seen = {code: count for code, count in counts.get((bank, width), {}).items() if count}
    sets = {code: count for code, count in seen.items() if code in _SETS}
    broken = {code: count for code, count in seen.items() if code not in _SETS}
    reasons = _about(record, width)
    for metric, found in (("set_classes", sets), ("contracts", broken)):
        here = ", ".join(f"{code} {count:,}" for code, count in found.items())
        taken = [r for r in reasons if r["code"] in found]
        yield _check(width, bank, metric, taken, f"row x rank of this bank: {here}" if here else "")
    yield _weights(record, bank, width, largest.get((bank, width)), reasons)
    findings = [
        {
            "state": State.FAIL if f["fails"] else State.PASS_WITH_LIMITATIONS,
            "text": f"{f['name']}: {f['path']}: {f['text']}",
        }
        for f in record["findings"]
        if f["bank"] == bank and f["width"] == width
    ]
    yield _check(width, bank, "findings", findings)


def _weights(
    record: Mapping[str, Any],
    bank: str,
    width: int,
    largest: int | None,
    reasons: Sequence[Mapping[str, Any]],
) -> Check:
    """The width's reasons about weights, where this bank is past the budget too."""
    budget = record["policy"]["weight_budget_ulp"]
    if largest is None:
        return _check(width, bank, "weight_budget", [])
    taken = [r for r in reasons if r["code"] == "weight_budget"] if largest > budget else []
    text = f"largest of this bank: {largest:,} FP32 ULP, budget {budget:,}"
    return _check(width, bank, "weight_budget", taken, text)


def _set_rate(record: Mapping[str, Any], width: int) -> Check:
    found = next((w for w in record["widths"] if w["width"] == width), None)
    if found is None or not found["rows"]:
        return Check(width, ALL_BANKS, "set_rate", State.NOT_RUN, "no row was run at this width")
    reasons = [r for r in _about(record, width) if r["code"] == "set_rate"]
    if reasons:
        return _check(width, ALL_BANKS, "set_rate", reasons)
    text = (
        f"at most {found['set_rate_upper']:.2e} at {percent(found['confidence'])}, limit "
        f"{record['policy']['set_rate']:g}: {found['differing_units']:,} of "
        f"{found['units']:,} units differ"
    )
    # What is not certified passes in no wording of the reasons.
    state = State.PASS if found["certified"] else State.INCONCLUSIVE
    return Check(width, ALL_BANKS, "set_rate", state, text)


def _schedule(record: Mapping[str, Any]) -> Check:
    line = schedule_line(record)
    if line is None:
        return Check(None, ALL_BANKS, "schedule", State.NOT_RUN, "no bank has a latent to compare")
    # A finding of one bank may bear the same name.
    reasons = [
        r for r in record["verdict"]["reasons"] if r["code"] in _POOLED and r["bank"] is None
    ]
    if reasons:
        return _check(None, ALL_BANKS, "schedule", reasons)
    # Without a prediction nothing was tried: equal latents need no schedule.
    fits = {True: State.PASS, False: State.FAIL, None: State.NOT_RUN}
    return Check(None, ALL_BANKS, "schedule", fits[record["schedule"]["fits"]], line)


def _verdict(record: Mapping[str, Any]) -> Check:
    """The verdict with every reason: whatever no other check shows is here."""
    reasons = record["verdict"]["reasons"]
    text = "\n".join(f"{r['state']}: {r['text']}" for r in reasons)
    return Check(None, ALL_BANKS, "verdict", State(record["verdict"]["state"]), text)


def _about(record: Mapping[str, Any], width: int) -> list[Mapping[str, Any]]:
    """The reasons of classes, contracts, weights and rates at this width."""
    ours = {"weight_budget", "set_rate", *_SETS}
    ours |= {f"breach:{name}" for name in names(~Breach(0))}
    ours |= {f"flag:{name}" for name in names(FAILING)}
    return [r for r in record["verdict"]["reasons"] if r["code"] in ours and r["width"] == width]


def _check(
    width: int | None,
    bank: str,
    metric: str,
    reasons: Sequence[Mapping[str, Any]],
    figures: str = "",
) -> Check:
    """A check with the gravest of its reasons' states; that reason comes first."""
    order = list(State)
    ranked = sorted(reasons, key=lambda reason: order.index(State(reason["state"])))
    state = State(ranked[0]["state"]) if ranked else State.PASS
    lines = [*(reason["text"] for reason in ranked), *([figures] if figures else [])]
    return Check(width, bank, metric, state, "\n".join(lines))
