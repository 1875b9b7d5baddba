"""The catalogue as a page's table, and a score as text."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.table import Table

from .catalogue import CATALOGUE, STAGES
from .cells import CellResult, Outcome
from .score import Score, count

_COLUMNS = (Outcome.NAMED, Outcome.MISNAMED, Outcome.MISSED, Outcome.NOT_APPLICABLE)


def catalogue_markdown() -> str:
    """Return the table of all faults, as ``docs/selftest.md`` has it."""
    lines = [
        "| fault | stage | what is wrong | seen in | named by | banks | shows unless |",
        "|---|---|---|---|---|---|---|",
    ]
    for stage, faults in STAGES.items():
        for fault in faults:
            cells = (
                f"`{fault.name}`",
                stage,
                fault.what,
                fault.source,
                ", ".join(f"`{name}`" for name in fault.names),
                ", ".join(scene.name for scene in fault.scenes),
                "; ".join(need.reason for need in fault.needs) or "-",
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def print_score(score: Score, console: Console) -> None:
    """Print what became of each fault, the figures, and whatever went wrong."""
    table = Table(title=None, box=None, pad_edge=False)
    table.add_column("fault")
    for outcome in _COLUMNS:
        table.add_column(str(outcome), justify="right")
    for name, cells in score.faults.items():
        table.add_row(name, *(str(count(cells, outcome) or "-") for outcome in _COLUMNS))
    console.print(table)
    console.print()
    for line in score_lines(score):
        console.print(line)


def score_lines(score: Score) -> list[str]:
    """The figures of a self-test in sentences, and each cell that is not as it should be."""
    named, applicable = score.count(Outcome.NAMED), score.applicable
    widths, ranks = (", ".join(map(str, values)) for values in (score.widths, score.ranks))
    lines = [
        f"{len(score.faults)} of {len(CATALOGUE)} faults, widths {widths}, ranks {ranks}",
        f"mutation score: {_share(score.caught, applicable)} caught, "
        f"{_share(named, applicable)} caught and named; missed {score.count(Outcome.MISSED)}",
        f"named with no other cause beside it: {_share(score.named_alone, applicable)}",
        f"clean pairs: {len(score.false_alarms)} false alarms in {len(score.clean):,} audits",
    ]
    reasons = Counter(
        result.reason for result in score.results if result.outcome is Outcome.NOT_APPLICABLE
    )
    lines += [f"not applicable: {number} audits, {why}" for why, number in reasons.items()]
    wrong = [r for r in score.results if r.outcome in (Outcome.MISNAMED, Outcome.MISSED)]
    return lines + [_told(r) for r in (*wrong, *score.false_alarms)]


def _share(part: int, whole: int) -> str:
    # Rounded down: 99.96% is not 100%.
    tenths = 1000 * part // whole if whole else 0
    return f"{tenths / 10:.1f}% ({part:,} of {whole:,})"


def _told(result: CellResult) -> str:
    cell = result.cell
    what = "false alarm" if result.outcome is None else str(result.outcome)
    codes = ", ".join(result.failing) or f"{result.state}, nothing fails"
    return (
        f"{what}: {cell.fault or 'clean pair'} on {cell.scene} at width {cell.width}, "
        f"{cell.ranks} ranks: {codes}"
    )
