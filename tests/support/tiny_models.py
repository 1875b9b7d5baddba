"""Small randomly initialised models of transformers, one an architecture, on the CPU."""

from __future__ import annotations

from typing import Any, Final

import torch
from transformers import AutoConfig, AutoModelForCausalLM

VOCABULARY: Final = 128
EXPERTS: Final = 32

_COMMON: Final = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 64,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_experts_per_tok": 4,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
_MLA: Final = {
    "q_lora_rank": None,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
}
_OWN: Final[dict[str, dict[str, Any]]] = {
    "deepseek_v3": {
        **_MLA, "n_routed_experts": EXPERTS, "n_group": 4, "topk_group": 2,
        "first_k_dense_replace": 1,
    },
    "kimi_linear": {
        **_MLA, "num_local_experts": EXPERTS, "linear_head_dim": 16, "linear_num_heads": 2,
        "layer_types": ["linear_attention", "full_attention"],
        "mlp_layer_types": ["dense", "sparse"],
    },
    "nemotron_h": {
        "n_routed_experts": EXPERTS, "layers_block_type": ["moe", "full_attention", "moe"],
        "num_hidden_layers": 3, "head_dim": 16, "moe_latent_size": 16,
        "moe_shared_expert_intermediate_size": 32, "routed_scaling_factor": 2.5,
    },
    "qwen3_moe": {"num_experts": EXPERTS, "norm_topk_prob": True},
    "mixtral": {"num_local_experts": EXPERTS},
    "gpt_oss": {"num_local_experts": EXPERTS, "head_dim": 16},
    "minimax_m2": {"num_local_experts": EXPERTS, "head_dim": 16},
}  # fmt: skip
KINDS: Final = tuple(_OWN)


def tiny_model(kind: str, dtype: torch.dtype = torch.bfloat16, **changes: Any) -> Any:
    """Return a model of two or three layers with weights from seed 0, in eval mode."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**_COMMON, **_OWN[kind], **changes})
    model: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    model = model.to(dtype).eval()
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            # Zeros at first: a bias that does nothing would test nothing.
            if name.endswith(("e_score_correction_bias", "router.bias")):
                tensor.copy_(torch.randn(tensor.shape) / 8)
    return model


def tokens(seed: int, batch: int = 2, sequence: int = 6) -> torch.Tensor:
    """[batch, sequence] token ids."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (batch, sequence), generator=generator)
