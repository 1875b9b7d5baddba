"""Ready specs: gates of Hugging Face transformers, as in version 5.24.

Each group of classes has one forward, word for word; ``tests/banks/test_recording_specs.py`` holds
the installed version to that.
"""

from __future__ import annotations

from typing import Final

from .spec import Attr, GateSpec, Parent

_SIGMOID_CLASSES: Final = (
    "AXK1TopkRouter",
    "BailingHybridTopkRouter",
    "DeepseekV3TopkRouter",
    "DeepseekV32TopkRouter",
    "Dots1TopkRouter",
    "Dots3NoteTextTopkRouter",
    "ExaoneMoeTopkRouter",
    "Glm4MoeLiteTopkRouter",
    "Glm4MoeTopkRouter",
    "Glm4vMoeTextTopkRouter",
    "Glm5NextTextTopkRouter",
    "GlmMoeDsaTopkRouter",
    "HYV4TopkRouter",
    "HYV4VLTopkRouter",
    "KimiLinearTopkRouter",
    "MiMoV2FlashTopkRouter",
    "SolarOpenTopkRouter",
)
_SLOTS: Final = "torch.topk(sorted=False): the order of the slots is no promise"


def _sigmoid(
    name: str, classes: tuple[str, ...], latent: str | None = None, optional: bool = False
) -> GateSpec:
    weight = None if latent is None else Parent(f"{latent}.weight", optional)
    return GateSpec(
        name=name,
        classes=classes,
        function="sigmoid",
        correction_bias=Attr("e_score_correction_bias"),
        renormalize=Attr("norm_topk_prob"),
        scale=Attr("routed_scaling_factor"),
        epsilon=1e-20,
        groups=Attr("num_group"),
        top_groups=Attr("topk_group"),
        latent_weight=weight,
        latent_module=latent,
        notes=(_SLOTS,),
    )


DEEPSEEK_V3: Final = _sigmoid("deepseek_v3", _SIGMOID_CLASSES)
"""Sigmoid, correction bias, top-2 sum per group; Kimi Linear, GLM and others have the same gate."""

NEMOTRON_H: Final = _sigmoid("nemotron_h", ("NemotronHTopkRouter",), "fc1_latent_proj", True)
"""The same gate in front of a latent projection, where the model has one: the shape of Kimi K3."""

MINIMAX_M2: Final = GateSpec(
    name="minimax_m2",
    classes=("MiniMaxM2TopKRouter",),
    function="sigmoid",
    correction_bias=Parent("e_score_correction_bias"),
    notes=(_SLOTS,),
)
"""Sigmoid and correction bias, which the block hands to the gate; no epsilon, no scale."""

MIXTRAL: Final = GateSpec(
    name="mixtral", classes=("MixtralTopKRouter", "MiniMaxTopKRouter"), function="softmax"
)
"""Softmax over all experts, top k, divided by their sum."""

QWEN3_MOE: Final = GateSpec(
    name="qwen3_moe",
    classes=(
        "FlexOlmoTopKRouter",
        "MellumTopKRouter",
        "OlmoeTopKRouter",
        "Qwen2MoeTopKRouter",
        "Qwen3MoeTopKRouter",
        "Qwen3NextTopKRouter",
        "Qwen3OmniMoeTalkerTextTopKRouter",
        "Qwen3OmniMoeThinkerTextTopKRouter",
        "Qwen4ExpTextTopKRouter",
    ),
    function="softmax",
    renormalize=Attr("norm_topk_prob"),
    notes=("the weights are rounded to the dtype of the logits at the end",),
)
"""Softmax over all experts, top k, divided by their sum where ``norm_topk_prob`` says so."""

GPT_OSS: Final = GateSpec(
    name="gpt_oss",
    classes=("GptOssTopKRouter",),
    function="softmax",
    logit_bias=Attr("bias"),
    notes=(
        "the gate takes the top k of the logits and the softmax of those k alone, in the dtype of "
        "the logits: in exact arithmetic the rule of the bank (softmax over all, divided by the "
        "selected sum); keys that round to one softmax value are no tie of the gate",
    ),
)
"""A linear layer with a bias, top k of the logits, softmax of the selected."""

READY: Final = (DEEPSEEK_V3, NEMOTRON_H, MINIMAX_M2, MIXTRAL, QWEN3_MOE, GPT_OSS)
"""What ``record`` looks for where it is told nothing."""
