"""A block of bank rows with the reference's answer: what both paths are judged by."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..banks.bank import Bank, RowBlock
from ..kernels.contract import FrontWeights, Routed
from ..kernels.reference import ReferenceSelection, reference_product, reference_select
from .metrics.input_flags import input_flags

CONTROL_ROWS = 64
"""Rows on which the FP32 reference is measured against the FP64 one."""


@dataclass(frozen=True, eq=False)
class JudgedBlock:
    """Rows and the reference's view of them.

    Attributes:
        block: the rows as read.
        logits: [row, expert] float64 (float32 where the bank starts at the select stage).
        latent: [row, latent] float64, or None.
        selection: the reference's scores, keys, ids and weights.
        input_flags: [row] bits of the input ``RowFlag``.
        bias: [expert] float32.
        logit_error: [row] bound on the error of a float32 logit summed in any order, absolute; 0
            where logits are given.
        control: relative RMS of the FP32 reference against the FP64 one, by tensor.
    """

    block: RowBlock
    logits: npt.NDArray[Any]
    latent: npt.NDArray[np.float64] | None
    selection: ReferenceSelection
    input_flags: npt.NDArray[np.uint16]
    bias: npt.NDArray[np.float32]
    logit_error: npt.NDArray[np.float64]
    control: dict[str, float | None] = field(default_factory=dict)

    def wrong_logits(self, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
        """Return the rows [row] with a logit further from the exact one than ``logit_error``.

        A logit that is not finite where the exact one is is wrong too.
        """
        with np.errstate(invalid="ignore"):
            off = np.abs(logits.astype(np.float64) - self.logits)
        right = (off <= self.logit_error[:, None]) | ~np.isfinite(self.logits)
        return np.asarray(~right.all(axis=1))

    def logit_slack(self, out: Routed, rank: int, ids: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
        """Return how far a path's logits may be from the reference's on the experts it chose.

        [row] float64: measured where the path shows its logits, and never more than
        ``logit_error``: wrong logits must not excuse wrong weights.
        """
        if out.logits is None:
            return self.logit_error
        safe = np.clip(ids, 0, self.logits.shape[1] - 1)
        exact = np.take_along_axis(self.logits, safe, axis=1).astype(np.float64)
        # A signalling NaN, such as poison that a path left, warns when it is widened.
        with np.errstate(invalid="ignore"):
            mine = np.take_along_axis(out.logits[rank], safe, axis=1).astype(np.float64)
            slack = np.abs(mine - exact)
        largest = np.where(np.isfinite(slack), slack, 0.0).max(axis=1)
        return np.asarray(np.minimum(largest, self.logit_error))


def judge_block(
    bank: Bank, weights: FrontWeights, block: RowBlock, *, with_control: bool
) -> JudgedBlock:
    """Return the reference's answer for a block, from the first stage that the bank holds."""
    logits, latent = _inputs(weights, block)
    control: dict[str, float | None] = {}
    if with_control and block.hidden is not None:
        control = _control(weights, block, logits, latent)
    selection = reference_select(logits, weights.bias, bank.geometry, bank.scoring)
    flags = input_flags(
        logits,
        weights.bias,
        selection.scores32,
        selection.keys,
        selection.ids,
        bank.geometry.top_k,
        function=bank.scoring.function,
        eligible=selection.eligible,
    )
    return JudgedBlock(
        block=block,
        logits=logits,
        latent=latent,
        selection=selection,
        input_flags=flags,
        bias=weights.bias,
        logit_error=_logit_error(weights, block, logits),
        control=control,
    )


def _inputs(
    weights: FrontWeights, block: RowBlock
) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64] | None]:
    if block.hidden is not None:
        assert weights.router is not None, "a bank at stage hidden carries router_weight"
        latent = None
        if weights.latent is not None:
            latent = reference_product(block.hidden, weights.latent)
        return reference_product(block.hidden, weights.router), latent
    latent = None
    if block.latent_partials is not None:
        latent = _ordered_sum(block.latent_partials)
    elif block.latent_shards is not None:
        latent = np.concatenate(list(block.latent_shards.astype(np.float64)), axis=1)
    if block.logits is not None:
        return block.logits, latent
    assert block.logits_shards is not None, "a bank holds hidden rows, shards or logits"
    return np.concatenate(list(block.logits_shards), axis=1), latent


def _ordered_sum(partials: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Sum [rank, row, latent] over the ranks in FP64, in rank order."""
    total = np.zeros(partials.shape[1:])
    for partial in partials:
        total = total + partial.astype(np.float64)
    return total


def _control(
    weights: FrontWeights,
    block: RowBlock,
    logits: npt.NDArray[Any],
    latent: npt.NDArray[np.float64] | None,
) -> dict[str, float | None]:
    assert block.hidden is not None
    hidden = block.hidden[:CONTROL_ROWS]
    result = {}
    for name, weight, exact in (
        ("logits", weights.router, logits),
        ("latent", weights.latent, latent),
    ):
        if weight is not None and exact is not None:
            plain = reference_product(hidden, weight, accumulate="fp32").astype(np.float64)
            result[name] = _relative_rms(plain, exact[: len(hidden)])
    return result


def _relative_rms(x: npt.NDArray[np.float64], exact: npt.NDArray[np.float64]) -> float | None:
    error = math.fsum(((x - exact) ** 2).ravel())
    norm = math.fsum((exact**2).ravel())
    return math.sqrt(error / norm) if norm > 0 else None


def _logit_error(
    weights: FrontWeights, block: RowBlock, logits: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """Bound the error [row] of a float32 dot product that sums n exact products in any order.

    Each of n additions rounds its partial sum S_k by at most u |S_k|, and the roundings act as
    independent (Higham and Mary, SIAM J. Sci. Comput. 41(5), 2019): the error's deviation is at
    most u sqrt(sum S_k^2). Partial sums drift to the result (|S_k| = k/n |S_n|, which gives
    sqrt(n/3) |S_n|) and wander about it (sqrt(k/n) of the norm of the products, which gives
    sqrt(n/2) of it). Six deviations: one in 10^9. The norm of the products is at most
    min(max|x| ||w||, ||x|| max|w|). One more u |S_n| is the final rounding of an exact sum.
    """
    if block.hidden is None or weights.router is None:
        return np.zeros(block.rows)
    x, w = np.abs(block.hidden.astype(np.float64)), np.abs(weights.router.astype(np.float64))
    n, u = x.shape[1], float.fromhex("0x1p-24")
    norms = np.minimum(
        x.max(axis=1) * np.sqrt(np.square(w).sum(axis=1).max()),
        np.sqrt(np.square(x).sum(axis=1)) * w.max(),
    )
    largest = np.abs(logits.astype(np.float64)).max(axis=1)
    bound = u * (6 * (math.sqrt(n / 2) * norms + math.sqrt(n / 3) * largest) + largest)
    return np.asarray(np.where(np.isfinite(bound), bound, 0.0))
