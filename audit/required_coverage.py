"""What a policy requires to have been run, held against what was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..banks.open import SHIPPED
from .number_words import number_of
from .observed import Conditions, Coverage
from .policy import RequiredCoverage


def missing_coverage(
    required: RequiredCoverage, coverage: Sequence[Coverage], conditions: Conditions
) -> Iterator[str]:
    """Yield a text for each bank, the ranks and the device that were required and not run.

    Nothing required of an axis means whatever the audit was given there.
    """
    ran = {(item.bank, item.width) for item in coverage if item.ran}
    given = list(dict.fromkeys(item.bank for item in coverage))
    banks = [one for name in required.banks for one in SHIPPED.get(name, (name,))]
    widths = required.widths or tuple(dict.fromkeys(item.width for item in coverage))
    for bank in banks or given:
        absent = [str(width) for width in widths if (bank, width) not in ran]
        if absent:
            yield f"{bank} at width {', '.join(absent)}"
    if required.ranks is not None and required.ranks != conditions.ranks:
        yield f"{number_of(required.ranks, 'rank')} (the audit has {conditions.ranks})"
    if required.device is not None and required.device != conditions.device:
        yield f"device {required.device} (the audit was given {conditions.device})"
