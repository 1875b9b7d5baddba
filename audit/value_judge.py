"""Judge each path's latent and logits on its own, whatever the other path holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..kernels.contract import FrontWeights, Path, Routed
from .attribute import LatentSums, ScheduleJudge
from .compare import BASELINE, CANDIDATE
from .finding_log import FindingLog
from .judged import JudgedBlock
from .metrics.findings import Finding, dropped_columns
from .metrics.ulp import finite
from .observed import NotCompared, ScheduleFit
from .rank_parts import same_as_first

TRIED_ROWS = 4
"""Rows on which a cause of wrong logits is tried: each has one equation an expert."""


class ValueJudge:
    """Finds values that no declared arithmetic gives: non-finite, or beyond bound or schedule.

    Two paths with the same fault agree with each other; only the reference can tell.
    """

    def __init__(
        self,
        paths: dict[str, Path],
        weights: FrontWeights,
        ranks: int,
        log: FindingLog,
        sums: LatentSums,
    ) -> None:
        self.paths, self.weights, self.log = paths, weights, log
        declared = {role: path.declared.latent_schedule for role, path in paths.items()}
        machine = any(path.declared.machine_dependent for path in paths.values())
        self.schedules = ScheduleJudge(
            declared, weights, ranks, machine_dependent=machine, sums=sums
        )

    def add(self, judged: JudgedBlock, width: int, a: Routed, b: Routed) -> None:
        """Judge all ranks of one width."""
        outputs = {BASELINE: a, CANDIDATE: b}
        for role, out in outputs.items():
            for tensor, exact in (("latent", judged.latent), ("logits", judged.logits)):
                values = getattr(out, tensor)
                if values is not None and exact is not None:
                    self._nonfinite(role, width, tensor, values, exact)
            if out.logits is not None and judged.block.hidden is not None:
                self._logits(role, width, judged, out.logits)
        self._latents(judged, width, outputs)

    def result(self) -> ScheduleFit | None:
        """Return how the latent fits the declared schedules; None where there is none."""
        if self.schedules.sums.undeclared:
            return ScheduleFit(self.schedules.names(), "none", None, None, None)
        return self.schedules.result()

    def _nonfinite(
        self,
        role: str,
        width: int,
        tensor: str,
        values: npt.NDArray[Any],
        exact: npt.NDArray[Any],
    ) -> None:
        bad = np.asarray((~finite(values) & np.isfinite(exact)).any(axis=(0, 2)))
        text = f"{tensor} holds NaN or infinity where the exact value is finite"
        self.log.note(Finding.NONFINITE_OUTPUT, role, width, bad, text, tensor=tensor)

    def _logits(
        self, role: str, width: int, judged: JudgedBlock, logits: npt.NDArray[np.float32]
    ) -> None:
        wrong = judged.wrong_logits(logits[0])
        for rank, same in enumerate(same_as_first(logits)):
            if not same:
                wrong |= judged.wrong_logits(logits[rank])
        text = "logits are further from the exact ones than an FP32 sum in any order can be"
        self.log.note(Finding.WRONG_LOGITS, role, width, wrong, text, tensor="logits")
        if wrong.any():
            self._dropped(role, width, judged, logits[0], wrong)

    def _dropped(
        self,
        role: str,
        width: int,
        judged: JudgedBlock,
        logits: npt.NDArray[np.float32],
        wrong: npt.NDArray[np.bool_],
    ) -> None:
        """Whether the last columns of the product explain what is missing from its first rows."""
        rows = np.flatnonzero(wrong)[:TRIED_ROWS]
        hidden, router = judged.block.hidden, self.weights.router
        assert hidden is not None
        if router is None or not np.isfinite(logits[rows]).all():
            return
        kept = dropped_columns(
            hidden[rows].astype(np.float64),
            router.astype(np.float64),
            judged.logits[rows] - logits[rows].astype(np.float64),
            judged.logit_error[rows],
        )
        if kept is not None:
            columns = hidden.shape[1]
            text = f"the product leaves out the last {columns - kept} of {columns} columns"
            self.log.note(Finding.COLUMNS_DROPPED, role, width, wrong, text, tensor="logits")

    def not_compared(self, a: Routed, b: Routed) -> set[NotCompared]:
        """Return the tensors that one path shows and the other does not."""
        found = set()
        for tensor in ("latent", "logits"):
            shown = {BASELINE: getattr(a, tensor), CANDIDATE: getattr(b, tensor)}
            missing = [role for role, values in shown.items() if values is None]
            if len(missing) == 1:
                label = f"{missing[0]} {self.paths[missing[0]].name}"
                found.add(NotCompared(tensor, label))
        return found

    def _latents(self, judged: JudgedBlock, width: int, outputs: dict[str, Routed]) -> None:
        latents = {role: out.latent for role, out in outputs.items() if out.latent is not None}
        if len(latents) < len(outputs) or judged.latent is None or judged.block.hidden is None:
            return
        if not self.schedules.known:
            self.schedules.sums.undeclared = True
            return
        beyond = self.schedules.add(judged.block, judged.latent, width, latents)
        for role, rows in beyond.items():
            declared = self.schedules.declared[role]
            text = f"latent is further from the exact one than the declared {declared} gives"
            self.log.note(Finding.SCHEDULE_MISMATCH, role, width, rows, text, tensor="latent")
