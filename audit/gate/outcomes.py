"""A gate's merged counts as outcomes of banks: what a verdict is made from, here or in an audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...banks.bank import Bank
from ..bank_outcome import BankOutcome
from ..observed import BatchFinding, Coverage
from .plan import GatePlan
from .shard import UNIT_STRIDE, ShardResult

Merged = Mapping[tuple[int, int], ShardResult]
"""Results by (bank, width)."""


def gate_outcomes(
    plan: GatePlan,
    banks: Sequence[Bank],
    merged: Merged,
    absent: str | None = None,
    *,
    not_run: Mapping[tuple[int, int], str] | None = None,
    alike: Mapping[int, Sequence[int]] | None = None,
    banks_before: int = 0,
) -> list[BankOutcome]:
    """Return one outcome per bank of the plan; all rows start at the select stage.

    Args:
        plan: what was run.
        banks: of the plan.
        merged: counts by (bank, width); none where nothing was run.
        absent: why nothing was run; each width is then recorded as not run.
        not_run: by (bank, width), why its rows could not be run.
        alike: by width of the plan, the widths that its rows stand for, because both selects are
            the same arithmetic there; None: each for itself.
        banks_before: banks of an audit whose units are counted beside these.
    """
    outcomes = []
    for number, bank in enumerate(banks):
        outcome = BankOutcome(bank.name, full_chain=False, independence_unit=bank.independence_unit)
        for width in plan.widths:
            result = merged.get((number, width))
            for told in (alike or {}).get(width, (width,)):
                reason = "" if result else "no rows of this bank fall to it"
                reason = absent or (not_run or {}).get((number, width), reason)
                outcome.coverage.append(Coverage(bank.name, told, not reason, reason))
                if result is not None:
                    _add(outcome, result, told, banks_before)
        outcomes.append(outcome)
    return outcomes


def _add(outcome: BankOutcome, result: ShardResult, width: int, banks_before: int) -> None:
    outcome.tallies[width] = result.tally.with_units_from(banks_before * UNIT_STRIDE)
    outcome.bits_equal[width] = result.bits_equal
    outcome.certificates += [_at_width(record, width) for record in result.certificates]
    if result.echo:
        text = (
            f"both sides agree and both differ from the reference beyond the window on "
            f"{result.echo:,} of {result.sampled:,} sampled rows"
        )
        outcome.findings.append(
            BatchFinding("oracle_echo", "both", outcome.bank, width, result.echo, text)
        )


def _at_width(record: dict[str, Any], width: int) -> dict[str, Any]:
    """The certificate of the same row at another width."""
    place = "row={row}, width={width}, "
    mine = place.format(row=record["row"], width=record["width"])
    told = place.format(row=record["row"], width=width)
    return {**record, "width": width, "snippet": record["snippet"].replace(mine, told, 1)}


def checked_text(merged: Merged) -> str | None:
    """Return what was checked of a sample only; None where the reference saw every row."""
    total = sum(result.tally.rows for result in merged.values())
    sampled = sum(result.sampled for result in merged.values())
    if sampled >= total:
        return None
    return (
        f"contracts and the reference were checked on every differing row and on {sampled:,} "
        f"of {total:,} rows drawn at random"
    )


def left_out_text(merged: Merged) -> str | None:
    """Return how many differing rows have no certificate; None where each has one."""
    left = sum(result.left_out for result in merged.values())
    if not left:
        return None
    return f"{left:,} differing rows are counted and have no certificate of their own"
