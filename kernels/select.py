"""Named selects: how logits and a bias become expert ids and weights, one arithmetic per name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..banks.errors import EnvelopeError, InputError
from ..banks.geometry import Geometry, ScoringRule
from .contract import F32, I32
from .rounding import rounded
from .scores import FORMS
from .select_engine import NAN_KEYS, select_rows
from .select_weights import NORMALISATIONS, SUMS, EngineRule


@dataclass(frozen=True, slots=True)
class NonfiniteRule:
    """What a select does with NaN and infinities.

    Attributes:
        words: the rule as it is declared.
        mask_logit: a non-finite logit gets key -inf and score 0.
        mask_bias: a non-finite bias gets key -inf and score 0.
        zero_score: a non-finite score becomes 0 and is still ranked by its bias.
        nan_key: a NaN key counts as -inf, ranks ``lowest`` (below -inf) or ``highest``.
        uniform_if_none: if no key is above -inf: ids 0..K-1, weights 1/K.
    """

    words: str
    mask_logit: bool = False
    mask_bias: bool = False
    zero_score: bool = False
    nan_key: str = "lowest"
    uniform_if_none: bool = False


NONFINITE: Final = {
    "masked": NonfiniteRule(
        "non-finite logit or bias: key -inf, score 0", True, True, False, "minus_inf"
    ),
    "zero_score": NonfiniteRule(
        "non-finite score: 0, still ranked by bias; NaN key: -inf; +inf bias wins",
        zero_score=True,
        nan_key="minus_inf",
    ),
    "masked_logit": NonfiniteRule(
        "non-finite logit: key -inf, score 0; NaN key: -inf; nothing left: ids 0..K-1, weights 1/K",
        mask_logit=True,
        nan_key="minus_inf",
        uniform_if_none=True,
    ),
    "propagate": NonfiniteRule("propagates; NaN key ranks highest", nan_key="highest"),
    "lowest": NonfiniteRule("propagates into weights; NaN key ranks lowest"),
}

_NORMALISE_WORDS: Final = {
    "reciprocal_eps": "times scale/(sum+eps)",
    "reciprocal_guard": "times scale/(sum>0 ? sum : 1)",
    "divide_eps": "divide by (sum+eps), times scale",
    "divide_guard": "divide by (sum>0 ? sum : 1), times scale",
    "divide_fp64": "times scale, divide by (sum+eps), in FP64, rounded once",
    "none": "times scale",
}


@dataclass(frozen=True, slots=True)
class SelectArithmetic:
    """One named select.

    Attributes:
        name: its name.
        source: what it follows, and where it deliberately does not.
        score: a name of ``scores.FORMS``, or ``rule`` for the bank's own function rounded once.
        nonfinite: a name of ``NONFINITE``.
        weight_sum: order of the weight sum, a name of ``select_weights.SUMS``.
        normalise: a name of ``select_weights.NORMALISATIONS``.
        slot_order: ``selection`` (key descending, then lower id) or ``ascending`` id.
        epsilon: the eps of ``normalise``; None takes the scoring rule's.
        logits: ``fp32`` or ``bf16`` (rounded before anything else).
        bias: ``fp32``, ``bf16`` or ``none``.
        groups: whether more than one expert group is accepted.
        precise: FP64 at each step, weights rounded once.
        functions: scoring functions it computes; empty accepts each (``score`` says which).
    """

    name: str
    source: str
    score: str
    nonfinite: str
    weight_sum: str
    normalise: str
    slot_order: str = "selection"
    epsilon: float | None = None
    logits: str = "fp32"
    bias: str = "fp32"
    groups: bool = False
    precise: bool = False
    functions: tuple[str, ...] = ("sigmoid",)

    def score_words(self) -> str:
        """The score as it is declared, with the roundings of its inputs."""
        words = "the bank's function, rounded once to FP32"
        if self.precise:
            words = "the bank's function in FP64"
        elif self.score != "rule":
            words = FORMS[self.score].steps
        parts = [words]
        if self.logits == "bf16":
            parts.append("logits rounded to BF16 first")
        if self.bias != "fp32":
            parts.append(f"bias {'left out' if self.bias == 'none' else 'rounded to BF16'}")
        return "; ".join(parts)

    def normalise_words(self) -> str:
        """The normalisation as it is declared."""
        epsilon = "scoring.epsilon" if self.epsilon is None else f"{self.epsilon:g}"
        return _NORMALISE_WORDS[self.normalise].replace("eps", epsilon)


SELECTS: Final = {
    rule.name: rule
    for rule in (
        SelectArithmetic(
            "fused", "single-exchange route kernel (b12x all_gather_pair_kimi_topk)",
            "tanh", "masked", "fold", "reciprocal_eps", epsilon=1e-20,
        ),
        SelectArithmetic(
            "standalone", "batched top-16 route kernel (b12x kimi_topk16)",
            "exp", "zero_score", "left_to_right", "reciprocal_guard",
        ),
        SelectArithmetic(
            "grouped_topk", "vLLM generic grouped_topk; scores of -inf keys count as 0 here",
            "tanh", "masked_logit", "butterfly", "reciprocal_eps", epsilon=1e-20, groups=True,
        ),
        SelectArithmetic(
            "noaux_tc", "noAuxTcKernels (TensorRT-LLM; FlashInfer), with a precise tanh",
            "tanh", "propagate", "butterfly", "divide_fp64", epsilon=1e-20, groups=True,
        ),
        SelectArithmetic(
            "topk_sigmoid", "vLLM topk_sigmoid; its repeats of expert 0 at keys <= -1 are left out",
            "exp", "zero_score", "left_to_right", "divide_guard",
        ),
        SelectArithmetic(
            "hf", "Hugging Face gate; torch leaves sum and tie order open: left to right, lower id",
            "rule", "propagate", "left_to_right", "divide_eps", epsilon=1e-20, groups=True,
            functions=(),
        ),
        SelectArithmetic(
            "radix_bf16", "SGLang route_radix", "exp", "lowest", "ascending", "divide_guard",
            slot_order="ascending", logits="bf16",
        ),
        SelectArithmetic(
            "ascending", "FlashInfer kimi_k3_fused_router",
            "exp", "lowest", "ascending", "divide_guard", slot_order="ascending",
        ),
        SelectArithmetic(
            "softmax", "softmax routers with FP32 steps",
            "softmax", "lowest", "left_to_right", "divide_guard", functions=("softmax",),
        ),
        SelectArithmetic(
            "grouped", "sum of a group's two best keys, then the best groups (DeepSeek-V3)",
            "rule", "lowest", "left_to_right", "divide_eps", groups=True, functions=(),
        ),
        SelectArithmetic(
            "fp64", "exact arithmetic's order: FP64 throughout, lower id on equal FP64 keys",
            "rule", "lowest", "left_to_right", "divide_eps", groups=True, precise=True,
            functions=(),
        ),
    )
}  # fmt: skip

OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "logits": ("fp32", "bf16"),
    "bias": ("fp32", "bf16", "none"),
    "sum": SUMS,
    "score": tuple(FORMS),
    "normalise": NORMALISATIONS[:-1],
}
"""Options that change one part of a named select, with their choices."""

_FIELD: Final = {"sum": "weight_sum"}


def check_choice(option: str, value: str, choices: tuple[str, ...], where: str) -> str:
    """``value`` where it is one of ``choices``.

    Raises:
        InputError: it is not.
    """
    if value not in choices:
        raise InputError(option, value, f"one of {', '.join(choices)}", where)
    return value


def make_select(name: str, options: Mapping[str, str], where: str) -> SelectArithmetic:
    """The named arithmetic with some parts replaced by ``options``.

    Raises:
        InputError: an unknown select, option or choice.
    """
    rule = SELECTS[check_choice("select", name, tuple(SELECTS), where)]
    changes: dict[str, Any] = {}
    for option, value in options.items():
        check_choice("select option", option, tuple(OPTIONS), where)
        changes[_FIELD.get(option, option)] = check_choice(option, value, OPTIONS[option], where)
    if "score" in changes:
        changes["functions"] = ()
        if rule.precise:
            raise InputError("score", changes["score"], "left out", f"{where} select fp64")
    return replace(rule, **changes)


def check_select(rule: SelectArithmetic, geometry: Geometry, scoring: ScoringRule) -> None:
    """Refuse a geometry or scoring rule that the select does not compute.

    Raises:
        EnvelopeError: groups, or a scoring function, outside the select's envelope.
    """
    where = f"select {rule.name}"
    if geometry.groups > 1 and not rule.groups:
        raise EnvelopeError("groups", geometry.groups, "1", where)
    if rule.functions and scoring.function not in rule.functions:
        raise EnvelopeError("scoring.function", scoring.function, rule.functions[0], where)


def engine_rule(rule: SelectArithmetic, geometry: Geometry, scoring: ScoringRule) -> EngineRule:
    """The select as the numba loops see it, its names turned into codes."""
    nonfinite = NONFINITE[rule.nonfinite]
    normalise = rule.normalise if scoring.renormalize else "none"
    return EngineRule(
        score=FORMS[scoring.function if rule.score == "rule" else rule.score].code,
        mask_logit=nonfinite.mask_logit,
        mask_bias=nonfinite.mask_bias,
        zero_score=nonfinite.zero_score,
        nan_key=NAN_KEYS.index(nonfinite.nan_key),
        uniform_if_none=nonfinite.uniform_if_none,
        weight_sum=SUMS.index(rule.weight_sum),
        normalise=NORMALISATIONS.index(normalise),
        ascending=rule.slot_order == "ascending",
        precise=rule.precise,
        groups=geometry.groups,
        top_groups=geometry.top_groups,
        epsilon=scoring.epsilon if rule.epsilon is None else rule.epsilon,
        scale=scoring.scale,
    )


def select_bias(rule: SelectArithmetic, bias: F32) -> F32:
    """The bias [expert] that the select adds: the given one, rounded to BF16, or zeros."""
    if rule.bias == "none":
        return np.zeros(len(bias), np.float32)
    return rounded(bias) if rule.bias == "bf16" else np.ascontiguousarray(bias)


def select_logits(rule: SelectArithmetic, logits: npt.NDArray[Any]) -> F32:
    """The logits [row, expert] that the select scores: the given ones, or rounded to BF16."""
    return rounded(logits) if rule.logits == "bf16" else np.ascontiguousarray(logits)


def select(
    rule: SelectArithmetic,
    logits: npt.NDArray[Any],
    bias: F32,
    geometry: Geometry,
    scoring: ScoringRule,
) -> tuple[I32, F32]:
    """Expert ids and weights [row, slot] of logits [row, expert] float32 and bias [expert] float32.

    Raises:
        EnvelopeError: the select does not compute this geometry or scoring rule.
        InputError: a shape or dtype that does not fit.
    """
    check_select(rule, geometry, scoring)
    experts, where = geometry.experts, f"select {rule.name}"
    for name, array, shape in (
        ("logits", logits, (len(logits), experts)),
        ("bias", bias, (experts,)),
    ):
        if array.shape != shape or array.dtype != np.float32:
            got = f"{array.dtype}{list(array.shape)}"
            raise InputError(name, got, f"float32{list(shape)}", where)
    bias, values = select_bias(rule, bias), select_logits(rule, logits)
    ids = np.empty((len(values), geometry.top_k), np.int32)
    weights = np.empty((len(values), geometry.top_k), np.float32)
    engine = engine_rule(rule, geometry, scoring)
    select_rows(values, bias, engine, ids, weights)
    return ids, weights
