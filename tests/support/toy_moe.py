"""A small model with MoE gates whose arithmetic is plain, and a spec for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from neartie.banks.recording.spec import Attr, GateSpec, Parent

HIDDEN, LATENT, EXPERTS, TOP_K = 32, 16, 24, 4


class ToyGate(nn.Module):
    """Sigmoid scores, a correction bias, top k, renormalised."""

    bias: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(EXPERTS, HIDDEN, dtype=torch.bfloat16))
        self.register_buffer("bias", torch.randn(EXPERTS) / 4)
        self.top_k = TOP_K

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = x.reshape(-1, HIDDEN)
        logits = x.float() @ self.weight.float().T
        scores = logits.sigmoid()
        ids = (scores + self.bias).topk(self.top_k).indices
        weights = scores.gather(1, ids)
        return logits, weights / (weights.sum(-1, keepdim=True) + 1e-20), ids


class ToyMoe(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = ToyGate()
        self.down = nn.Linear(HIDDEN, LATENT, bias=False, dtype=torch.bfloat16)
        self.up = nn.Linear(LATENT, HIDDEN, bias=False, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> Any:
        _, weights, _ = self.gate(x)
        latent = self.down(x) * weights.sum(-1).view(*x.shape[:-1], 1).to(x.dtype)
        return x + self.up(latent)


class ToyModel(nn.Module):
    """[batch, sequence, hidden] BF16 -> the same; gates ``layers.1.gate`` and ``layers.3.gate``."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        parts = [nn.Identity(), ToyMoe(), nn.Identity(), ToyMoe()]
        self.layers = nn.ModuleList(parts)

    def moe(self, layer: int) -> ToyMoe:
        found = self.layers[layer]
        assert isinstance(found, ToyMoe)
        return found

    def forward(self, x: torch.Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


SPEC = GateSpec(
    name="toy",
    classes=("ToyGate",),
    function="sigmoid",
    correction_bias=Attr("bias"),
    epsilon=1e-20,
    latent_weight=Parent("down.weight"),
    latent_module="down",
)


def toy_input(seed: int, batch: int = 2, sequence: int = 5) -> torch.Tensor:
    """[batch, sequence, hidden] BF16."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, sequence, HIDDEN, generator=generator).to(torch.bfloat16)
