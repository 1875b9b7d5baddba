"""torch as the adapters use it: arrays to a device and back, and the select's steps in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...banks.geometry import Geometry, ScoringRule
from ..contract import F32, I32

if TYPE_CHECKING:
    from torch import Tensor


def to_device(array: npt.NDArray[Any], device: str) -> Tensor:
    """A tensor on ``device`` with the array's bits; never the array's own memory."""
    import torch

    return torch.from_numpy(np.array(array, copy=True)).to(device)


def write_back(ids: Tensor, weights: Tensor, out_ids: I32, out_weights: F32) -> None:
    """Copy ids and weights [row, slot] of any integer and float dtype back; waits for the device.

    BF16 and FP16 weights become FP32 without rounding.
    """
    import torch

    out_ids[:] = ids.to(torch.int32).cpu().numpy()
    out_weights.view(np.uint32)[:] = weights.to(torch.float32).cpu().numpy().view(np.uint32)


def biased_scores(logits: Tensor, bias: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor]:
    """Scores torch.sigmoid(logits), and keys: score + bias, -inf outside the best groups.

    A group's rank is the sum of its two best keys, as in the DeepSeek-V3 gate.
    """
    import torch

    scores = torch.sigmoid(logits)
    keys = scores + bias
    if geometry.groups > 1:
        rows, size = len(keys), geometry.experts // geometry.groups
        grouped = keys.view(rows, geometry.groups, size)
        rank = grouped.topk(min(2, size), dim=-1).values.sum(dim=-1)
        best = rank.topk(geometry.top_groups, dim=-1).indices
        outside = torch.ones_like(rank, dtype=torch.bool).scatter_(1, best, False)
        keys = grouped.masked_fill(outside.unsqueeze(-1), float("-inf")).view(rows, -1)
    return scores, keys


def rule_weights(scores: Tensor, ids: Tensor, scoring: ScoringRule) -> Tensor:
    """Weights [row, slot]: the selected scores, divided by (their sum + epsilon), times scale."""
    chosen = scores.gather(1, ids)
    return chosen / (chosen.sum(dim=-1, keepdim=True) + scoring.epsilon) * scoring.scale
