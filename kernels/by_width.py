"""What a front does up to a width, and above it: two selects of one path, and how they are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class ByWidth(NamedTuple, Generic[T]):
    """One thing up to ``most`` rows per launch, another above; often both are the same object."""

    narrow: T
    wide: T
    most: int

    def at(self, width: int) -> T:
        """Return what applies to launches of ``width`` rows."""
        return self.narrow if width <= self.most else self.wide

    def words(self, part: Callable[[T], str]) -> str:
        """Return a text for both, and the boundary where they differ."""
        narrow, wide = part(self.narrow), part(self.wide)
        if narrow == wide:
            return narrow
        return f"up to {self.most} rows: {narrow}; above: {wide}"
