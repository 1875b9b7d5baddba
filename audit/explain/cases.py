"""Cases pasted from bug reports, as records with arrays whose shapes fit each other.

A case is one or a few router rows with what two implementations, ``a`` and ``b``, returned for
them. ``tests/data/router_cases.md`` tells the format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...banks.geometry import Geometry, ScoringRule
from .case_format import LeadingAxis

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PathRows:
    """What one path returned: ids [row, slot] int64, weights [row, slot] float32 or None."""

    label: str
    ids: I64
    weights: F32 | None


@dataclass(frozen=True, eq=False)
class Case:
    """A router case. ``logits_a`` and ``logits_b`` are [row, expert] float32, one object as a rule.

    They differ in a *split* case, where ``a`` and ``b`` are two members of the leading axis (rank 0
    against the last rank, step 0 against the last step) with one row each. ``shards`` is [rank,
    row, expert / ranks], ``map`` the physical ids of a logical one. What is not told is None.
    """

    id: str
    leading_axis: LeadingAxis
    logits_a: F32
    logits_b: F32
    bias: F32 | None
    bias_b: F32 | None
    geometry: Geometry
    scoring: ScoringRule
    n_shared: int
    a: PathRows
    b: PathRows
    ranks: int | None
    shards: F32 | None
    buffer: F32 | None
    stride: int | None
    poison: float | None
    map: Mapping[int, tuple[int, ...]] | None
    pad_to: int | None
    capacity: int | None
    expected: Mapping[str, Any]
    unknown_keys: tuple[str, ...]

    @property
    def split(self) -> bool:
        """Whether a and b are two ranks or steps rather than two implementations."""
        return self.logits_a is not self.logits_b

    def first_row(self) -> Case:
        """The case with its first row alone."""

        def cut(path: PathRows) -> PathRows:
            weights = None if path.weights is None else path.weights[:1]
            return PathRows(path.label, path.ids[:1], weights)

        logits = self.logits_a[:1]
        return replace(
            self,
            logits_a=logits,
            logits_b=self.logits_b[:1] if self.split else logits,
            a=cut(self.a),
            b=cut(self.b),
            shards=None if self.shards is None else self.shards[:, :1],
        )

    @property
    def rows(self) -> int:
        """Rows of each path."""
        return len(self.logits_a)

    @property
    def experts(self) -> int:
        """Routed experts; shared ones come after them."""
        return self.geometry.experts


@dataclass(frozen=True, eq=False)
class ReductionCase:
    """Partial sums [row, term] and what each path added them up to [row], all float64 values.

    ``accumulate`` is the dtype that the sums are declared to be kept in.
    """

    id: str
    leading_axis: LeadingAxis
    partials: F64
    accumulate: str
    labels: tuple[str, str]
    sums_a: F64
    sums_b: F64
    expected: Mapping[str, Any]
    unknown_keys: tuple[str, ...]
