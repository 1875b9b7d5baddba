"""The select of a rank, where its logits live: a Triton kernel on CUDA, else CPU arithmetic."""

from __future__ import annotations

import torch

from ...banks.geometry import Geometry, ScoringRule
from ..cuda.topk_triton import select_rows
from ..device_select import device_select, parse_device_select
from ..select import SelectArithmetic, check_select, select
from .tensors import to_array


def select_on(
    rule: SelectArithmetic,
    geometry: Geometry,
    scoring: ScoringRule,
    logits: torch.Tensor,
    bias: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
) -> None:
    """Select logits [row, expert] into ids int32 and weights float32 [row, slot], where they live.

    On CUDA a graph can capture it.

    Raises:
        EnvelopeError: a geometry or scoring rule that the select does not compute.
    """
    if logits.device.type == "cuda":
        _, form = parse_device_select(rule.name, {}, "real ranks")
        kernel = device_select(rule, form, geometry, scoring)
        select_rows(logits, bias, kernel, geometry.top_k, scoring.scale, ids, weights)
        return
    chosen, shares = select(rule, to_array(logits), to_array(bias), geometry, scoring)
    ids.copy_(torch.from_numpy(chosen))
    weights.copy_(torch.from_numpy(shares))


def check_on(device: str, rule: SelectArithmetic, geometry: Geometry, scoring: ScoringRule) -> None:
    """Refuse what the select of a device does not compute.

    Raises:
        EnvelopeError: groups, sizes, or a scoring function.
    """
    check_select(rule, geometry, scoring)
    if device == "cuda":
        _, form = parse_device_select(rule.name, {}, "real ranks")
        device_select(rule, form, geometry, scoring)
