"""k3-mini: a small language model whose MoE front has the shape of Kimi K3's.

x = RMSNorm(h) in BF16; logits = x W^T with FP32 products; score = sigmoid; the choice by score plus
a correction bias that the load moves (no auxiliary loss); weights renormalised; experts behind a
latent projection, a shared expert beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..recording.spec import Attr, GateSpec, Parent
from .k3_mini_corpus import VOCABULARY

_BF16: Final = torch.bfloat16
_NORM_EPSILON: Final = 1e-5
_SUM_EPSILON: Final = 1e-20

SPEC: Final = GateSpec(
    name="k3_mini",
    classes=("K3MiniGate",),
    function="sigmoid",
    correction_bias=Attr("bias"),
    epsilon=_SUM_EPSILON,
    latent_weight=Parent("down_used"),
    notes=("torch.topk(sorted=True): slots by descending key",),
)
"""What the recorder looks for; ``weight`` is the BF16 value that the gate multiplies by."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the model; the defaults are those of the shipped banks."""

    width: int = 512
    layers: int = 6
    heads: int = 8
    window: int = 512
    experts: int = 896
    top_k: int = 16
    latent: int = 256
    expert_hidden: int = 64
    shared_hidden: int = 256


TINY: Final = Sizes(32, 2, 2, 32, 32, 4, 16, 8, 16)
"""For the CPU, in seconds."""


def _linear(x: Tensor, weight: Tensor) -> Tensor:
    """FP32 master weights, products of BF16."""
    return F.linear(x, weight.to(x.dtype))


class RmsNorm(nn.Module):
    """FP32 inside, BF16 out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] -> the same."""
        return F.rms_norm(x.float(), (x.shape[-1],), self.weight, _NORM_EPSILON).to(_BF16)


class K3MiniGate(nn.Module):
    """[row, width] BF16 -> logits [row, expert] FP32, weights [row, slot] FP32, ids [row, slot]."""

    bias: Tensor
    load: Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.top_k = sizes.top_k
        self.master = nn.Parameter(torch.randn(sizes.experts, sizes.width) * 0.02)
        self.register_buffer("bias", torch.zeros(sizes.experts))
        self.register_buffer("load", torch.zeros(sizes.experts), persistent=False)

    @property
    def weight(self) -> Tensor:
        """[expert, width] BF16: what the product uses; the master is FP32."""
        return self.master.to(_BF16)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Route rows."""
        logits = F.linear(x.float(), self.weight.float())
        scores = logits.sigmoid()
        ids = (scores.detach() + self.bias).topk(self.top_k, sorted=True).indices
        weights = scores.gather(1, ids)
        weights = weights / (weights.sum(-1, keepdim=True) + _SUM_EPSILON)
        if self.training:
            self.load.copy_(torch.bincount(ids.flatten(), minlength=len(self.bias)).float())
        return logits, weights, ids

    @torch.no_grad()
    def move_bias(self, step: float) -> None:
        """Raise the bias of experts below the mean load, lower that of those above."""
        self.bias += step * torch.sign(self.load.mean() - self.load)


class LatentMoe(nn.Module):
    """Experts (SwiGLU) behind a latent projection, and a shared expert."""

    def __init__(self, s: Sizes) -> None:
        super().__init__()
        self.gate = K3MiniGate(s)
        self.down = nn.Parameter(torch.randn(s.latent, s.width) * s.width**-0.5)
        self.first = nn.Parameter(
            torch.randn(s.experts, s.latent, 2 * s.expert_hidden) * s.latent**-0.5
        )
        self.second = nn.Parameter(
            torch.randn(s.experts, s.expert_hidden, s.latent) * s.expert_hidden**-0.5
        )
        self.norm = RmsNorm(s.latent)
        deep = (2 * s.layers) ** -0.5
        self.up = nn.Parameter(torch.randn(s.width, s.latent) * s.latent**-0.5 * deep)
        self.shared_in = nn.Parameter(torch.randn(2 * s.shared_hidden, s.width) * s.width**-0.5)
        self.shared_out = nn.Parameter(
            torch.randn(s.width, s.shared_hidden) * s.shared_hidden**-0.5 * deep
        )

    @property
    def down_used(self) -> Tensor:
        """[latent, width] BF16: what the projection uses."""
        return self.down.to(_BF16)

    def forward(self, x: Tensor) -> Tensor:
        """[row, width] BF16 -> the same."""
        _, weights, ids = self.gate(x)
        latent = self._experts(_linear(x, self.down), weights, ids)
        a, b = _linear(x, self.shared_in).chunk(2, -1)
        return _linear(self.norm(latent), self.up) + _linear(F.silu(a) * b, self.shared_out)

    def _experts(self, z: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        """Sort the (row, slot) pairs by expert, multiply group by group, and put them back."""
        rows, slots = ids.shape
        order = ids.flatten().argsort(stable=True)
        counts = torch.bincount(ids.flatten(), minlength=len(self.gate.bias))
        ends = counts.cumsum(0).to(torch.int32)
        pairs = z.unsqueeze(1).expand(-1, slots, -1).reshape(rows * slots, -1)
        a, b = F.grouped_mm(pairs[order], self.first.to(_BF16), offs=ends).chunk(2, -1)
        out = F.grouped_mm(F.silu(a) * b, self.second.to(_BF16), offs=ends)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        return (out[back].view(rows, slots, -1) * weights.unsqueeze(-1)).sum(1)


class Attention(nn.Module):
    """Causal attention with rotary positions."""

    def __init__(self, s: Sizes) -> None:
        super().__init__()
        self.heads = s.heads
        self.qkv = nn.Parameter(torch.randn(3 * s.width, s.width) * s.width**-0.5)
        self.out = nn.Parameter(
            torch.randn(s.width, s.width) * s.width**-0.5 * (2 * s.layers) ** -0.5
        )

    def forward(self, x: Tensor, turn: Tensor) -> Tensor:
        """[batch, position, width] BF16 -> the same; turn [2, position, head / 2]: cos and sin."""
        batch, length, width = x.shape
        parts = _linear(x, self.qkv).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(_rotated(q, turn), _rotated(k, turn), v, is_causal=True)
        return _linear(y.transpose(1, 2).reshape(batch, length, width), self.out)


def _rotated(x: Tensor, turn: Tensor) -> Tensor:
    a, b = x.float().chunk(2, -1)
    cos, sin = turn
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(x.dtype)


class Block(nn.Module):
    """Attention, then the MoE; FP32 residual stream."""

    def __init__(self, s: Sizes) -> None:
        super().__init__()
        self.before, self.attention = RmsNorm(s.width), Attention(s)
        self.between, self.moe = RmsNorm(s.width), LatentMoe(s)

    def forward(self, h: Tensor, turn: Tensor) -> Tensor:
        """[batch, position, width] FP32 -> the same."""
        h = h + self.attention(self.before(h), turn)
        x = self.between(h)
        out: Tensor = h + self.moe(x.reshape(-1, x.shape[-1])).view_as(x)
        return out


class K3Mini(nn.Module):
    """A language model over bytes."""

    turn: Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        s = self.sizes = sizes
        self.embedding = nn.Parameter(torch.randn(VOCABULARY, s.width) * 0.02)
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.layers))
        self.norm = RmsNorm(s.width)
        head = s.width // s.heads
        rates = 10000.0 ** (-torch.arange(0, head, 2) / head)
        angle = torch.outer(torch.arange(s.window), rates)
        self.register_buffer("turn", torch.stack([angle.cos(), angle.sin()]), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """[batch, position] -> logits [batch, position, vocabulary] BF16."""
        h = F.embedding(tokens, self.embedding) * self.sizes.width**0.5
        for block in self.blocks:
            h = block(h, self.turn[:, : tokens.shape[1]])
        return _linear(self.norm(h), self.embedding)

    def loss(self, tokens: Tensor) -> Tensor:
        """Mean cross-entropy in nats of each token [batch, position + 1] after its first."""
        logits = self(tokens[:, :-1]).float()
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def gates(self) -> list[K3MiniGate]:
        """The gate of each layer."""
        return [module for module in self.modules() if isinstance(module, K3MiniGate)]
