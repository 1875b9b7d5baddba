"""Two device selects over blocks of rows: the screen decides most, the rest is told in full.

Two launches a block. The screen (``weight_kernel``) marks every row; the host lists the marked rows
and the ones that it wants to see; ``detail_kernel`` writes those. Each kernel writes by place and
counts in integers, so the result has the same bits however the programs are scheduled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .bounds import ScreenConstants, packed_constants
from .detail_triton import detail_kernel
from .forms import DEVICE_FORMS
from .gate_triton import check_gate, weight_codes
from .lang import INTERPRETED, device, launch
from .normal_triton import fill_normal
from .rows import (
    I64,
    MOST_BUDGET,
    ROWS_AT_ONCE,
    STREAM_ROWS_AT_ONCE,
    UNDECIDED,
    ScreenedRows,
    Stream,
)
from .screen_triton import weight_kernel
from .selects import BINS, SCREEN, DeviceSelect

if TYPE_CHECKING:
    from ..contract import F32

_PROGRAMS_PER_PROCESSOR = 24


class DeviceRows:
    """Two selects over blocks of logits from the host, or made here; a ``rows.StreamPair``.

    Args:
        experts, top_k: geometry; at most 1024 experts and 16 slots.
        bias: [expert] float32 on the host.
        selects: baseline and candidate.
        bound: a proven bound on |``SCREEN`` score - score| over all finite logits, for both
            selects' forms; None sends every row to the exact kernel.
        margin: rows whose margin, on the baseline's keys, is at most this are seen in full.
        budget: and rows whose weights are further apart than this many ULP, at most 253.
        scale: factor of the weights, above 0.

    Raises:
        EnvelopeError: no device, or a geometry that the kernels do not cover.
        InputError: a bias of the wrong shape or type, or an unknown name in a select.
    """

    def __init__(
        self,
        experts: int,
        top_k: int,
        bias: F32,
        selects: tuple[DeviceSelect, DeviceSelect],
        bound: float | None,
        *,
        margin: float,
        budget: int,
        scale: float,
    ) -> None:
        check_gate(experts, top_k, bias, selects)
        import torch

        where = device()
        self._experts, self._top_k, self._selects = experts, top_k, selects
        self._scale, self._budget = scale, min(budget, MOST_BUDGET)
        self._constants: ScreenConstants | None = None
        if bound is not None and bool(np.isfinite(bias).all()):
            self._constants = packed_constants(bias, bound, margin)
            self._shifts = torch.from_numpy(self._constants.shifts.copy()).to(where)
        self._bias = torch.from_numpy(bias.copy()).to(where)
        self._host = torch.empty((ROWS_AT_ONCE, experts), pin_memory=not INTERPRETED)
        self._made: Any = None
        self._marks = torch.empty(STREAM_ROWS_AT_ONCE, dtype=torch.int32, device=where)
        self._histogram = torch.empty(BINS, dtype=torch.int64, device=where)
        self._worst = torch.empty(1, dtype=torch.int64, device=where)
        self._programs = 1
        if not INTERPRETED:
            processors = torch.cuda.get_device_properties(0).multi_processor_count
            self._programs = _PROGRAMS_PER_PROCESSOR * processors

    @property
    def host(self) -> F32:
        """Pinned memory of the rows of the next ``run``."""
        found: F32 = self._host.numpy()
        return found

    def run(self, rows: int, wanted: I64) -> ScreenedRows:
        """Select the first ``rows`` of ``host`` with both; tell ``wanted`` ones in full."""
        return self._run(self._host[:rows].to(device()), rows, wanted)

    def run_stream(self, stream: Stream, start: int, rows: int, wanted: I64) -> ScreenedRows:
        """Make rows ``start`` and on, and select them with both; tell ``wanted`` ones in full."""
        import torch

        if self._made is None:
            self._made = torch.empty((STREAM_ROWS_AT_ONCE, self._experts), device=device())
        fill_normal(self._made[:rows], stream.key, start, float(np.float32(stream.std)))
        return self._run(self._made[:rows], rows, wanted)

    def made_logits(self, rows: I64) -> F32:
        """Logits [n, expert] of rows that ``run_stream`` made last."""
        import torch

        found: F32 = self._made[torch.from_numpy(rows).to(device())].cpu().numpy()
        return found

    def _run(self, on_device: Any, rows: int, wanted: I64) -> ScreenedRows:
        marks, histogram = self._screen(on_device, rows)
        seen = np.union1d(np.flatnonzero(marks == UNDECIDED), wanted).astype(np.int64)
        return ScreenedRows(marks, histogram, seen, *self._details(on_device, seen))

    def _screen(self, logits: Any, rows: int) -> tuple[Any, I64]:
        """Marks [row] int32 and the histogram of decided rows."""
        if self._constants is None:
            return np.full(rows, UNDECIDED, np.int32), np.zeros(BINS, np.int64)
        _, stretch, gap = self._constants
        a, b = self._selects
        self._histogram.zero_()
        # ``_marks`` stands for the list and its counter too: MARK leaves them alone.
        launch(
            weight_kernel, min(self._programs, rows), logits, self._bias, self._shifts,
            self._marks, self._marks, self._histogram, self._worst, self._marks, rows, stretch,
            int(gap), self._budget, a.epsilon, b.epsilon, self._scale,
            self._experts, self._top_k, DEVICE_FORMS[SCREEN].code, True,
            *weight_codes(a), *weight_codes(b),
        )  # fmt: skip
        return self._marks[:rows].cpu().numpy(), self._histogram.cpu().numpy()

    def _details(self, logits: Any, seen: I64) -> tuple[Any, Any, Any]:
        """Ids, weights and edges of the seen rows."""
        import torch

        count, slots, where = len(seen), self._top_k, device()
        ids = torch.empty((count, 2, slots), dtype=torch.int32, device=where)
        weights = torch.empty((count, 2, slots), device=where)
        edges = torch.empty((count, 2, 2), device=where)
        if count:
            a, b = self._selects
            codes = [
                (form, select.rule, weight_sum, normalise)
                for select in (a, b)
                for form, weight_sum, normalise in (weight_codes(select),)
            ]
            launch(
                detail_kernel, count, logits, self._bias, torch.from_numpy(seen).to(where),
                ids, weights, edges, a.epsilon, b.epsilon, self._scale,
                self._experts, slots, 1 << (self._experts - 1).bit_length(),
                *codes[0], *codes[1],
            )  # fmt: skip
        return ids.cpu().numpy(), weights.cpu().numpy(), edges.cpu().numpy()
