"""The reference's answer for a case, as it is or with subnormals flushed to zero."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from ...banks.geometry import Geometry, ScoringRule
from ...kernels.reference import ReferenceSelection, reference_select
from ..metrics.flush import flushed
from ..metrics.rule_weights import rule_weights
from .cases import F32, Case

# Keys that are already made are selected from as they are.
_KEYS: Final = ScoringRule("identity", renormalize=False)


def case_reference(case: Case, logits: F32, *, flush: bool = False) -> ReferenceSelection:
    """The reference for logits [row, expert], with the case's true bias and scoring rule.

    Args:
        case: its ``bias`` is used; ``bias_b`` is what b used, not what it should.
        logits: the case's own, or those that a path may have misread.
        flush: subnormal logits, scores, keys and weights count as zero.

    Raises:
        ReferenceError: the reference's answer fails its own check.
    """
    if not flush:
        return reference_select(logits, case.bias, case.geometry, case.scoring)
    plain = reference_select(flushed(logits), case.bias, case.geometry, case.scoring)
    scores32 = flushed(plain.scores32)
    with np.errstate(all="ignore"):
        keys = scores32 if case.bias is None else scores32 + flushed(case.bias)
    chosen = select_keys(flushed(keys), case.geometry)
    scores = flushed(plain.scores)
    return replace(
        chosen,
        scores=scores,
        scores32=scores32,
        weights=flushed(rule_weights(chosen.ids, scores, case.scoring)),
    )


def select_keys(keys: F32, geometry: Geometry) -> ReferenceSelection:
    """The reference's selection from keys [row, expert] that are already made."""
    return reference_select(keys, None, geometry, _KEYS)
