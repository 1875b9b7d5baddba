"""The gate in plain torch: two selections by topk and a comparison, for checks and as a yardstick.

Shares with the kernels only the device scores: what is checked is everything after them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .rows import I64, MOST_BUDGET, ROWS_AT_ONCE, UNDECIDED, ScreenedRows
from .scores_triton import device_score
from .selects import BINS

if TYPE_CHECKING:
    from .gate_triton import GateResult
    from .selects import DeviceSelect


def _ruled(select: DeviceSelect, logits: Any, bias: Any) -> tuple[Any, Any]:
    """Scores and keys [row, expert] under the select's non-finite rule."""
    import torch

    scores = device_score(select.form, logits)
    if select.zero_score:
        scores = torch.where(scores.isfinite(), scores, 0.0)
    keys = scores + bias
    for applies, values in ((select.mask_logit, logits), (select.mask_bias, bias.expand_as(keys))):
        if applies:
            scores = torch.where(values.isfinite(), scores, 0.0)
            keys = torch.where(values.isfinite(), keys, -torch.inf)
    return scores, keys


def _orders(keys: Any, nan_key: str) -> Any:
    """[row, expert] int64: key descending, then lower id, all distinct."""
    import torch

    bits = keys.view(torch.int32).to(torch.int64)
    orders = torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    nan = {"minus_inf": -0x7F800000, "lowest": -0x7FFFFFFF, "highest": 0x7FFFFFFF}[nan_key]
    orders = torch.where(keys.isnan(), nan, orders)
    return orders * 2048 + (2047 - torch.arange(keys.shape[1], device=keys.device))


def _total(scores: Any, order: str) -> Any:
    """Sum of [row, slot] in an order of ``selects.SUMS``, each step rounded to FP32."""
    import torch

    slots = scores.shape[1]
    if order == "left_to_right":
        total = scores[:, 0]
        for slot in range(1, slots):
            total = total + scores[:, slot]
        return total
    width = 32 if order == "butterfly" else 1 << (slots - 1).bit_length()
    lanes = torch.zeros((len(scores), width), device=scores.device)
    lanes[:, :slots] = scores
    while width > 1:
        width //= 2
        lanes = lanes[:, :width] + lanes[:, width:]
    return lanes[:, 0]


def _weights(select: DeviceSelect, scores: Any, scale: float) -> Any:
    """Weights [row, slot] of the selected scores in slot order."""
    import torch

    if select.normalise == "none":
        return scores * scale
    total = _total(scores, select.weight_sum)
    if select.normalise.endswith("eps"):
        denominator = total + torch.tensor(select.epsilon, device=total.device)
    else:
        denominator = torch.where(total > 0.0, total, 1.0)
    if select.normalise.startswith("reciprocal"):
        factor = torch.full_like(denominator, scale) / denominator
        return scores * factor[:, None]
    return (scores / denominator[:, None]) * scale


def plain_select(
    select: DeviceSelect, logits: Any, bias: Any, top_k: int, scale: float = 1.0
) -> tuple[Any, Any]:
    """Ids [row, slot] int64 and weights [row, slot] float32 in selection order, on the device."""
    import torch

    scores, keys = _ruled(select, logits, bias)
    orders = _orders(keys, select.nan_key)
    ids = orders.topk(top_k, dim=1, sorted=True).indices
    weights = _weights(select, scores.gather(1, ids), scale)
    if select.uniform_if_none:
        none = (keys.isnan() | (keys == -torch.inf)).all(1)[:, None]
        ids = torch.where(none, torch.arange(top_k, device=ids.device), ids)
        weights = torch.where(none, torch.full_like(weights, 1.0 / top_k), weights)
    return ids, weights


def plain_gate(
    logits: Any,
    bias: Any,
    selects: tuple[DeviceSelect, DeviceSelect],
    top_k: int,
    scale: float = 1.0,
) -> GateResult:
    """What ``DeviceGate`` finds, with weights, by sorting everything.

    Args:
        logits: [row, expert] float32 tensor.
        bias: [expert] float32 tensor on the same device.
        selects: baseline and candidate.
        top_k: slots.
        scale: factor of the weights.
    """
    import torch

    from .gate_triton import GateResult

    ids, weights = zip(
        *(plain_select(select, logits, bias, top_k, scale) for select in selects), strict=True
    )
    (in_a, by_a), (in_b, by_b) = (one.sort(dim=1) for one in ids)
    differ = (in_a != in_b).any(1)
    rows = differ.nonzero()[:, 0]
    a, b = weights[0].gather(1, by_a)[~differ], weights[1].gather(1, by_b)[~differ]
    bits = [w.contiguous().view(torch.int32).to(torch.int64) for w in (a, b)]
    orders = [torch.where(w < 0, -(w & 0x7FFFFFFF), w) for w in bits]
    apart = (orders[0] - orders[1]).abs()
    defined = a.isfinite() & b.isfinite()
    bins = torch.where(defined, apart.clamp(max=BINS - 2), BINS - 1)
    histogram = torch.bincount(bins.flatten(), minlength=BINS).cpu().numpy()
    apart = torch.where(defined, apart, -1)
    worst = None
    if len(apart) and int(apart.max()) >= 0:
        largest = int(apart.max())
        kept = (~differ).nonzero()[:, 0]
        worst = (largest, int(kept[(apart == largest).any(1)].min()))
    both = torch.stack([ids[0][rows], ids[1][rows]], 1).to(torch.int32)
    found = rows.to(torch.int32).cpu().numpy()
    return GateResult(len(logits), 0, found, both.cpu().numpy(), histogram.astype(np.int64), worst)


class PlainRows:
    """The ``rows.RowPair`` of plain torch: what ``DeviceRows`` is checked against.

    Args:
        bias: [expert] float32 tensor, where the rows are to be computed.
        selects: baseline and candidate.
        top_k: slots.
        scale: factor of the weights.
        margin, budget: as in ``DeviceRows``; with ``margin`` None every row is seen in full.
    """

    def __init__(
        self,
        bias: Any,
        selects: tuple[DeviceSelect, DeviceSelect],
        top_k: int,
        scale: float,
        *,
        margin: float | None = None,
        budget: int = 0,
    ) -> None:
        self._bias, self._selects, self._top_k, self._scale = bias, selects, top_k, scale
        self._margin, self._budget = margin, min(budget, MOST_BUDGET)
        self.host = np.empty((ROWS_AT_ONCE, len(bias)), np.float32)

    def run(self, rows: int, wanted: I64) -> ScreenedRows:
        """Select the first ``rows`` of ``host`` with both; tell ``wanted`` ones in full."""
        import torch

        logits = self.host[:rows]
        x = torch.tensor(logits, device=self._bias.device)
        both = [plain_select(s, x, self._bias, self._top_k, self._scale) for s in self._selects]
        ids = torch.stack([one for one, _ in both], 1).to(torch.int32).cpu().numpy()
        weights = torch.stack([one for _, one in both], 1).cpu().numpy()
        edges = self._edges(x)
        bits = weights.view(np.int32).astype(np.int64)
        # Equal ids in equal slots, and no weight is below zero.
        apart = np.abs(bits[:, 0] - bits[:, 1])
        marks = np.full(rows, UNDECIDED, np.int32)
        if self._margin is not None:
            with np.errstate(invalid="ignore"):
                wide = edges[:, 0, 0].astype(np.float64) - edges[:, 0, 1] > self._margin
            decided = wide & np.isfinite(logits).all(1) & (ids[:, 0] == ids[:, 1]).all(1)
            decided &= np.isfinite(weights).all((1, 2)) & (apart.max(1) <= self._budget)
            marks[decided] = apart.max(1)[decided]
        counted = apart[marks != UNDECIDED].reshape(-1)
        histogram = np.bincount(counted, minlength=BINS).astype(np.int64)
        seen = np.union1d(np.flatnonzero(marks == UNDECIDED), wanted).astype(np.int64)
        return ScreenedRows(marks, histogram, seen, ids[seen], weights[seen], edges[seen])

    def _edges(self, logits: Any) -> Any:
        """[row, side, 2] float32: both sides' keys of the first side's experts K and K + 1."""
        import torch

        keys = [_ruled(select, logits, self._bias)[1] for select in self._selects]
        ranked = _orders(keys[0], self._selects[0].nan_key).topk(self._top_k + 1, dim=1)
        pair = ranked.indices[:, self._top_k - 1 :]
        return torch.stack([key.gather(1, pair) for key in keys], 1).cpu().numpy()
