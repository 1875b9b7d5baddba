"""Do the groups of squared errors hold the rows that were told apart by them, and all errors?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..compare import BASELINE, CANDIDATE
from ..counts import Histograms
from ..error_groups import GROUPS, METRIC, PARTS, ROUNDED_PARTS
from ..histograms import PAIRED


def group_problems(histograms: Histograms, bank: str, width: int | None) -> Iterator[str]:
    """Yield what does not fit at one place, in words; nothing where no groups are kept."""
    rows: dict[str, Counter[str]] = {}
    parts: Counter[str] = Counter()
    for path in (CANDIDATE, BASELINE):
        for line in histograms.lines(bank, width, METRIC, path):
            tensor, _, group = str(line["key"]).partition("/")
            if not (group.isdecimal() and len(group) < 4 and int(group) < GROUPS):
                yield f"{METRIC} has a group {group[:20]}"
            if line["steps"] is None or not 0 <= line["steps"] <= PARTS + (1 << 10):
                yield f"{METRIC} of {tensor} has {line['steps']} parts"
            rows.setdefault(tensor, Counter())[path] += line["count"]
            parts[tensor] += line["steps"] or 0
    errors = histograms.named(bank, width, "row_error")
    for tensor, counted in rows.items():
        known = sum(errors[f"{tensor}/{name}"] for name in PAIRED[:3])
        if counted[CANDIDATE] != known or counted[BASELINE] != known:
            both = f"{counted[CANDIDATE]:,} and {counted[BASELINE]:,}"
            yield f"{tensor} has {known:,} rows with two errors, {both} in groups"
        if abs(PARTS - parts[tensor]) > ROUNDED_PARTS:
            yield f"the groups of {tensor} hold {parts[tensor]:,} parts of {PARTS:,}"
