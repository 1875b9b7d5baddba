"""What a failing ``assert_equivalent`` says: as short as a kernel author can act on."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ...banks.bank import Bank
from ...banks.memory import MemoryBank
from ...kernels.contract import Path as FrontPath
from ...kernels.registry import spec_of
from ..number_words import percent
from ..result import AuditResult
from .figures import certificate_text, class_line, schedule_line, worst_certificates

_REASONS: Final = 8
_LONGEST_REASON: Final = 400
_LONGEST_BANK: Final = 2000


@dataclass(frozen=True)
class Asked:
    """What was asked to be equivalent.

    Attributes:
        banks: the open banks.
        baseline: a spec or an object.
        candidate: likewise.
        policy: file of the policy; None for the default one, empty for an object.
        certified: whether the bound of the set rate is demanded.
    """

    banks: Sequence[Bank]
    baseline: str | FrontPath
    candidate: str | FrontPath
    policy: str | None
    certified: bool

    def command(self, rows: Sequence[int], ranks: int, device: str) -> str | None:
        """Return the command that repeats the audit, or None where none can."""
        if self.obstacles():
            return None
        words = ["neartie", "audit", *(bank.spec for bank in self.banks)]
        for role in ("baseline", "candidate"):
            words += [f"--{role}", str(self.spec(role))]
        words += ["--rows", ",".join(map(str, rows)), "--ranks", str(ranks)]
        words += [] if device == "cpu" else ["--device", device]
        words += ["--policy", self.policy] if self.policy else []
        words += [] if self.certified else ["--no-gate"]
        return shlex.join(words)

    def obstacles(self) -> list[str]:
        """Return what a command cannot name."""
        found = [f"bank {bank.name} is in memory" for bank in self.banks if not bank.opens_again]
        for role in ("baseline", "candidate"):
            if self.spec(role) is None:
                found.append(f"{role} is an object (pass 'module:factory' to have it named)")
        return [*found, "the policy is an object"] if self.policy == "" else found

    def spec(self, role: str) -> str | None:
        """Return what makes a path again; None where only the object itself is known."""
        given: str | FrontPath = getattr(self, role)
        return given if isinstance(given, str) else spec_of(given, None)


def failure_text(
    result: AuditResult, objections: Sequence[str], asked: Asked, evidence: Path | None
) -> str:
    """Return the message of a failing assertion.

    Args:
        result: the audit.
        objections: why it is no proof of equivalence.
        asked: what was asked.
        evidence: where the evidence was written; None where it was not.
    """
    record = result.record
    candidate, baseline = record["candidate"]["name"], record["baseline"]["name"]
    lines = [
        f"{candidate} is not shown to be equivalent to {baseline}: "
        f"{record['verdict']['state']}, {class_line(record)}",
        *_why(objections),
        *_counts(record),
        *_worst(result, asked),
        *_repeat(record, asked),
    ]
    lines += [f"evidence: {evidence}"] if evidence is not None else []
    return "\n".join(lines)


def _why(objections: Sequence[str]) -> Iterator[str]:
    yield "why:"
    for text in objections[:_REASONS]:
        more = len(text) - _LONGEST_REASON
        cut = text if more <= 0 else f"{text[:_LONGEST_REASON]}... ({more} more characters)"
        yield f"  - {cut}"
    if len(objections) > _REASONS:
        yield f"  and {len(objections) - _REASONS} more reasons"


def _counts(record: Mapping[str, Any]) -> Iterator[str]:
    """Set classes, rate with its bound, and weights, widths with the same figures on one line."""
    policy = record["policy"]
    same: dict[tuple[str, ...], list[str]] = {}
    for width in record["widths"]:
        same.setdefault(tuple(_width_lines(width, policy)), []).append(str(width["width"]))
    if same:
        banks = ", ".join(f"{bank['name']} ({bank['rows']:,} rows)" for bank in record["banks"])
        yield f"seen: {banks}; {record['ranks']} ranks, {record['device']}, policy {policy['name']}"
    for lines, widths in same.items():
        yield f"  width {', '.join(widths)}: {lines[0]}"
        yield from (f"    {line}" for line in lines[1:])
    schedule = schedule_line(record)
    if schedule is not None:
        yield f"  {schedule}"


def _width_lines(width: Mapping[str, Any], policy: Mapping[str, Any]) -> Iterator[str]:
    counts = ", ".join(f"{name} {count:,}" for name, count in width["counts"].items() if count)
    yield f"{counts} of {width['rows']:,} row x rank ({width['unique_rows']:,} rows)"
    limit = f"limit {policy['set_rate']:g}"
    if width["units"]:
        yield (
            f"set rate {width['set_rate']:.2e} ({width['differing_units']:,} of "
            f"{width['units']:,} independent), at most {width['set_rate_upper']:.2e} at "
            f"{percent(policy['confidence'])}, {limit}"
        )
    else:
        yield f"set rate: no row is an independent sample, so none is bounded ({limit})"
    if width["max_weight_ulp"] is not None:
        worst = width["worst_weight"]
        where = f", at {worst['bank']} row {worst['row']}" if worst else ""
        yield (
            f"weights at most {width['max_weight_ulp']:,} FP32 ULP apart, budget "
            f"{policy['weight_budget_ulp']}{where}"
        )


def _worst(result: AuditResult, asked: Asked) -> Iterator[str]:
    """The gravest row and the code that rebuilds it; of weights where no set differs."""
    found = worst_certificates(result.swaps, 1)
    if found:
        total = result.swaps.num_rows
        yield f"worst row (of {total:,} certificates, one per row, width and distinct rank):"
        yield f"  {certificate_text(found[0])}"
        yield from _rebuild(asked, result.record, found[0], "row")
        return
    weights = [width for width in result.record["widths"] if width["max_weight_ulp"]]
    if weights:
        width = max(weights, key=lambda width: int(width["max_weight_ulp"]))
        row = {**width["worst_weight"], "width": width["width"]}
        yield "worst row (no set differs; the row whose weights are farthest apart):"
        worst = result.worst_weights.get((row["bank"], row["width"]))
        if worst is not None:
            yield (
                f"  {row['bank']} row {row['row']}, rank {row['rank']}, width {row['width']}, slot "
                f"{worst.slot} (expert {worst.expert}): got {worst.got} of the candidate, expected "
                f"{worst.expected} of the baseline, {worst.ulp:,} FP32 ULP apart"
            )
        yield from _rebuild(asked, result.record, row, "row, row.ids, row.weights")


def _rebuild(
    asked: Asked, record: Mapping[str, Any], row: Mapping[str, Any], shown: str
) -> Iterator[str]:
    """Code that runs the row again and prints what is ``shown`` of it."""
    bank = next((bank for bank in asked.banks if bank.name == row["bank"]), None)
    if bank is None:
        # A row of the near-tie gate, whose banks are its own.
        yield f"  row {row['row']} of {row['bank']}, which the near-tie gate ran"
        return
    yield "  rebuild it with"
    yield "    import neartie"
    place = repr(bank.spec)
    if not bank.opens_again:
        place, text = "bank", repr(bank)
        if isinstance(bank, MemoryBank) and len(text) <= _LONGEST_BANK:
            yield "    from math import inf, nan"
            yield "    from neartie.banks.memory import memory_bank"
            yield f"    bank = {text}"
        else:
            yield f"    bank = ...  # {bank.name}, in memory: the object that was passed"
    names = {}
    for role in ("baseline", "candidate"):
        spec = asked.spec(role)
        names[role] = role if spec is None else repr(spec)
        if spec is None:
            yield f"    {role} = ...  # {record[role]['name']}: the object that was passed"
    device = "" if record["device"] == "cpu" else f", device={record['device']!r}"
    yield (
        f"    row = neartie.replay_row({place}, row={row['row']}, width={row['width']}, "
        f"ranks={record['ranks']}, baseline={names['baseline']}, candidate={names['candidate']}"
        f"{device})"
    )
    yield f"    print({shown})"


def _repeat(record: Mapping[str, Any], asked: Asked) -> Iterator[str]:
    widths = list(dict.fromkeys(item["width"] for item in record["coverage"]))
    command = asked.command(widths, record["ranks"], record["device"])
    if command is None:
        yield f"no command repeats it: {'; '.join(asked.obstacles())}"
    else:
        yield f"repeat it: {command}"
