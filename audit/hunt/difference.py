"""One row whose difference the policy fails, and what makes two of them one finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..metrics.worst_weight import WorstWeight

Faulty = Literal["baseline", "candidate", "both", "neither"]
"""Which side the reference disagrees with; ``neither``: each is within the window of it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What the audit's own judgement says of a row.

    Attributes:
        kind: ``set:CLASS`` (the class fails by the policy), ``breach:NAMES``, ``weights:CLASS``
            (equal sets, beyond the budget), ``flag:NAMES`` (a failing flag of one side only, on a
            row whose sets differ within the window), ``rank_disagreement`` or
            ``nondeterministic``.
        faulty: the side that is wrong by the reference.
        row: of the scene.
        rank: first rank that shows it.
        set_class: of the row.
        dropped: experts of the baseline alone, ascending.
        added: experts of the candidate alone, ascending.
        slots: slots, from 0, of the dropped experts in the baseline.
        gap_ulp: FP32 steps between their biased scores; None where undefined.
        weight_class: of the row; None where weights were not compared.
        weight_ulp: largest FP32 distance of a weight; None where undefined.
        flags: what is said of the row's inputs.
        boundary_ulp: the reference's own steps from the K-th to the next key; None: undefined.
        worst_weight: slot of the candidate, expert, its weight and, expected, the baseline's; None
            where the sets differ or no weight is finite.
    """

    kind: str
    faulty: Faulty
    row: int
    rank: int
    set_class: str
    dropped: tuple[int, ...] = ()
    added: tuple[int, ...] = ()
    slots: tuple[int, ...] = ()
    gap_ulp: int | None = None
    weight_class: str | None = None
    weight_ulp: int | None = None
    flags: tuple[str, ...] = ()
    boundary_ulp: int | None = None
    worst_weight: WorstWeight | None = None

    @property
    def signature(self) -> tuple[str, str]:
        """What a smaller row must still show to be the same finding."""
        return self.kind, self.faulty

    def text(self) -> str:
        """Return the finding in one line."""
        parts = [self.kind]
        if self.dropped or self.added:
            gap = "an undefined gap" if self.gap_ulp is None else f"a gap of {self.gap_ulp:,} ULP"
            slots = ", ".join(map(str, self.slots))
            parts.append(f"expert {_some(self.dropped)} (slot {slots}) -> {_some(self.added)}")
            parts.append(gap)
            if self.kind == "set:multi_swap":
                # Its gap may lie within the window, which is for one exchange.
                parts.append(f"{max(len(self.dropped), len(self.added))} experts exchanged at once")
        if self.weight_ulp and self.kind.startswith("weights"):
            parts.append(f"weights up to {self.weight_ulp:,} ULP apart")
            worst = self.worst_weight
            if worst is not None:
                parts.append(
                    f"expert {worst.expert} (slot {worst.slot}): {worst.got} of the candidate, "
                    f"{worst.expected} of the baseline"
                )
        if self.rank:
            parts.append(f"rank {self.rank}")
        if self.flags:
            parts.append(", ".join(self.flags))
        return "; ".join(parts)


def _some(experts: tuple[int, ...], most: int = 4) -> str:
    shown = ", ".join(map(str, experts[:most]))
    return shown + (", ..." if len(experts) > most else "")
