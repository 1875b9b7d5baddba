"""Faults of the weights: what they are gathered from, summed to and scaled by."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from ....kernels.contract import F32, Launch, Path, Routed
from ..fault import Fault, always
from ..loops import held, normalised, picked, scores_and_keys, write
from ..scenes import FRONT, GROUPS, SCALED, SELECT, ZERO_SCORES, Scene, biased_by
from .score import bf16

_SWALLOWED: Final[Scene] = biased_by(12.0)


def _selected(clean: Path, launch: Launch, out: Routed) -> tuple[F32, F32]:
    """Run the clean path; return the scores and keys [row, slot] of what it selects."""
    clean.run(launch, out)
    scores, keys = scores_and_keys(launch, held(launch, out))
    return picked(scores, out.ids[0]), picked(keys, out.ids[0])


def _bias_in_weights(clean: Path, launch: Launch, out: Routed) -> None:
    _, keys = _selected(clean, launch, out)
    out.weights[:] = normalised(keys, launch.scoring)


def _bias_subtracted(clean: Path, launch: Launch, out: Routed) -> None:
    """The score is recovered as key - bias, which a large bias has swallowed."""
    _, keys = _selected(clean, launch, out)
    out.weights[:] = normalised(keys - launch.weights.bias[out.ids[0]], launch.scoring)


def _scale_twice(clean: Path, launch: Launch, out: Routed) -> None:
    clean.run(launch, out)
    out.weights[:] *= np.float32(launch.scoring.scale)


def _scale_never(clean: Path, launch: Launch, out: Routed) -> None:
    clean.run(replace(launch, scoring=replace(launch.scoring, scale=1.0)), out)


def _not_renormalised(clean: Path, launch: Launch, out: Routed) -> None:
    clean.run(replace(launch, scoring=replace(launch.scoring, renormalize=False)), out)


def _sum_of_all(clean: Path, launch: Launch, out: Routed) -> None:
    """The sum runs over every expert, not over the selected ones."""
    clean.run(launch, out)
    scores, _ = scores_and_keys(launch, held(launch, out))
    total = scores.sum(axis=1, keepdims=True, dtype=np.float32)
    out.weights[:] = picked(scores, out.ids[0]) / total * np.float32(launch.scoring.scale)


def _zero_over_zero(clean: Path, launch: Launch, out: Routed) -> None:
    """Divide by the sum of the selected scores without a guard."""
    scores, _ = _selected(clean, launch, out)
    with np.errstate(invalid="ignore"):
        out.weights[:] = scores / scores.sum(axis=1, keepdims=True, dtype=np.float32)


def _weights_in_bf16(clean: Path, launch: Launch, out: Routed) -> None:
    clean.run(launch, out)
    out.weights[:] = bf16(out.weights)


def _softmax_weights(clean: Path, launch: Launch, out: Routed) -> None:
    """Right experts, but weighted by a softmax over the selected logits."""
    clean.run(launch, out)
    chosen = picked(held(launch, out), out.ids[0])
    powers = np.exp(chosen - chosen.max(axis=1, keepdims=True))
    out.weights[:] = normalised(powers, launch.scoring)


def _other_slots(clean: Path, launch: Launch, out: Routed) -> None:
    """Ids are sorted by weight afterwards, the weights are not."""
    clean.run(launch, out)
    order = np.argsort(-out.weights[0], axis=1, kind="stable")
    write(out, np.take_along_axis(out.ids[0], order, axis=1), out.weights[0].copy())


FAULTS: Final = (
    Fault(
        "bias_in_weights",
        "weights are gathered from the biased scores",
        "MetaX-MACA/vLLM-metax#270",
        (SELECT, FRONT, SCALED),
        always(_bias_in_weights),
        ("explained_by:biased_score_weights",),
    ),
    Fault(
        "bias_subtracted",
        "the unbiased score is recovered as biased score minus bias",
        "flashinfer#3875",
        (_SWALLOWED,),
        always(_bias_subtracted),
        ("explained_by:bias_subtracted",),
    ),
    Fault(
        "scale_applied_twice",
        "the routed scaling factor is applied twice",
        "vllm#24119, sgl-project/sglang#35152",
        (SCALED, GROUPS),
        always(_scale_twice),
        ("explained_by:scale_applied_twice",),
    ),
    Fault(
        "scale_not_applied",
        "the routed scaling factor is left out",
        "a scale that each side leaves to the other",
        (SCALED,),
        always(_scale_never),
        ("explained_by:scale_not_applied",),
    ),
    Fault(
        "not_renormalised",
        "weights are the scores themselves",
        "a flag that one path ignores",
        (SELECT,),
        always(_not_renormalised),
        ("explained_by:not_renormalised",),
    ),
    Fault(
        "renormalised_over_all_experts",
        "weights are divided by the sum over all experts",
        "a sum before the mask",
        (SELECT,),
        always(_sum_of_all),
        ("flag:wrong_sum", "explained_by:sum_over_all_experts"),
    ),
    Fault(
        "zero_over_zero",
        "scores that are all 0 are divided by their sum",
        "a division without a guard",
        (ZERO_SCORES,),
        always(_zero_over_zero),
        ("breach:nonfinite_weight",),
    ),
    Fault(
        "weights_in_bf16",
        "weights are rounded to BF16",
        "sgl-project/sglang#39351",
        (SELECT, SCALED),
        always(_weights_in_bf16),
        ("explained_by:bf16_weights",),
    ),
    Fault(
        "softmax_over_the_selected",
        "weights are a softmax over the selected logits",
        "a softmax router's epilogue used again",
        (SELECT,),
        always(_softmax_weights),
        ("explained_by:softmax_over_selected", "explained_by:softmax_weights"),
    ),
    Fault(
        "weights_in_other_slots",
        "ids are sorted again and their weights are not",
        "half of an output sorted again",
        (SELECT,),
        always(_other_slots),
        ("weights_in_other_slots",),
    ),
)
