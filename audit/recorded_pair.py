"""Two recorded outputs of one bank against each other: what a bank without inputs can answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..banks.bank import NO_UNIT, Bank
from ..banks.errors import BankError
from .metrics.rates import upper_bound
from .metrics.routings import RoutingTally

STEP = 4096
WHAT_IT_IS = (
    "recorded ids against recorded ids: without the scores of a row, no difference can be called "
    "a tie, so no class is given"
)


@dataclass
class RecordedPair:
    """Counts of one comparison.

    Attributes:
        bank: its name.
        baseline, candidate: which recorded outputs.
        unit: the bank's independence unit.
        layers: tallies by layer.
        units: independent units with a row that was compared, and of these with another set.
        tokens: tokens (step and row) compared in any layer, and of these with another set in any.
        first: (layer, step, row) of the first rows with another set.
    """

    bank: str
    baseline: str
    candidate: str
    unit: str
    layers: dict[int, RoutingTally] = field(default_factory=dict)
    units: tuple[int, int] = (0, 0)
    tokens: tuple[int, int] = (0, 0)
    first: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def total(self) -> RoutingTally:
        """All layers together."""
        whole = RoutingTally()
        for tally in self.layers.values():
            whole.rows += tally.rows
            whole.invalid_baseline += tally.invalid_baseline
            whole.invalid_candidate += tally.invalid_candidate
            whole.compared += tally.compared
            whole.identical += tally.identical
            whole.reordered += tally.reordered
            whole.exchanged.update(tally.exchanged)
        return whole

    def unit_rate_upper(self, confidence: float = 0.95) -> float | None:
        """Bound of the share of units with another set anywhere; None without a unit."""
        compared, differing = self.units
        if self.unit == NO_UNIT or not compared:
            return None
        return upper_bound(differing, compared, confidence)

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {
            "bank": self.bank,
            "baseline": self.baseline,
            "candidate": self.candidate,
            "note": WHAT_IT_IS,
            "independence_unit": self.unit,
            "units": {
                "compared": self.units[0],
                "differing": self.units[1],
                "rate_upper_95": self.unit_rate_upper(),
            },
            "tokens": {"compared": self.tokens[0], "differing": self.tokens[1]},
            "total": _tally(self.total),
            "layers": {str(layer): _tally(t) for layer, t in sorted(self.layers.items())},
            "first": [dict(zip(("layer", "step", "row"), f, strict=True)) for f in self.first],
        }


def _tally(tally: RoutingTally) -> dict[str, Any]:
    return {
        "rows": tally.rows,
        "invalid_baseline": tally.invalid_baseline,
        "invalid_candidate": tally.invalid_candidate,
        "compared": tally.compared,
        "identical": tally.identical,
        "reordered": tally.reordered,
        "differing": tally.differing,
        "exchanged": {str(count): rows for count, rows in sorted(tally.exchanged.items())},
    }


def compare_recorded(bank: Bank, baseline: str, candidate: str) -> RecordedPair:
    """Return how two recorded outputs of a bank differ, row by row.

    Args:
        bank: of any stage.
        baseline: name of recorded outputs.
        candidate: name of others.

    Raises:
        BankError: the bank has no such outputs.
    """
    known = ", ".join(bank.recorded_widths) or "none: the bank has no recorded outputs"
    for name in (baseline, candidate):
        if name not in bank.recorded_widths:
            raise BankError("recorded outputs", name, f"one of {known}", bank.name)
    pair = RecordedPair(bank.name, baseline, candidate, bank.independence_unit)
    kept: list[Any] = []
    for start in range(0, bank.rows, STEP):
        block = bank.read_outputs(start, min(start + STEP, bank.rows))
        one, two = block.recorded[baseline][0], block.recorded[candidate][0]
        layers = block.keys["layer"]
        keys = np.stack([block.keys[k].astype(np.int64) for k in ("unit", "step", "row")], axis=1)
        for layer in np.unique(layers).tolist():
            at = layers == layer
            tally = pair.layers.setdefault(layer, RoutingTally())
            rows = tally.add(one[at], two[at], bank.geometry.experts)
            differs = rows.exchanged > 0
            kept.append(np.column_stack([keys[at][rows.valid], differs[rows.valid]]))
            for step, row in keys[at][differs, 1:][: max(0, 5 - len(pair.first))].tolist():
                pair.first.append((layer, step, row))
    seen = np.concatenate(kept) if kept else np.empty((0, 4), np.int64)
    pair.units = _counts(seen[:, :1], seen[:, 3])
    pair.tokens = _counts(seen[:, 1:3], seen[:, 3])
    return pair


def _counts(keys: Any, differs: Any) -> tuple[int, int]:
    """Distinct keys, and of these the ones with a row that differs."""
    if not len(keys):
        return 0, 0
    distinct, place = np.unique(keys, axis=0, return_inverse=True)
    worst = np.zeros(len(distinct), np.int64)
    np.maximum.at(worst, place.reshape(-1), differs)
    return len(distinct), int(worst.sum())


def pair_lines(pair: RecordedPair) -> list[str]:
    """Return a comparison as lines of text."""
    total = pair.total
    lines = [
        f"{pair.bank}: {pair.candidate} against {pair.baseline}",
        f"rows       {total.rows:,}, compared {total.compared:,}, invalid "
        f"{total.invalid_baseline:,} and {total.invalid_candidate:,}",
        f"same set   {total.identical:,} in the same order, {total.reordered:,} in another",
        f"other set  {total.differing:,}{_share(total.differing, total.compared)}",
    ]
    for count, rows in sorted(total.exchanged.items()):
        lines.append(f"           {rows:,} with {count} expert{'s' if count > 1 else ''} exchanged")
    compared, differing = pair.tokens
    lines.append(f"tokens     {differing:,} of {compared:,} with another set in any layer")
    upper = pair.unit_rate_upper()
    compared, differing = pair.units
    if upper is None:
        lines.append(f"bound      none: the bank's independence unit is {pair.unit}")
    else:
        lines.append(
            f"bound      {differing:,} of {compared:,} units ({pair.unit}) with another set: "
            f"at most {upper:.2g} at 95%"
        )
    if len(pair.layers) > 1:
        for layer, tally in sorted(pair.layers.items()):
            share = _share(tally.differing, tally.compared)
            lines.append(f"layer {layer:<4} {tally.differing:,} of {tally.compared:,}{share}")
    for layer, step, row in pair.first:
        lines.append(f"differs    layer {layer}, step {step}, row {row}")
    return [*lines, WHAT_IT_IS]


def _share(part: int, whole: int) -> str:
    return f" ({part / whole:.2%})" if whole else ""
