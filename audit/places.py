"""Findings of a path that reads its logits from the wrong place."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..banks.bank import Bank
from ..kernels.contract import Routed
from .compare import BASELINE, CANDIDATE
from .finding_log import FindingLog
from .judged import JudgedBlock
from .launching import same_bits
from .metrics.findings import Finding, bits
from .misread import misread_by_select, misread_shown, repeated_rows

Bools = npt.NDArray[np.bool_]

TRIED_FROM = 2
"""Wrong rows from which on other layouts are tried: one row alone has any number of causes."""


class Places:
    """Tells where wrong logits of one chunk were read, on the outputs of each width."""

    def __init__(self, bank: Bank, log: FindingLog) -> None:
        self.bank, self.log = bank, log
        self._explained: set[tuple[str, int]] = set()
        self._tried: set[tuple[str, int]] = set()

    def explain(self, role: str, width: int) -> bool:
        """Whether a wrong place explains the path's wrong rows at this width."""
        return (role, width) in self._explained

    def shown(self, judged: JudgedBlock, width: int, a: Routed, b: Routed) -> None:
        """One path's logits are the other's, read from another place.

        The wrong one is the candidate's, unless the reference says that it is the baseline's.
        """
        if a.logits is None or b.logits is None or same_bits(a.logits, b.logits):
            return
        mine, other, role = b.logits[0], a.logits[0], CANDIDATE
        if judged.wrong_logits(other).any() and not judged.wrong_logits(mine).any():
            mine, other, role = other, mine, BASELINE
        differs = np.asarray((bits(mine) != bits(other)).any(axis=1))
        if not differs.any():
            return
        reading = misread_shown(other, mine, width, len(a.logits))
        if reading is not None:
            self._note(reading.finding, role, width, differs, f"logits: {reading.text}")
            return
        repeated, text = repeated_rows(other, mine, width)
        if repeated.any():
            self._note(Finding.REPEATED_ROWS, role, width, repeated, text)
            return
        full = len(mine) // width * width
        if full and np.array_equal(
            np.sort(mine[:full], axis=None), np.sort(other[:full], axis=None)
        ):
            text = "logits are an exact permutation of the other path's: the layout was misread"
            self._note(Finding.LAYOUT_PERMUTATION, role, width, differs, text)

    def selected(
        self, judged: JudgedBlock, role: str, width: int, wrong: Bools, out: Routed, rank: int
    ) -> None:
        """A select reads the right logits from the wrong place; tried once a path and width."""
        place = (role, width)
        if place in self._explained | self._tried or np.count_nonzero(wrong) < TRIED_FROM:
            return
        self._tried.add(place)
        seen = judged.logits if out.logits is None else out.logits[rank]
        with np.errstate(invalid="ignore"):
            logits = seen.astype(np.float32)
        ids, ranks = out.ids[rank], len(out.ids)
        reading = misread_by_select(self.bank, logits, judged.bias, ids, width, ranks)
        if reading is not None:
            self._note(reading.finding, role, width, wrong, f"the select: {reading.text}")

    def _note(self, finding: Finding, role: str, width: int, rows: Bools, text: str) -> None:
        self._explained.add((role, width))
        self.log.note(finding, role, width, rows, text)
