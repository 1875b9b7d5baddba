"""Both selections of chosen rows in full: ids, weights, and the keys at the boundary.

The arithmetic is ``exact_triton``'s, one program a row; every program writes its own place, so
nothing depends on the order in which programs run.
"""

from __future__ import annotations

from .exact_triton import chosen_experts, packed_keys, ruled, slot_weights
from .lang import tl, triton


@triton.jit
def _at(values: tl.tensor, at: tl.tensor, expert: tl.tensor) -> tl.tensor:
    """The value of one expert."""
    return tl.sum(tl.where(at == expert, values, 0.0), 0)


@triton.jit
def detail_kernel(
    logits: tl.tensor,
    bias: tl.tensor,
    chosen_rows: tl.tensor,
    ids_out: tl.tensor,
    weights_out: tl.tensor,
    edges_out: tl.tensor,
    epsilon_a: tl.tensor,
    epsilon_b: tl.tensor,
    scale: tl.tensor,
    E: tl.constexpr,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    FORM_A: tl.constexpr,
    RULE_A: tl.constexpr,
    SUM_A: tl.constexpr,
    NORMALISE_A: tl.constexpr,
    FORM_B: tl.constexpr,
    RULE_B: tl.constexpr,
    SUM_B: tl.constexpr,
    NORMALISE_B: tl.constexpr,
) -> None:
    """Program p writes row ``chosen_rows[p]``: ids_out and weights_out [p, 2, K], edges [p, 2, 2].

    logits [row, E] float32; ids int32; the edges are both sides' keys of the experts that the first
    side ranks K and K + 1.
    """
    lane = tl.arange(0, 32)
    at = tl.arange(0, BLOCK)
    inside = at < E
    place = tl.program_id(0).to(tl.int64)
    start = logits + tl.load(chosen_rows + place).to(tl.int64) * E
    x = tl.load(start + at, mask=inside, other=0.0)
    b = tl.load(bias + at, mask=inside, other=0.0)
    _, key_a = ruled(x, b, FORM_A, RULE_A)
    order = packed_keys(key_a, at, inside, RULE_A)
    ids_a, chosen, empty_a = chosen_experts(order, at, lane, K, RULE_A)
    _, key_b = ruled(x, b, FORM_B, RULE_B)
    packed_b = packed_keys(key_b, at, inside, RULE_B)
    ids_b, _chosen_b, empty_b = chosen_experts(packed_b, at, lane, K, RULE_B)
    last = tl.sum(tl.where(lane == K - 1, ids_a, 0), 0)
    rest = tl.max(tl.where(chosen, -0x8000000000000000, order), 0)
    following = (0x7FFFFFFF - (rest & 0x7FFFFFFF)).to(tl.int32)
    edges = edges_out + place * 4
    tl.store(edges, _at(key_a, at, last))
    tl.store(edges + 1, _at(key_a, at, following))
    tl.store(edges + 2, _at(key_b, at, last))
    tl.store(edges + 3, _at(key_b, at, following))
    weights_a = slot_weights(
        start, bias, ids_a, empty_a, lane, epsilon_a, scale, K, FORM_A, RULE_A, SUM_A, NORMALISE_A
    )
    weights_b = slot_weights(
        start, bias, ids_b, empty_b, lane, epsilon_b, scale, K, FORM_B, RULE_B, SUM_B, NORMALISE_B
    )
    out = place * (2 * K) + lane
    tl.store(ids_out + out, ids_a, mask=lane < K)
    tl.store(ids_out + out + K, ids_b, mask=lane < K)
    tl.store(weights_out + out, weights_a, mask=lane < K)
    tl.store(weights_out + out + K, weights_b, mask=lane < K)
