"""Two recorded routings held against each other where nothing else is known: no input, no score.

Such a comparison counts. It cannot tell a tie from a fault: that takes the keys.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .contracts import breaches

Ids = npt.NDArray[np.integer[Any]]


@dataclass
class RoutingTally:
    """Rows of two routings.

    Attributes:
        rows: rows seen.
        invalid_baseline, invalid_candidate: rows whose ids break the row contract (an id twice, or
            none in a slot); they are compared no further.
        compared: rows that are valid on both sides.
        identical: of these, the same ids in the same slots.
        reordered: the same ids in other slots.
        exchanged: rows by how many experts the sets do not share, of those with other sets.
    """

    rows: int = 0
    invalid_baseline: int = 0
    invalid_candidate: int = 0
    compared: int = 0
    identical: int = 0
    reordered: int = 0
    exchanged: Counter[int] = field(default_factory=Counter)

    @property
    def differing(self) -> int:
        """Rows with another set."""
        return sum(self.exchanged.values())

    def add(self, baseline: Ids, candidate: Ids, experts: int) -> RoutingRows:
        """Count rows and return what each is.

        Args:
            baseline: [row, slot] ids.
            candidate: the same of the other path.
            experts: ids 0..experts-1 are experts.

        Raises:
            InputError: shapes or dtypes are wrong.
        """
        bad_a = breaches(baseline, None, experts) != 0
        bad_b = breaches(candidate, None, experts) != 0
        valid = ~(bad_a | bad_b)
        exchanged = np.where(valid, missing(baseline, candidate), 0)
        same = valid & (baseline == candidate).all(axis=1)
        self.rows += len(valid)
        self.invalid_baseline += int(bad_a.sum())
        self.invalid_candidate += int(bad_b.sum())
        self.compared += int(valid.sum())
        self.identical += int(same.sum())
        self.reordered += int((valid & ~same & (exchanged == 0)).sum())
        values, counts = np.unique(exchanged[exchanged > 0], return_counts=True)
        self.exchanged.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        return RoutingRows(valid, exchanged)


@dataclass(frozen=True, slots=True)
class RoutingRows:
    """What each row of a comparison is.

    Attributes:
        valid: [row] whether both sides keep the row contract.
        exchanged: [row] experts of the baseline that the candidate has not; 0 where invalid.
    """

    valid: npt.NDArray[np.bool_]
    exchanged: npt.NDArray[np.int64]


def missing(baseline: Ids, candidate: Ids) -> npt.NDArray[np.int64]:
    """Return, for each row, how many ids of the first are not among those of the second.

    Args:
        baseline: [row, slot], each row without an id twice.
        candidate: the same.

    Example:
        >>> missing(np.array([[3, 1], [5, 2]]), np.array([[1, 3], [5, 4]])).tolist()
        [0, 1]
    """
    both = np.sort(np.concatenate([baseline, candidate], axis=1).astype(np.int64), axis=1)
    shared = (both[:, 1:] == both[:, :-1]).sum(axis=1)
    return np.asarray(baseline.shape[1] - shared, np.int64)
