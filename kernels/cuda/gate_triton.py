"""The near-tie gate on a GPU: which rows differ, exactly, and the ULP between their weights.

``DeviceGate`` holds buffers for one geometry and two selects. ``launch`` enqueues the screen (one
read of the logits) and the exact kernel over the rows that it lists; ``result`` waits for both.
Rows are listed in no fixed order, and sorted by row when read: the result has no race in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...banks.errors import EnvelopeError, InputError
from .bounds import ScreenConstants, float_constants, packed_constants
from .exact_triton import exact_kernel
from .forms import DEVICE_FORMS
from .lang import INTERPRETED, device, launch, unavailable
from .screen_triton import NO_BUDGET, set_kernel, weight_kernel
from .selects import (
    BINS,
    MOST_EXPERTS,
    MOST_SLOTS,
    NAN_KEYS,
    NORMALISATIONS,
    SCREEN,
    SUMS,
    DeviceSelect,
)

if TYPE_CHECKING:
    from ..contract import F32, I32


class GateResult(NamedTuple):
    """What one launch found.

    Attributes:
        rows: rows compared.
        undecided: rows that the screen left to the exact kernel.
        differing: [n] int32, rows whose sets differ, ascending.
        ids: [n, 2, slot] int32, both selects' ids of those rows in selection order.
        histogram: [BINS] int64 over slots of rows with equal sets: weights n ULP apart by
            expert id; bin 254 is 254 and more, bin 255 not finite. None without weights.
        worst: (ULP, row) of the largest distance, the lowest row among equals; None likewise.
    """

    rows: int
    undecided: int
    differing: I32
    ids: I32
    histogram: npt.NDArray[np.int64] | None
    worst: tuple[int, int] | None


class DeviceGate:
    """Two selects over [row, expert] float32 logits in device memory.

    Args:
        experts, top_k: geometry; at most 1024 experts and 16 slots.
        bias: [expert] float32 on the host.
        selects: baseline and candidate.
        bound: a proven bound on |``SCREEN`` score - score| over all finite logits, for both
            selects' forms (``certify_triton.screen_bound``); None sends every row to the exact
            kernel.
        capacity: most rows of one launch.
        weights: whether weights are compared too.
        packed: which of the two screens decides sets; weights always need the packed one.
        programs: programs of the screen; 0 means one a row.

    Raises:
        EnvelopeError: a geometry that the kernels do not cover.
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
        capacity: int,
        weights: bool = False,
        scale: float = 1.0,
        packed: bool = True,
        programs: int = 0,
    ) -> None:
        check_gate(experts, top_k, bias, selects)
        import torch

        where = device()
        self.experts, self.top_k, self.selects = experts, top_k, selects
        self.weights, self.scale = weights, scale
        self.packed, self.programs = packed or weights, programs
        self.capacity = capacity
        self.constants: ScreenConstants | None = None
        if bound is not None and bool(np.isfinite(bias).all()):
            make = packed_constants if self.packed else float_constants
            self.constants = make(bias, bound)
            self._shifts = torch.from_numpy(self.constants.shifts.copy()).to(where)
        self._bias = torch.from_numpy(bias.copy()).to(where)
        self._listed = torch.empty(capacity, dtype=torch.int32, device=where)
        self._counters = torch.zeros(2, dtype=torch.int32, device=where)
        self._rows_out = torch.empty(capacity, dtype=torch.int32, device=where)
        self._ids_out = torch.empty((capacity, 2, top_k), dtype=torch.int32, device=where)
        self._histogram = torch.zeros(BINS, dtype=torch.int64, device=where)
        self._worst = torch.zeros(1, dtype=torch.int64, device=where)
        self._rows = 0
        self._exact_programs = 4
        if not INTERPRETED:
            self._exact_programs = 16 * torch.cuda.get_device_properties(0).multi_processor_count

    def launch(self, logits: Any) -> None:
        """Enqueue the gate over logits [row, expert] float32, contiguous, on the device.

        Raises:
            InputError: another shape, or more rows than the capacity.
        """
        rows = len(logits)
        if logits.shape != (rows, self.experts) or not 0 < rows <= self.capacity:
            expected = f"[1..{self.capacity}, {self.experts}]"
            raise InputError("logits", list(logits.shape), expected, "device gate")
        self._rows = rows
        self._counters.zero_()
        if self.weights:
            self._histogram.zero_()
            self._worst.fill_(-1)
        if self.constants is not None:
            self._screen(logits, rows)
        self._exact(logits, rows, everything=self.constants is None)

    def _screen(self, logits: Any, rows: int) -> None:
        assert self.constants is not None
        _, stretch, gap = self.constants
        programs = min(self.programs, rows) if self.programs else rows
        screen = DEVICE_FORMS[SCREEN].code
        if not self.weights:
            launch(
                set_kernel, programs, logits, self._shifts, self._listed, self._counters, rows,
                stretch, int(gap) if self.packed else gap,
                self.experts, self.top_k, int(self.packed), screen,
            )  # fmt: skip
            return
        a, b = self.selects
        launch(
            weight_kernel, programs, logits, self._bias, self._shifts, self._listed,
            self._counters, self._histogram, self._worst, self._rows_out, rows, stretch, int(gap),
            NO_BUDGET, a.epsilon, b.epsilon, self.scale,
            self.experts, self.top_k, screen, False, *weight_codes(a), *weight_codes(b),
        )  # fmt: skip

    def _exact(self, logits: Any, rows: int, *, everything: bool) -> None:
        a, b = self.selects
        codes = [
            (form, select.rule, weight_sum, normalise)
            for select in (a, b)
            for form, weight_sum, normalise in (weight_codes(select),)
        ]
        launch(
            exact_kernel, min(self._exact_programs, rows), logits, self._bias, self._listed,
            self._counters, self._rows_out, self._ids_out, self._histogram, self._worst,
            rows, self.capacity, a.epsilon, b.epsilon, self.scale,
            self.experts, self.top_k, 1 << (self.experts - 1).bit_length(), everything,
            self.weights, *codes[0], *codes[1],
        )  # fmt: skip

    def result(self) -> GateResult:
        """Wait for the last launch and return what it found."""
        listed, differing = (int(n) for n in self._counters.cpu())
        rows = self._rows_out[:differing].cpu().numpy()
        order = np.argsort(rows)
        ids = self._ids_out[:differing].cpu().numpy()
        histogram = worst = None
        if self.weights:
            histogram = self._histogram.cpu().numpy()
            packed = int(self._worst.cpu()[0])
            if packed >= 0:
                worst = (packed >> 32, 0x7FFFFFFF - (packed & 0x7FFFFFFF))
        undecided = self._rows if self.constants is None else listed
        return GateResult(self._rows, undecided, rows[order], ids[order], histogram, worst)


def weight_codes(select: DeviceSelect) -> tuple[int, int, int]:
    """Form, sum and normalisation as the numbers that the kernels are compiled for."""
    return (
        DEVICE_FORMS[select.form].code,
        SUMS.index(select.weight_sum),
        NORMALISATIONS.index(select.normalise),
    )


def check_gate(
    experts: int, top_k: int, bias: F32, selects: tuple[DeviceSelect, DeviceSelect]
) -> None:
    """Refuse what the kernels do not cover.

    Raises:
        EnvelopeError: no device, or a geometry outside theirs.
        InputError: a bias of the wrong shape or type, or an unknown name in a select.
    """
    where = "device gate"
    reason = unavailable()
    if reason is not None:
        raise EnvelopeError("device", reason, "a CUDA device with Triton", where)
    if not 1 <= top_k <= MOST_SLOTS:
        raise EnvelopeError("top_k", top_k, f"1..{MOST_SLOTS}", where)
    if not top_k < experts <= MOST_EXPERTS:
        raise EnvelopeError("experts", experts, f"{top_k + 1}..{MOST_EXPERTS}", where)
    if bias.shape != (experts,) or bias.dtype != np.float32:
        got = f"{bias.dtype}{list(bias.shape)}"
        raise InputError("bias", got, f"float32[{experts}]", where)
    for select in selects:
        for name, value, choices in (
            ("form", select.form, tuple(DEVICE_FORMS)),
            ("weight_sum", select.weight_sum, SUMS),
            ("normalise", select.normalise, NORMALISATIONS),
            ("nan_key", select.nan_key, NAN_KEYS),
        ):
            if value not in choices:
                raise InputError(name, value, f"one of {', '.join(choices)}", where)
