"""A select cut into its four stages, and what a path offers that can be cut between stages.

``SelectStages`` runs the loops of ``select_engine``, so one after the other its stages give the
bits of ``select.select``; between them stand the values that another select's next stage can take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ..banks.geometry import Geometry, ScoringRule
from .contract import F32, I32, Launch, Path
from .scores import FORMS, score
from .select import SelectArithmetic, engine_rule, select_bias, select_logits
from .select_engine import finish_rows, pick_rows, score_rows64

# float32, or float64 where the select computes in FP64.
Values = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]

SELECT_STAGES: Final = ("score", "bias", "select", "normalise")
"""Stages from the logits on, in the order of the work."""


@dataclass(frozen=True, eq=False)
class Scored:
    """After ``score``: scores [row, expert], and who may not be selected [row, expert]."""

    scores: Values
    masked: Bools


@dataclass(frozen=True, eq=False)
class Keyed:
    """After ``bias``: keys [row, expert] to select by, and scores [row, expert] for weights."""

    scores: Values
    keys: Values


@dataclass(frozen=True, eq=False)
class Chosen:
    """After ``select``.

    Attributes:
        scores: [row, expert].
        ids: [row, slot] int32 in selection order.
        none: [row] whether no expert could be selected and ``ids`` are 0..K-1 or arbitrary.
    """

    scores: Values
    ids: I32
    none: Bools


class SelectSteps(Protocol):
    """A select as four functions of what stands between its stages."""

    def score(self, logits: F32) -> Scored:
        """Logits [row, expert] to scores."""
        ...

    def bias(self, scored: Scored) -> Keyed:
        """Scores to keys."""
        ...

    def select(self, keyed: Keyed) -> Chosen:
        """Keys to experts."""
        ...

    def normalise(self, chosen: Chosen) -> tuple[I32, F32]:
        """Experts and their scores to ids and weights [row, slot], in the path's slot order."""
        ...


@runtime_checkable
class StagedPath(Path, Protocol):
    """A path that can be cut between its stages; any other is one piece."""

    def projected(self, launch: Launch) -> Launch:
        """The launch that starts at the exchange, with this path's pieces."""
        ...

    def select_stages(self, launch: Launch) -> SelectSteps:
        """The select that this launch gets."""
        ...


@dataclass(frozen=True, eq=False)
class SelectStages:
    """A named select, stage by stage; values of another select are rounded to its own type."""

    rule: SelectArithmetic
    geometry: Geometry
    scoring: ScoringRule
    correction: F32

    def score(self, logits: F32) -> Scored:
        """Logits [row, expert] to scores, after this select's rounding of the logits."""
        engine = engine_rule(self.rule, self.geometry, self.scoring)
        values = select_logits(self.rule, logits)
        if self.rule.precise:
            return Scored(score_rows64(engine.score, values), np.zeros(values.shape, np.bool_))
        name = self.scoring.function if self.rule.score == "rule" else self.rule.score
        assert FORMS[name].code == engine.score
        scores = score(name, values)
        if engine.zero_score:
            scores[~np.isfinite(scores)] = 0.0
        masked = ~np.isfinite(values) & engine.mask_logit
        scores[masked] = 0.0
        return Scored(scores, masked)

    def bias(self, scored: Scored) -> Keyed:
        """Scores to keys, with this select's rounding of the bias."""
        engine = engine_rule(self.rule, self.geometry, self.scoring)
        scores, added = self._own(scored.scores), select_bias(self.rule, self.correction)
        with np.errstate(invalid="ignore", over="ignore"):
            keys = scores + added.astype(scores.dtype)
        masked = scored.masked | (~np.isfinite(added) & engine.mask_bias)
        keys[masked] = -np.inf
        return Keyed(np.where(masked, scores.dtype.type(0), scores), keys)

    def select(self, keyed: Keyed) -> Chosen:
        """Keys to experts: groups, order of ties and of NaN."""
        keys = self._own(keyed.keys)
        ids = np.empty((len(keys), self.geometry.top_k), np.int32)
        none = np.zeros(len(keys), np.bool_)
        pick_rows(keys, engine_rule(self.rule, self.geometry, self.scoring), ids, none)
        return Chosen(keyed.scores, ids, none)

    def normalise(self, chosen: Chosen) -> tuple[I32, F32]:
        """Experts to ids and weights: slot order, order of the sum, division and scale."""
        ids, weights = np.empty_like(chosen.ids), np.empty(chosen.ids.shape, np.float32)
        engine = engine_rule(self.rule, self.geometry, self.scoring)
        scores = self._own(chosen.scores)
        finish_rows(scores, np.ascontiguousarray(chosen.ids), chosen.none, engine, ids, weights)
        return ids, weights

    def _own(self, values: Values) -> Values:
        kind = np.float64 if self.rule.precise else np.float32
        with np.errstate(over="ignore", invalid="ignore"):
            return np.ascontiguousarray(values, dtype=kind)
