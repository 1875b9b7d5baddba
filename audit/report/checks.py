"""A record as a list of checks, each of one width, bank and metric: what JUnit readers show.

A check repeats what the verdict says; it judges nothing anew. Reasons name their width in their
text, and the counts of a bank say whether the bank takes part in a reason of its width.

Signatures state the checks too (``evidence/signed_tests.py``): a change that gives stored evidence
another state raises ``evidence.statement.FORM``, so that signatures that are there still verify.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from ..gate.record import GateRecord
from ..metrics.flags import FAILING, Breach, names
from ..metrics.swaps import SetClass
from ..number_words import percent
from ..record import AuditRecord
from ..verdict import State
from .check import Check, check_of, finding_reasons, findings_at
from .figures import schedule_line
from .triangle_checks import triangle_checks

ALL_BANKS: Final = "all banks"
ALL_WIDTHS: Final = "all widths"
BANK_METRICS: Final = ("set_classes", "weight_budget", "contracts", "findings")
"""Metrics that exist per bank; ``set_rate`` is pooled over the banks of a width."""

_SETS: Final = frozenset(str(c) for c in SetClass)
_POOLED: Final = ("schedule_mismatch", "no_schedule")


Triangles = Mapping[tuple[str, int], Sequence[Check]]


def checks(result: AuditRecord | GateRecord) -> list[Check]:
    """Return every check of a record: by width, then by bank, then what is of all widths."""
    triangles = triangle_checks(result) if isinstance(result, AuditRecord) else {}
    return checks_of(result.record, result.histograms, triangles)


def checks_of(
    record: Mapping[str, Any], histograms: pa.Table, triangles: Triangles | None = None
) -> list[Check]:
    """Return the checks of an audit's or a gate's record and counts, as ``checks``.

    Args:
        record: of an audit or a gate.
        histograms: its counts.
        triangles: checks by (bank, width) that follow from the record's values.
    """
    lines = histograms.to_pylist()
    counts, largest = _counts(lines), _largest_weights(lines)
    found: list[Check] = []
    # A width of which nothing ran has no summary, yet it was asked for.
    for width in dict.fromkeys(item["width"] for item in record["coverage"]):
        for item in record["coverage"]:
            if item["width"] == width:
                found += _of_bank(record, item, counts, largest)
                found += (triangles or {}).get((item["bank"], width), ())
        found.append(_set_rate(record, width))
    if record.get("kind") != "gate":
        found.append(_schedule(record))
    return [*found, _verdict(record)]


Lines = Sequence[Mapping[str, Any]]
Counts = Mapping[tuple[str, int], Mapping[str, int]]
Largest = Mapping[tuple[str, int], int]


def _counts(lines: Lines) -> Counts:
    """By (bank, width): counts by set class, and by the codes of breaches and flags."""
    counts: dict[tuple[str, int], dict[str, int]] = {}
    for line in lines:
        if line["metric"] not in ("set_class", "breach", "flag"):
            continue
        code = line["key"] if line["metric"] == "set_class" else f"{line['metric']}:{line['key']}"
        table = counts.setdefault((line["bank"], line["width"]), {})
        table[code] = table.get(code, 0) + line["count"]
    return counts


def _largest_weights(lines: Lines) -> Largest:
    """By (bank, width): the largest distance of a weight in FP32 ULP."""
    largest: dict[tuple[str, int], int] = {}
    for line in lines:
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
        yield check_of(
            width, bank, metric, taken, f"row x rank of this bank: {here}" if here else ""
        )
    yield _weights(record, bank, width, largest.get((bank, width)), reasons)
    yield check_of(width, bank, "findings", finding_reasons(findings_at(record, bank, width)))


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
        return check_of(width, bank, "weight_budget", [])
    taken = [r for r in reasons if r["code"] == "weight_budget"] if largest > budget else []
    text = f"largest of this bank: {largest:,} FP32 ULP, budget {budget:,}"
    return check_of(width, bank, "weight_budget", taken, text)


def _set_rate(record: Mapping[str, Any], width: int) -> Check:
    found = next((w for w in record["widths"] if w["width"] == width), None)
    if found is None or not found["rows"]:
        return Check(width, ALL_BANKS, "set_rate", State.NOT_RUN, "no row was run at this width")
    reasons = [r for r in _about(record, width) if r["code"] == "set_rate"]
    if reasons:
        return check_of(width, ALL_BANKS, "set_rate", reasons)
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
        return check_of(None, ALL_BANKS, "schedule", reasons)
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
