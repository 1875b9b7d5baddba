"""The same row at two widths: which outputs change, how often, and what becomes of its set."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..banks.geometry import Geometry
from ..kernels.contract import Path, Routed
from .finding_log import FindingLog
from .judged import JudgedBlock
from .launching import same_bits, tensors
from .metrics.findings import Finding, bits
from .metrics.swaps import SET_CLASSES, classify_sets
from .policy import Policy


@dataclass
class _Count:
    """Rows of one path at one width beside the same rows at the first width."""

    against: int
    rows: int = 0
    differing: Counter[str] = field(default_factory=Counter)
    set_classes: Counter[str] = field(default_factory=Counter)
    largest_logit_step: float = 0.0

    def merge(self, other: _Count) -> None:
        self.rows += other.rows
        self.differing.update(other.differing)
        self.set_classes.update(other.set_classes)
        self.largest_logit_step = max(self.largest_logit_step, other.largest_logit_step)


@dataclass
class WidthCounts:
    """Counts by (path, width); a path and width without a difference is there too."""

    counts: dict[tuple[str, int], _Count] = field(default_factory=dict)

    def merge(self, other: WidthCounts) -> None:
        """Add other rows of the same bank."""
        for key, count in other.counts.items():
            self.counts.setdefault(key, _Count(count.against)).merge(count)

    def forget_width(self, width: int) -> None:
        """Drop what was counted at a width that could not be finished."""
        self.counts = {key: count for key, count in self.counts.items() if key[1] != width}

    def records(self) -> list[dict[str, Any]]:
        """Return the counts, JSON values."""
        return [
            {
                "path": role,
                "width": width,
                "against": count.against,
                "rows": count.rows,
                "differing": {
                    name: count.differing[name]
                    for name in ("latent", "logits", "ids", "weights", "sets")
                },
                "set_classes": dict(sorted(count.set_classes.items())),
                "largest_logit_step": count.largest_logit_step,
            }
            for (role, width), count in self.counts.items()
        ]


class WidthDependence:
    """Holds every width's outputs of one chunk against those of the first width.

    A difference fails where the path declares that the width cannot change the tensor; a path
    whose products are a library's choice by shape declares that it may, and is told with figures.
    """

    def __init__(
        self,
        paths: dict[str, Path],
        geometry: Geometry,
        policy: Policy,
        log: FindingLog,
        counts: WidthCounts,
    ) -> None:
        self.paths, self.geometry, self.policy, self.log = paths, geometry, policy, log
        self._first: dict[str, tuple[int, Routed]] = {}
        self._counts = counts.counts

    def add(self, judged: JudgedBlock, role: str, width: int, out: Routed) -> None:
        """Compare one path's outputs at one width."""
        first_width, first = self._first.setdefault(role, (width, out))
        if first_width == width:
            return
        count = self._counts.setdefault((role, width), _Count(first_width))
        count.rows += out.ids.shape[1]
        other = dict(tensors(first))
        for tensor, array in tensors(out):
            if same_bits(array, other[tensor]):
                continue
            differs = (bits(array) != bits(other[tensor])).any(axis=(0, 2))
            count.differing[tensor] += int(np.count_nonzero(differs))
            text = f"{tensor} differs from the same row's at width {first_width}"
            self._note(role, width, differs, text, tensor)
            if tensor == "logits":
                count.largest_logit_step = max(count.largest_logit_step, _step(array, first.logits))
            if tensor == "ids":
                self._sets(judged, role, width, first.ids, out.ids, count)

    def _sets(
        self, judged: JudgedBlock, role: str, width: int, before: Any, now: Any, count: _Count
    ) -> None:
        """Count the rows whose set changes with the width, by the class of the change on rank 0."""
        selection, policy = judged.selection, self.policy
        a, b = before[0], now[0]
        sets = classify_sets(
            a,
            b,
            selection.keys,
            window_ulp=policy.window_ulp,
            noise_abs=policy.noise_abs,
            invalid=_invalid(a, self.geometry.experts) | _invalid(b, self.geometry.experts),
            group_keys=selection.group_keys,
            groups=self.geometry.groups,
        )
        changed = np.zeros(len(a), np.bool_)
        changed[sets.rows] = True
        count.differing["sets"] += len(sets.rows)
        count.set_classes.update(str(SET_CLASSES[code]) for code in sets.set_class[sets.rows])
        text = f"the expert set differs from the same row's at width {count.against}"
        self._note(role, width, changed, text, "sets")

    def _note(self, role: str, width: int, rows: Any, text: str, tensor: str) -> None:
        fails = self._must_not_depend(role, tensor)
        self.log.note(Finding.WIDTH_DEPENDENT, role, width, rows, text, tensor=tensor, fails=fails)

    def _must_not_depend(self, role: str, tensor: str) -> bool:
        """Whether the path declares that the width cannot change this tensor."""
        declared = self.paths[role].declared
        if tensor in ("ids", "weights", "sets"):
            return declared.row_independent and declared.select_row_independent
        return declared.row_independent


def _invalid(ids: Any, experts: int) -> Any:
    """Rows [row] with an id out of range or twice: they have no set."""
    in_order = np.sort(ids, axis=1)
    twice = (in_order[:, 1:] == in_order[:, :-1]).any(axis=1)
    return twice | (in_order[:, 0] < 0) | (in_order[:, -1] >= experts)


def _step(now: Any, before: Any) -> float:
    """The largest absolute difference of finite logits; 0 where there is none."""
    with np.errstate(invalid="ignore"):
        apart = np.abs(now.astype(np.float64) - before.astype(np.float64))
    return float(np.max(apart, initial=0.0, where=np.isfinite(apart)))
