"""Named mistakes of a select, each as the steps that it takes otherwise.

A select makes, in this order, ``logits``, ``scores``, ``bias``, ``keys``, ``eligible`` experts,
``ties`` (who wins between equal keys), the ids, ``values`` (what weights are made of), the
``scoring`` rule of the weights, and the weights as they are ``output``. A mistake replaces some of
them; two mistakes are one that replaces the steps of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from ...banks.geometry import Geometry, ScoringRule
from ...kernels.contract import BFLOAT16
from ...kernels.reference_scores import scores as exact_scores
from ..metrics.flush import flushed

Array = npt.NDArray[Any]
Stage = Literal["set", "weights", "both"]

INDEX_EPSILONS: Final = (1e-8, 1e-7, 3e-7, 1e-6, 1e-5, 1e-4)
"""Subtracted once an expert id to make ties go to the lower one; too large, they reverse gaps."""
EPSILONS: Final = (0.0, 1e-20, 1e-12, 1e-9, 1e-8, 1e-6, 1e-5)
"""Added to the sum of the weights in some router or other."""


@dataclass(frozen=True, eq=False)
class View:
    """A select while it runs: what the steps so far have made.

    Attributes:
        geometry, scoring: the rule; a step may have replaced ``scoring``.
        logits: [row, expert] float32.
        scores: [row, expert] float32, or float64 where the select is precise.
        bias: [expert] float32.
        keys: [row, expert] float32 (float64 by ``fp64_keys``).
        eligible: [row, expert] bool: the expert's group was chosen.
        ties: [expert] int64, the higher one wins between equal keys.
        ids: [row, slot] the path's own, for which weights are made.
        values: [row, expert] what weights are made of, dtype of ``scores``.
        weights: [..., row, slot] float32.
    """

    geometry: Geometry
    scoring: ScoringRule
    logits: Array
    scores: Array
    bias: Array
    keys: Array
    eligible: Array
    ties: Array
    ids: Array
    values: Array
    weights: Array

    def having(self, **changes: Any) -> View:
        """The view with some of its arrays replaced."""
        return replace(self, **changes)


Step = Callable[[View], Any]


@dataclass(frozen=True, eq=False)
class Mistake:
    """A name, what it can change (``set`` or ``weights``), and its steps by the part they make."""

    name: str
    stage: Stage
    steps: tuple[tuple[str, Step], ...] = ()
    function: str | None = None
    """Score function in place of the rule's."""

    def of(self, part: str) -> list[Step]:
        """The steps that make one part."""
        return [step for name, step in self.steps if name == part]

    @property
    def parts(self) -> frozenset[str]:
        """Names of the parts that it changes."""
        own = {name for name, _ in self.steps}
        return frozenset(own | ({"scores"} if self.function else set()))


RIGHT: Final = Mistake("", "both")
"""No mistake: what is left are score form, order of the sum and normalisation."""


def both(first: Mistake, second: Mistake) -> Mistake:
    """Two mistakes made at once."""
    return Mistake(
        f"{first.name}+{second.name}",
        "both" if first.stage != second.stage else first.stage,
        first.steps + second.steps,
        first.function or second.function,
    )


def bf16(values: Array) -> Array:
    """``values`` rounded to BF16, in their own dtype."""
    return values.astype(BFLOAT16).astype(values.dtype)


def _set(name: str, **steps: Step) -> Mistake:
    return Mistake(name, "set", tuple(steps.items()))


def _weights(name: str, **steps: Step) -> Mistake:
    return Mistake(name, "weights", tuple(steps.items()))


def set_mistakes(
    geometry: Geometry, scoring: ScoringRule, bias: Array, bias_b: Array | None = None
) -> Iterator[Mistake]:
    """Yield the mistakes that can select other experts, the commonest first.

    Args:
        geometry: groups are only mistaken where there are some.
        scoring: its own function is no mistake.
        bias: [expert] float32; one of zeros cannot be forgotten.
        bias_b: [expert] float32 what a case says that its path b held.
    """
    yield _set(
        "flush_to_zero",
        logits=lambda v: flushed(v.logits),
        scores=lambda v: flushed(v.scores),
        bias=lambda v: flushed(v.bias),
        keys=lambda v: flushed(v.keys),
        output=lambda v: flushed(v.weights),
    )
    yield _set("bf16_logits", logits=lambda v: bf16(v.logits))
    if bias.any():
        yield _set("bf16_bias", bias=lambda v: bf16(v.bias))
    yield _set("bf16_scores", scores=lambda v: bf16(v.scores))
    yield _set("bf16_keys", keys=lambda v: bf16(v.keys))
    yield _set("fp16_logits", logits=lambda v: v.logits.astype(np.float16).astype(np.float32))
    yield _set("fp64_keys", keys=_fp64_keys)
    if bias_b is not None:
        yield _set("bias_b", bias=lambda v: bias_b)
    if bias.any():
        yield _set("no_bias", bias=lambda v: np.zeros_like(v.bias))
        yield _set("bias_subtracted", keys=lambda v: v.scores.astype(np.float32) - v.bias)
        yield _set("bias_added_twice", keys=lambda v: v.keys + v.bias)
    if geometry.groups > 1:
        yield from _group_mistakes(geometry)
    for function in ("sigmoid", "softmax", "sqrtsoftplus"):
        if function != scoring.function:
            yield Mistake(f"{function}_scores", "set", function=function)
    if scoring.function != "identity":
        yield _set("topk_on_logits", keys=lambda v: v.logits)
        if bias.any():
            yield _set("topk_on_biased_logits", keys=lambda v: v.logits + v.bias)
    yield from _order_mistakes()


def _fp64_keys(view: View) -> Array:
    values = exact_scores(view.scoring.function, view.logits.astype(np.float64))
    return values + view.bias.astype(np.float64)


def _group_mistakes(geometry: Geometry) -> Iterator[Mistake]:
    yield _set("groups_ignored", eligible=lambda v: np.ones_like(v.eligible))
    yield _set(
        "group_mask_zero",
        keys=lambda v: np.where(
            group_eligible(v.geometry, v.keys, 2), v.keys, v.keys.dtype.type(0)
        ),
        eligible=lambda v: np.ones_like(v.eligible),
    )
    yield _set("group_best_only", eligible=lambda v: group_eligible(v.geometry, v.keys, 1))
    yield _set(
        "group_score_unbiased",
        eligible=lambda v: group_eligible(v.geometry, v.scores.astype(np.float32), 2),
    )
    everyone = geometry.experts
    yield _set("group_sum_of_all", eligible=lambda v: group_eligible(v.geometry, v.keys, everyone))


def _order_mistakes() -> Iterator[Mistake]:
    for epsilon in INDEX_EPSILONS:
        yield _set(f"index_epsilon_{epsilon:g}", keys=_index_epsilon(epsilon))
    yield _set("higher_id_on_ties", ties=lambda v: np.arange(len(v.ties)))
    yield _set("absolute_keys", keys=lambda v: np.abs(v.keys))
    yield _set("nan_as_zero", keys=lambda v: np.where(np.isnan(v.keys), 0, v.keys))
    yield _set("nan_wins", keys=lambda v: np.where(np.isnan(v.keys), np.inf, v.keys))
    yield _set("smallest_keys", keys=lambda v: -v.keys)


def _index_epsilon(epsilon: float) -> Step:
    def keys(view: View) -> Array:
        experts = view.keys.shape[1]
        steps = np.arange(experts, dtype=np.float32) * np.float32(epsilon)
        return np.asarray(view.keys - steps)

    return keys


def group_eligible(geometry: Geometry, values: Array, best: int) -> Array:
    """Whether each expert [row, expert] lies in a chosen group.

    A group counts the sum of its ``best`` largest ``values`` [row, expert], in their dtype.
    """
    if geometry.groups == 1:
        return np.ones(values.shape, np.bool_)
    # NaN ranks last, in a group and among groups.
    known = np.where(np.isnan(values), values.dtype.type(-np.inf), values)
    grouped = np.sort(known.reshape(len(values), geometry.groups, -1), axis=2)
    totals = grouped[:, :, -best:].sum(axis=2, dtype=values.dtype)
    order = np.argsort(-np.where(np.isnan(totals), -np.inf, totals), axis=1, kind="stable")
    chosen = np.zeros(totals.shape, np.bool_)
    np.put_along_axis(chosen, order[:, : geometry.top_groups], True, axis=1)
    return np.asarray(np.repeat(chosen, geometry.experts // geometry.groups, axis=1))


def weight_mistakes(scoring: ScoringRule, bias: Array) -> Iterator[Mistake]:
    """Yield the mistakes that give other weights to the ids that are selected.

    The names are those of ``metrics.weight_hypotheses``; what the rule does anyway is left out.
    """
    if bias.any():
        yield _weights("biased_score_weights", values=lambda v: v.values + v.bias)
        yield _weights("bias_subtracted", values=lambda v: (v.values + v.bias) - v.bias)
    if scoring.scale != 1.0:
        yield _weights("scale_applied_twice", output=_scaled)
        yield _weights("scale_not_applied", scoring=lambda v: replace(v.scoring, scale=1.0))
    if scoring.renormalize:
        yield _weights("not_renormalised", scoring=lambda v: replace(v.scoring, renormalize=False))
        for epsilon in EPSILONS:
            if epsilon != scoring.epsilon:
                yield _weights(f"epsilon_{epsilon:g}", scoring=_epsilon(epsilon))
    else:
        yield _weights("renormalised", scoring=lambda v: replace(v.scoring, renormalize=True))
    yield _weights("bf16_weights", output=lambda v: bf16(v.weights))
    yield _weights("fp16_weights", output=lambda v: v.weights.astype(np.float16).astype(np.float32))
    yield _weights("bf16_scores", values=lambda v: bf16(v.values))
    yield _weights("bf16_logits", values=_values(lambda v: v.having(logits=bf16(v.logits)), ""))
    if scoring.function != "softmax":
        yield _weights(
            "softmax_weights",
            values=_values(lambda v: v, "softmax"),
            scoring=lambda v: replace(v.scoring, renormalize=True),
        )
    yield _weights("softmax_over_selected", values=_values(_selected_only, "softmax"))
    if scoring.function != "sigmoid":
        yield _weights("sigmoid_instead_of_softmax", values=_values(lambda v: v, "sigmoid"))
    yield _weights(
        "uniform",
        values=lambda v: np.ones_like(v.values),
        scoring=lambda v: replace(v.scoring, renormalize=True, epsilon=0.0),
    )


def _scaled(view: View) -> Array:
    return view.weights * np.float32(view.scoring.scale)


def _epsilon(epsilon: float) -> Step:
    return lambda v: replace(v.scoring, epsilon=epsilon)


def _values(of: Callable[[View], View], function: str) -> Step:
    """Scores of the logits of a changed view, by the rule's function where ``function`` is ''."""

    def values(view: View) -> Array:
        changed = of(view)
        logits = changed.logits.astype(np.float64)
        named: Any = function or view.scoring.function
        with np.errstate(all="ignore"):
            return exact_scores(named, logits).astype(view.values.dtype)

    return values


def _selected_only(view: View) -> View:
    masked = np.full(view.logits.shape, -np.inf, np.float32)
    np.put_along_axis(masked, view.ids, np.take_along_axis(view.logits, view.ids, axis=1), axis=1)
    return view.having(logits=masked)
