"""The top-k kernel of the device paths: ids and weights of each row, in selection order.

Which select it is (fused, standalone, ...) is data: a ``DeviceSelect`` names the score form, the
non-finite rule, the order of the weight sum and the normalisation. The arithmetic is
``exact_triton``'s, which the fast gate is tested against; here it writes the outputs of a path.
"""

from __future__ import annotations

from typing import Any, Final

from ...banks.errors import EnvelopeError, InputError
from .exact_triton import chosen_experts, packed_keys, ruled, slot_weights
from .gate_triton import weight_codes
from .lang import launch, tl, triton
from .selects import MOST_EXPERTS, MOST_SLOTS, DeviceSelect

_WHERE: Final = "top-k kernel"


@triton.jit
def topk_kernel(
    logits: tl.tensor,
    bias: tl.tensor,
    ids_out: tl.tensor,
    weights_out: tl.tensor,
    epsilon: tl.tensor,
    scale: tl.tensor,
    E: tl.constexpr,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    FORM: tl.constexpr,
    RULE: tl.constexpr,
    SUM: tl.constexpr,
    NORMALISE: tl.constexpr,
) -> None:
    """Program p selects row p of logits [row, E] into ids_out int32 and weights_out [row, K]."""
    lane = tl.arange(0, 32)
    at = tl.arange(0, BLOCK)
    inside = at < E
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * E
    x = tl.load(start + at, mask=inside, other=0.0)
    b = tl.load(bias + at, mask=inside, other=0.0)
    _, key = ruled(x, b, FORM, RULE)
    packed = packed_keys(key, at, inside, RULE)
    ids, _chosen, empty = chosen_experts(packed, at, lane, K, RULE)
    weights = slot_weights(
        start, bias, ids, empty, lane, epsilon, scale, K, FORM, RULE, SUM, NORMALISE
    )
    tl.store(ids_out + row * K + lane, ids, mask=lane < K)
    tl.store(weights_out + row * K + lane, weights, mask=lane < K)


def select_rows(
    logits: Any,
    bias: Any,
    select: DeviceSelect,
    top_k: int,
    scale: float,
    ids_out: Any,
    weights_out: Any,
) -> None:
    """Select each row on the device; allocates nothing, so that a CUDA graph can capture it.

    Args:
        logits: [row, expert] float32 tensor, contiguous.
        bias: [expert] float32 tensor.
        select: the arithmetic, such as ``DEVICE_SELECTS["fused"]``.
        top_k: slots, at most 16 and fewer than the experts.
        scale: factor of the weights.
        ids_out: [row, slot] int32 tensor, contiguous, written completely: in selection order, by
            key descending, then the lower id.
        weights_out: [row, slot] float32 tensor, contiguous, written completely.

    Raises:
        EnvelopeError: a geometry that the kernel does not cover.
        InputError: a tensor of another shape or type, or one that is not contiguous.
    """
    rows, experts = logits.shape
    if not 1 <= top_k <= MOST_SLOTS:
        raise EnvelopeError("top_k", top_k, f"1..{MOST_SLOTS}", _WHERE)
    if not top_k < experts <= MOST_EXPERTS:
        raise EnvelopeError("experts", experts, f"{top_k + 1}..{MOST_EXPERTS}", _WHERE)
    _check("logits", logits, "float32", (rows, experts))
    _check("bias", bias, "float32", (experts,))
    _check("ids_out", ids_out, "int32", (rows, top_k))
    _check("weights_out", weights_out, "float32", (rows, top_k))
    if not rows:
        return
    form, weight_sum, normalise = weight_codes(select)
    launch(
        topk_kernel, rows, logits, bias, ids_out, weights_out, select.epsilon, scale,
        experts, top_k, 1 << (experts - 1).bit_length(),
        form, select.rule, weight_sum, normalise,
    )  # fmt: skip


def _check(name: str, tensor: Any, dtype: str, shape: tuple[int, ...]) -> None:
    got = str(tensor.dtype).removeprefix("torch.")
    if got != dtype or tuple(tensor.shape) != shape or not tensor.is_contiguous():
        found = f"{got}{list(tensor.shape)}" + ("" if tensor.is_contiguous() else ", strided")
        raise InputError(name, found, f"{dtype}{list(shape)}, contiguous", _WHERE)
