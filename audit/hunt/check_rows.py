"""Given rows through two paths: the differences that the policy fails, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...banks.errors import InputError
from ...banks.geometry import Geometry, ScoringRule
from ...kernels.contract import Path, check_width
from ...kernels.registry import as_path
from ..policy import Policy
from .arena import prepared
from .difference import Difference
from .scene import Scene


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """What ``check_rows`` found.

    Attributes:
        baseline: name of the path.
        candidate: name of the path.
        rows: that both paths computed.
        differences: rows that differ as the policy does not allow, by rank and row; none is what
            one wants.
    """

    baseline: str
    candidate: str
    rows: int
    differences: tuple[Difference, ...]

    def text(self) -> str:
        """Return a line for each difference, with the side that the reference calls wrong."""
        lines = [
            f"{self.candidate} against {self.baseline}: {len(self.differences)} differences "
            f"that the policy fails on {self.rows} rows"
        ]
        lines += [
            f"row {one.row}: {one.text()}; wrong by the reference: {one.faulty}"
            for one in self.differences
        ]
        return "\n".join(lines)


def check_rows(
    logits: npt.NDArray[np.float32],
    bias: npt.NDArray[np.float32] | None = None,
    *,
    baseline: str | Path,
    candidate: str | Path,
    top_k: int,
    groups: int = 1,
    top_groups: int = 1,
    scoring: Mapping[str, Any] | ScoringRule | None = None,
    width: int = 1,
    ranks: int = 1,
    policy: Policy | None = None,
) -> CheckedRows:
    """Run two paths on rows that start at the logits, and judge them as an audit does.

    Args:
        logits: [row, expert] float32.
        bias: [expert] float32; None: zeros.
        baseline: a spec, ``module:Class``, or a path.
        candidate: likewise.
        top_k: slots.
        groups: expert groups.
        top_groups: groups that are selected from.
        scoring: fields of ``ScoringRule``; None: sigmoid, renormalised, scale 1.
        width: rows per launch.
        ranks: tensor-parallel ranks; with more than 1 the paths gather shards where they can.
        policy: limits; None: the defaults.

    Raises:
        InputError: shapes that do not fit, or a path that cannot run these rows here: what was
            not run has no differences to be found.
        PathError: a path raised.

    Example:
        >>> logits = np.linspace(-1, 1, 8, dtype=np.float32)[None]
        >>> check_rows(logits, baseline="general", candidate="route", top_k=2).differences
        ()
    """
    rows = np.asarray(logits, np.float32)
    if rows.ndim != 2 or not rows.size:
        raise InputError("logits.shape", rows.shape, "[row, expert]", "check_rows")
    experts = rows.shape[1]
    offsets = np.zeros(experts, np.float32) if bias is None else np.asarray(bias, np.float32)
    if offsets.shape != (experts,):
        raise InputError("bias.shape", offsets.shape, f"({experts},)", "check_rows")
    check_width(width, "check_rows")
    # Nothing before the logits is run; a hidden size that every rank count divides stands for it.
    geometry = Geometry("rows", ranks, 0, experts, top_k, groups, top_groups)
    geometry.check_ranks(ranks)
    rule = scoring if isinstance(scoring, ScoringRule) else ScoringRule(**dict(scoring or {}))
    scene = Scene(np.ascontiguousarray(rows), offsets, width, ranks)
    arena = prepared(
        as_path(baseline, "baseline"), as_path(candidate, "candidate"), geometry, rule,
        policy or Policy(), scene,
    )  # fmt: skip
    differences = arena.run(scene).differences
    return CheckedRows(arena.baseline.name, arena.candidate.name, len(rows), differences)
