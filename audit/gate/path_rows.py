"""Sides that are paths: blocks of logits run through the path itself, at the plan's width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ...banks.bank import Bank, RowBlock
from ...kernels.contract import Path
from ...kernels.fast.gate import PairedRows
from ...kernels.fast.plain import boundary_margins
from ...kernels.fast.recorded import Outputs, compare_recorded
from ...kernels.select import select
from ..launching import first_rows, front_weights, make_launch, refusal, run_path
from .path_sides import paths_of
from .shard import at_logits, logits_of
from .sides import Side

RANKS: Final = 1
"""A select is the same on every rank; whether ranks agree is an audit's question."""


class PathRows:
    """Runs the rows of one bank at one width through both sides, of which one or both are paths.

    Args:
        bank: whose rows they are.
        sides: of the gate.
        paths: by spec, the paths that the sides run.
        width: rows per launch.
    """

    def __init__(
        self, bank: Bank, sides: tuple[Side, Side], paths: Mapping[str, Path], width: int
    ) -> None:
        self._bank, self._width, self._weights = bank, width, front_weights(bank)
        self._paths = [paths[side.path] if side.runs else None for side in sides]
        self._rules = [None if side.runs else side.rule(width) for side in sides]

    def run(self, block: RowBlock) -> PairedRows:
        """Return how both sides' outputs compare on a block that holds logits.

        Margins are those of the baseline's keys, and shifts are undefined: a path tells no keys.
        Rows with a logit that is not finite count as ``plain``.

        Raises:
            PathError: a path raised: nothing can be said of the rows.
        """
        logits, geometry = logits_of(block), self._bank.geometry
        sides = self._outputs(block, 0), self._outputs(block, 1)
        rows = compare_recorded(sides, geometry.experts)
        odd: npt.NDArray[np.bool_] = np.logical_not(np.isfinite(logits).all(axis=1))
        rule = self._rules[0]
        if rule is None:
            return replace(rows, plain=odd)
        scoring = self._bank.scoring
        steps, margin = boundary_margins(rule, logits, self._weights.bias, geometry, scoring)
        return replace(rows, plain=odd, margin_steps=steps, margin=margin)

    def _outputs(self, block: RowBlock, side: int) -> Outputs:
        path, rule = self._paths[side], self._rules[side]
        if path is not None:
            launch = make_launch(self._bank, self._weights, block, self._width, RANKS)
            routed = first_rows(run_path(path, launch), block.rows)
            return routed.ids[0], routed.weights[0]
        assert rule is not None, "a side is a path or a select"
        with np.errstate(all="ignore"):
            bias, geometry, scoring = self._weights.bias, self._bank.geometry, self._bank.scoring
            return select(rule, logits_of(block), bias, geometry, scoring)


def why_paths_refuse(
    banks: Sequence[Bank], sides: tuple[Side, Side], widths: Sequence[int]
) -> str | None:
    """Return why a side's path does not run on these banks at these widths; None where all do.

    Raises:
        InputError: as ``refusal``.
    """
    paths = paths_of(sides)
    for bank in banks if paths else ():
        block = at_logits(bank, bank.read(0, min(max(widths), bank.rows)))
        weights = front_weights(bank)
        for width in widths:
            launch = make_launch(bank, weights, block, width, RANKS)
            reason = refusal(paths.values(), launch)
            if reason:
                return f"{reason} (rows of {bank.name} that begin at the logits)"
    return None
