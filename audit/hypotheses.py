"""Which named mistake explains a path's wrong rows: tried on a few, reported with its count."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from ..banks.bank import Bank
from ..kernels.reference import reference_select
from .explain.case_hypotheses import selection_hypotheses
from .explain.cases import Case, PathRows
from .judged import JudgedBlock
from .metrics.findings import same_as_expected
from .metrics.weight_hypotheses import match_hypotheses
from .observed import BatchFinding
from .policy import Policy

# Each tried row costs some thirty re-selections; a named cause shows on the first few rows.
TRIED_ROWS = 8


class Suspicions:
    """Tries every named mistake on the first wrong rows of one path in one bank."""

    def __init__(self, bank: Bank, policy: Policy) -> None:
        self.bank, self.policy = bank, policy
        self.tried = 0
        self.width = 0
        self.matches: Counter[str] = Counter()

    def add(
        self,
        judged: JudgedBlock,
        width: int,
        ids: npt.NDArray[np.int32],
        weights: npt.NDArray[np.float32],
        wrong: npt.NDArray[np.bool_],
    ) -> None:
        """Try rows of ids and weights [row, slot] that the reference calls ``wrong`` [row]."""
        rows = np.flatnonzero(wrong)[: TRIED_ROWS - self.tried]
        if not rows.size:
            return
        self.width = self.width or width
        self.tried += len(rows)
        for row in rows.tolist():
            names = self._selections(judged, row, ids[row]) or self._weights(
                judged, row, ids[row], weights[row]
            )
            self.matches.update(set(names))

    def findings(self, label: str, role: str) -> list[BatchFinding]:
        """Return the mistakes that explain every tried row; else the most frequent, disclosed."""
        if not self.matches:
            return []
        most = max(self.matches.values())
        every = most == self.tried
        words = "reproduces" if every else "is consistent with"
        return [
            BatchFinding(
                name=f"explained_by:{name}",
                path=label,
                bank=self.bank.name,
                width=self.width,
                rows=count,
                text=f"{name} {words} {count} of {self.tried} wrong rows tried",
                fails=every,
            )
            for name, count in self.matches.items()
            if count == most
        ]

    def _selections(self, judged: JudgedBlock, row: int, ids: npt.NDArray[np.int32]) -> list[str]:
        """Mistakes that select this row's set, where the rule itself does not."""
        if same_as_expected(ids[None], judged.selection.ids[row][None]).all():
            return []
        logits = judged.logits[row : row + 1].astype(np.float32)
        reference = reference_select(logits, judged.bias, self.bank.geometry, self.bank.scoring)
        if same_as_expected(ids[None], reference.ids).all():
            return []
        case = self._case(judged, logits, ids)
        return [
            name
            for name, chosen in selection_hypotheses(case, logits, reference)
            if same_as_expected(ids[None], chosen).all()
        ]

    def _weights(
        self,
        judged: JudgedBlock,
        row: int,
        ids: npt.NDArray[np.int32],
        weights: npt.NDArray[np.float32],
    ) -> list[str]:
        slack_ulp = int(np.ceil(2 * judged.logit_error[row] * 2**24))
        return match_hypotheses(
            weights,
            ids,
            logits=judged.logits[row],
            scores=judged.selection.scores[row],
            bias=judged.bias,
            scoring=self.bank.scoring,
            budget_ulp=self.policy.weight_budget_ulp + slack_ulp,
        )

    def _case(
        self, judged: JudgedBlock, logits: npt.NDArray[np.float32], ids: npt.NDArray[np.int32]
    ) -> Case:
        """One row in the form that the hypotheses take: what was seen, and one path's ids."""
        path = PathRows(self.bank.name, ids[None].astype(np.int64), None)
        return Case(
            id=self.bank.name,
            leading_axis="row",
            logits_a=logits,
            logits_b=logits,
            bias=judged.bias,
            bias_b=None,
            geometry=self.bank.geometry,
            scoring=self.bank.scoring,
            n_shared=0,
            a=path,
            b=path,
            ranks=None,
            shards=None,
            buffer=None,
            stride=None,
            poison=None,
            map=None,
            pad_to=None,
            capacity=None,
            expected={},
            unknown_keys=(),
        )
