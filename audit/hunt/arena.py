"""Runs both paths on a scene, and looks closely at the rows that may differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...banks.errors import EnvelopeError
from ...banks.geometry import Geometry, ScoringRule
from ...kernels.contract import Launch, Path, Routed
from ...kernels.fast.compare import DIFFERENT, ULP_BINS
from ...kernels.fast.plain import compare_pairs
from ...kernels.scores import declared_forms
from ..compare import BASELINE, CANDIDATE
from ..judged import judge_block
from ..launching import first_rows, front_weights, make_launch, refusal, run_path
from ..metrics.findings import rank_disagreement
from ..policy import Policy
from ..rank_parts import distinct_ranks
from .difference import Difference, Faulty
from .judge import RowJudge
from .scene import I32, Scene, SceneBank

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Run:
    """What both paths wrote for a scene, and the differences by rank and row."""

    a: Routed
    b: Routed
    differences: tuple[Difference, ...]


@dataclass(frozen=True, eq=False)
class Arena:
    """Two paths and the conditions that they meet under.

    Attributes:
        baseline: the path that exists.
        candidate: the path that would replace it.
        geometry: of the front; the hidden and the latent part are not run.
        scoring: of the front.
        policy: limits to judge by.
        sharded: rows start as each rank's shard of the logits and are gathered by the paths, not
            as whole logits.
    """

    baseline: Path
    candidate: Path
    geometry: Geometry
    scoring: ScoringRule
    policy: Policy
    sharded: bool = False

    def refusal(self, scene: Scene) -> str | None:
        """Return why a path does not run such a scene here, or None."""
        return refusal((self.baseline, self.candidate), self._launch(scene)) or None

    def ids(self, role: str, scene: Scene) -> I32:
        """Return one path's ids [row, slot] on rank 0.

        Raises:
            PathError: the path raised.
        """
        path = self.baseline if role == BASELINE else self.candidate
        ids: I32 = first_rows(run_path(path, self._launch(scene)), scene.rows).ids[0]
        return ids

    def run(self, scene: Scene) -> Run:
        """Return both paths' outputs, and the rows that differ as the policy does not allow.

        Raises:
            PathError: a path raised: nothing is known of the scene.
        """
        launch = self._launch(scene)
        a = first_rows(run_path(self.baseline, launch), scene.rows)
        b = first_rows(run_path(self.candidate, launch), scene.rows)
        found = list(self._of_ranks(a, b, scene))
        for rank, _ in distinct_ranks(a, b):
            rows = np.flatnonzero(self._unusual(a, b, rank))
            if len(rows):
                found += self._close(scene, a, b, rank, rows)
        return Run(a, b, tuple(found))

    def _bank(self, scene: Scene) -> SceneBank:
        return SceneBank(scene, self.geometry, self.scoring, sharded=self.sharded)

    def _launch(self, scene: Scene) -> Launch:
        bank = self._bank(scene)
        block = bank.read(0, scene.rows)
        return make_launch(bank, front_weights(bank), block, scene.width, scene.ranks)

    def _unusual(self, a: Routed, b: Routed, rank: int) -> Bools:
        """Rows [row] that may differ as the policy does not allow.

        All other rows have one set of ids on both sides and finite weights within the budget: the
        judgement of such a row is "alike" whatever the reference says.
        """
        bins = np.zeros(ULP_BINS, np.int64)
        code, steps = compare_pairs(
            a.ids[rank], a.weights[rank], b.ids[rank], b.weights[rank], bins
        )
        far = (steps < 0) | (steps > self.policy.weight_budget_ulp)
        return np.asarray((code == DIFFERENT) | far)

    def _close(
        self, scene: Scene, a: Routed, b: Routed, rank: int, rows: npt.NDArray[np.int64]
    ) -> Iterator[Difference]:
        bank = self._bank(scene.with_rows(scene.logits[rows]))
        block = bank.read(0, len(rows))
        judged = judge_block(bank, front_weights(bank), block, with_control=False)
        forms = {
            BASELINE: declared_forms(self.baseline.declared.score),
            CANDIDATE: declared_forms(self.candidate.declared.score),
        }
        judge = RowJudge(judged, self.geometry, self.scoring, self.policy, forms)
        return judge.differences(some_rows(a, rows), some_rows(b, rows), rank, rows)

    def _of_ranks(self, a: Routed, b: Routed, scene: Scene) -> Iterator[Difference]:
        """A path whose ranks differ in any bit: a near tie does not excuse it."""
        if scene.ranks == 1:
            return
        for role, out in ((BASELINE, a), (CANDIDATE, b)):
            differs = rank_disagreement(out.ids, out.weights)
            for row in np.flatnonzero(differs.any(axis=0)).tolist():
                rank = int(np.flatnonzero(differs[:, row])[0])
                faulty: Faulty = "baseline" if role == BASELINE else "candidate"
                yield Difference("rank_disagreement", faulty, row, rank, "identical")


def some_rows(out: Routed, rows: npt.NDArray[np.int64] | slice) -> Routed:
    """Return outputs of some rows, without latents."""
    return Routed(
        ids=out.ids[:, rows],
        weights=out.weights[:, rows],
        latent=None,
        logits=None if out.logits is None else out.logits[:, rows],
    )


def prepared(
    baseline: Path,
    candidate: Path,
    geometry: Geometry,
    scoring: ScoringRule,
    policy: Policy,
    scene: Scene,
) -> Arena:
    """Return an arena whose paths run such a scene: from shards where they can, else from logits.

    Raises:
        EnvelopeError: a path does not run it here.
    """
    reason: str | None = None
    for sharded in (True, False) if scene.ranks > 1 else (False,):
        arena = Arena(baseline, candidate, geometry, scoring, policy, sharded)
        reason = arena.refusal(scene)
        if reason is None:
            return arena
    raise EnvelopeError("paths", reason, "ones that run rows from the logits on here", "hunt")
