"""Faults of the score: its inputs, its function, its bias."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ....kernels.contract import F32, Launch, Path, Routed
from ..fault import Fault, always
from ..loops import exchanged, held, scores_and_keys, select_again, top_k, write_selection
from ..scenes import FRONT, GROUPS, LARGE_BIAS, SATURATED, SELECT, SUBNORMAL

_SMALLEST_NORMAL: Final = np.float32(2.0**-126)


def bf16(values: npt.NDArray[Any]) -> F32:
    """FP32 values rounded to BF16 and back."""
    rounded: F32 = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    return rounded


def with_bias(launch: Launch, bias: F32) -> Launch:
    """The launch with another correction bias."""
    return replace(launch, weights=replace(launch.weights, bias=bias))


def bias_in_bf16(clean: Path, launch: Launch, out: Routed) -> None:
    """Select with the bias rounded to BF16."""
    clean.run(with_bias(launch, bf16(launch.weights.bias)), out)


def _bias_missing(clean: Path, launch: Launch, out: Routed) -> None:
    clean.run(with_bias(launch, np.zeros_like(launch.weights.bias)), out)


def _bias_twice(clean: Path, launch: Launch, out: Routed) -> None:
    """Once in the router's epilogue, once in the select."""
    scores, keys = scores_and_keys(launch, exchanged(clean, launch, out))
    ids = top_k(keys + launch.weights.bias, launch.geometry.top_k)
    write_selection(launch, out, scores, ids)


def _logits_in_bf16(clean: Path, launch: Launch, out: Routed) -> None:
    clean.run(launch, out)
    select_again(clean, launch, out, bf16(held(launch, out)))


def _logits_exchanged_in_bf16(clean: Path, launch: Launch, out: Routed) -> None:
    clean.run(launch, out)
    assert out.logits is not None
    out.logits[:] = bf16(out.logits)
    select_again(clean, launch, out, held(launch, out))


def _scores_in_bf16(clean: Path, launch: Launch, out: Routed) -> None:
    scores, _ = scores_and_keys(launch, exchanged(clean, launch, out))
    rounded = bf16(scores)
    ids = top_k(rounded + launch.weights.bias, launch.geometry.top_k)
    write_selection(launch, out, rounded, ids)


def _softmax(clean: Path, launch: Launch, out: Routed) -> None:
    logits = exchanged(clean, launch, out)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    scores = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
    ids = top_k(scores + launch.weights.bias, launch.geometry.top_k)
    write_selection(launch, out, scores, ids)


def _top_k_of_logits(clean: Path, launch: Launch, out: Routed) -> None:
    """Top-k first, sigmoid after: monotone, so right wherever there is no bias."""
    logits = exchanged(clean, launch, out)
    scores, _ = scores_and_keys(launch, logits)
    write_selection(launch, out, scores, top_k(logits, launch.geometry.top_k))


def _flushed(clean: Path, launch: Launch, out: Routed) -> None:
    """Subnormal results become zero, as with ``-ftz=true``."""
    scores, _ = scores_and_keys(launch, exchanged(clean, launch, out))
    scores = np.where(np.abs(scores) < _SMALLEST_NORMAL, np.float32(0.0), scores)
    ids = top_k(scores + launch.weights.bias, launch.geometry.top_k)
    write_selection(launch, out, scores, ids)


def _exp_overflows(clean: Path, launch: Launch, out: Routed) -> None:
    """exp(x) / (1 + exp(x)): infinity over infinity from a logit of 88.8 on."""
    logits = exchanged(clean, launch, out)
    with np.errstate(over="ignore", invalid="ignore"):
        power = np.exp(logits)
        scores = (power / (np.float32(1.0) + power)).astype(np.float32)
    # A library's top-k takes NaN for the largest value.
    keys = np.where(np.isnan(scores), np.float32(np.inf), scores + launch.weights.bias)
    ids = top_k(keys, launch.geometry.top_k)
    write_selection(launch, out, scores, ids)


FAULTS: Final = (
    Fault(
        "bias_in_bf16",
        "the correction bias is rounded to BF16 before it is added",
        "sgl-project/sglang#37133",
        (LARGE_BIAS, GROUPS),
        always(bias_in_bf16),
        ("explained_by:bf16_bias",),
    ),
    Fault(
        "bias_missing",
        "the selection ignores the correction bias",
        "tt-metal#47705",
        (SELECT, FRONT),
        always(_bias_missing),
        ("explained_by:no_bias",),
        # Without a bias the two are one: the sigmoid is monotone.
        implies=("explained_by:topk_on_logits",),
    ),
    Fault(
        "bias_added_twice",
        "the correction bias is added in the router and again in the select",
        "a bias fused into two kernels",
        (SELECT,),
        always(_bias_twice),
        ("explained_by:bias_added_twice",),
    ),
    Fault(
        "logits_in_bf16",
        "the select rounds the logits to BF16 first",
        "sgl-project/sglang#33764",
        (SELECT, FRONT),
        always(_logits_in_bf16),
        ("explained_by:bf16_logits",),
    ),
    Fault(
        "logits_exchanged_in_bf16",
        "the logits cross the ranks in BF16",
        "vllm#58076",
        (FRONT,),
        always(_logits_exchanged_in_bf16),
        ("explained_by:bf16_logits",),
    ),
    Fault(
        "scores_in_bf16",
        "the scores are rounded to BF16 before the bias is added",
        "AstrAI#57",
        (SELECT,),
        always(_scores_in_bf16),
        ("explained_by:bf16_scores",),
    ),
    Fault(
        "softmax_for_sigmoid",
        "scores are a softmax over all experts where the rule says sigmoid",
        "aiter#2153, MetaX-MACA/vLLM-metax#269",
        (SELECT, FRONT),
        always(_softmax),
        ("explained_by:softmax_scores", "explained_by:softmax_weights"),
    ),
    Fault(
        "top_k_of_logits",
        "experts are selected by logit, and only then scored",
        "flashinfer#4404",
        (SELECT,),
        always(_top_k_of_logits),
        ("explained_by:topk_on_logits", "explained_by:no_bias"),
    ),
    Fault(
        "flush_to_zero",
        "subnormal scores become zero although the policy does not declare it",
        "a kernel compiled with -ftz=true",
        (SUBNORMAL,),
        always(_flushed),
        ("explained_by:flush_to_zero",),
    ),
    Fault(
        "exp_overflows",
        "the sigmoid is computed as exp(x) / (1 + exp(x)), which is NaN for a large logit",
        "ds4#1044",
        (SATURATED,),
        always(_exp_overflows),
        ("breach:nonfinite_weight",),
    ),
)
