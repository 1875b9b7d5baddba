"""Tallies over the ranks of which most hold the same bits: those share the tally of rank 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, Self, TypeVar


class Mergeable(Protocol):
    """What counts rows, and can be added to another of its kind."""

    def merge(self, other: Self) -> None:
        """Add the other's rows."""
        ...

    def copy(self) -> Self:
        """Return the same counts, on their own."""
        ...


Tallied = TypeVar("Tallied", bound=Mergeable)


@dataclass
class Ranked(Generic[Tallied]):
    """A tally a rank.

    Attributes:
        ranks: how many there are.
        first: rank 0's, and that of every rank that has none of its own.
        own: of the ranks that differed from rank 0 somewhere, over all rows.
    """

    ranks: int
    first: Tallied
    own: dict[int, Tallied] = field(default_factory=dict)

    def add(self, added: Mapping[int, Tallied]) -> None:
        """Add the same rows of all ranks; a rank that is not named holds rank 0's bits."""
        for rank in sorted({*self.own, *added} - {0}):
            mine = self.own.setdefault(rank, self.first.copy())
            mine.merge(added.get(rank, added[0]))
        self.first.merge(added[0])

    def merge(self, other: Ranked[Tallied]) -> None:
        """Add other rows of the same tensor."""
        self.add({0: other.first, **other.own})

    def pooled(self) -> Tallied:
        """Return the tally over all ranks; where all are replicas of rank 0, they add nothing."""
        total = self.first.copy()
        for rank in range(1, self.ranks) if self.own else ():
            total.merge(self.own.get(rank, self.first))
        return total
