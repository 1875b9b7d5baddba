"""Two selects on the same rows, with the least work that decides both exactly.

The result is the one of calling ``select.select`` twice, bit for bit: a fast path is "skip work
whose result is known", never another algorithm. tests/kernels/test_fast_gate.py holds it to that.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...banks.errors import InputError
from ...banks.geometry import Geometry, ScoringRule
from ..contract import F32, I32
from ..scores import FORMS
from ..select import SelectArithmetic, check_select, engine_rule, select_bias, select_logits
from .compare import DIFFERENT, PLAIN, ULP_BINS
from .plain import fill_plain
from .rows import DIFFERS, MOST_SLOTS, UNDECIDED, gate_rows, set_rows
from .score import FAST_FORMS, SCORE_ERROR
from .scratch import RowOutputs, make_scratch
from .screen import LANES

_ROWS_PER_THREAD: Final = 64
_ROWS_PER_SPAN: Final = 1024
_MOST_BIAS: Final = float(1 << 20)
_FAST_CODES: Final = tuple(FORMS[name].code for name in FAST_FORMS)

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PairedRows:
    """Both sides' selections of some rows, and how they compare.

    Attributes:
        ids_a, ids_b: [row, slot] int32.
        weights_a, weights_b: [row, slot] float32.
        code: [row] int8: ``compare.IDENTICAL``, ``REORDERED`` or ``DIFFERENT``.
        margin_steps: [row] int64, FP32 steps between A's own keys K and K + 1; -1 undefined
            (anything non-finite in the row, expert groups, FP64 keys, K = E).
        margin: [row] float64, the same as an exact difference; NaN undefined.
        shift: [row] float64, (B - A of the key of A's expert K + 1) minus (B - A of that of its
            expert K): a swap of the two needs a shift of at least the margin. NaN undefined.
        weight_ulp: [row] int64, largest FP32 distance of one expert's weights; -1 where the sets
            differ or a weight is not finite.
        weight_bins: int64 [ULP_BINS], weights of rows with equal sets by FP32 distance.
        plain: [row] bool, rows that took the plain path.
        selected_twice: rows of the fast path on which B's set had to be selected too.
    """

    ids_a: I32
    weights_a: F32
    ids_b: I32
    weights_b: F32
    code: npt.NDArray[np.int8]
    margin_steps: I64
    margin: F64
    shift: F64
    weight_ulp: I64
    weight_bins: I64
    plain: npt.NDArray[np.bool_]
    selected_twice: int

    @property
    def plain_rows(self) -> int:
        """Rows that took the plain path."""
        return int(np.count_nonzero(self.plain))

    def weight_histogram(self) -> dict[int, int]:
        """Weights by FP32 distance, with the bins of ``classify_weights``."""
        return histogram_of(self.weight_bins)


def histogram_of(bins: I64) -> dict[int, int]:
    """Turn bins of ``ULP_BINS`` into {distance: count}; above 256 a power of two and up."""
    found: dict[int, int] = {}
    for place in np.flatnonzero(bins).tolist():
        steps = place if place <= 256 else 1 << (place - 257)
        found[steps] = found.get(steps, 0) + int(bins[place])
    return found


class PairedSelect:
    """Two selects on one geometry and bias, made once and run on many rows.

    Args:
        rule_a: the baseline's select.
        rule_b: the candidate's.
        bias: [expert] float32.
        geometry: of the front.
        scoring: of the front.
        window: a margin of A's keys above which B is proven to select the same set, absolute;
            None where nothing is proven. The caller answers for it.

    Raises:
        EnvelopeError: a select does not compute this geometry or scoring rule.
        InputError: a bias of another shape or dtype, or a window that is no number from 0 on.
    """

    def __init__(
        self,
        rule_a: SelectArithmetic,
        rule_b: SelectArithmetic,
        bias: F32,
        geometry: Geometry,
        scoring: ScoringRule,
        window: float | None = None,
    ) -> None:
        for rule in (rule_a, rule_b):
            check_select(rule, geometry, scoring)
        if bias.shape != (geometry.experts,) or bias.dtype != np.float32:
            got = f"{bias.dtype}{list(bias.shape)}"
            raise InputError("bias", got, f"float32[{geometry.experts}]", "paired select")
        if window is not None and not window >= 0.0:
            raise InputError("window", window, "at least 0, or None", "paired select")
        self.rules = (rule_a, rule_b)
        self.geometry, self.scoring = geometry, scoring
        self._bias = bias
        self._used = select_bias(rule_a, bias)
        self._engines = (
            engine_rule(rule_a, geometry, scoring),
            engine_rule(rule_b, geometry, scoring),
        )
        self.window = window
        self.reason = self._why_plain()
        largest = float(np.abs(self._used).max()) if self.reason is None else 0.0
        # Each side's key and the cheap key round once more when the bias is added.
        self._slack = SCORE_ERROR + float.fromhex("0x1p-23") * (2.0 + largest)

    def _why_plain(self) -> str | None:
        """Why every row takes the plain path, or None."""
        a, b = self.rules
        if any(engine.score not in _FAST_CODES for engine in self._engines):
            return "a score form that the cheap sigmoid does not stand for"
        if a.precise or b.precise or self.geometry.groups > 1:
            return "FP64 keys or expert groups"
        if self.geometry.top_k + 1 > min(MOST_SLOTS, min(self.geometry.experts, LANES) * 3 // 4):
            return "too many slots for so few experts"
        same = self._used.tobytes() == select_bias(b, self._bias).tobytes()
        if a.logits != b.logits or not same:
            return "the sides round their inputs differently"
        if not (np.isfinite(self._used).all() and np.abs(self._used).max() < _MOST_BIAS):
            return "a bias that is not finite, or of 2^20 and more"
        return None

    def run(self, logits: npt.NDArray[Any], threads: int | None = None) -> PairedRows:
        """Select every row of logits [row, expert] float32 with both.

        Args:
            logits: any finite or non-finite values.
            threads: None takes the cores; rows share nothing, so threads cannot change a bit.

        Raises:
            InputError: a shape or dtype that does not fit.
        """
        self._check(logits)
        out = _outputs(len(logits), self.geometry.top_k)
        bins, twice = np.zeros(ULP_BINS, np.int64), 0
        if self.reason is None:
            twice = self._fast(select_logits(self.rules[0], logits), out, bins, threads)
        mask = out.code == PLAIN
        plain = np.flatnonzero(mask)
        if len(plain):
            fill_plain(
                self.rules, logits, self._bias, self.geometry, self.scoring, plain, out, bins
            )
        return PairedRows(
            out.ids_a, out.weights_a, out.ids_b, out.weights_b, out.code, out.margin_steps,
            out.margin, out.shift, out.weight_ulp, bins, mask, twice,
        )  # fmt: skip

    def differing(
        self, logits: npt.NDArray[Any], threads: int | None = None
    ) -> npt.NDArray[np.bool_]:
        """Return of each row of logits whether the sets differ: the sets of ``run``, and no more.

        Args:
            logits: [row, expert] float32, any values.
            threads: None takes the cores.

        Returns:
            [row] bool.

        Raises:
            InputError: as ``run``.
        """
        self._check(logits)
        answers = np.full(len(logits), UNDECIDED, np.int8)
        if self.reason is None:
            used = select_logits(self.rules[0], logits)

            def piece(number: int, span: tuple[int, int]) -> int:
                memory = make_scratch(self.geometry.experts, self.geometry.top_k)
                return set_rows(
                    used, self._used, self._engines, self._slack, self._window, answers, span,
                    memory,
                )  # fmt: skip

            _spread(piece, *_spans(len(logits), threads))
        found: npt.NDArray[np.bool_] = np.equal(answers, DIFFERS)
        left = np.flatnonzero(answers == UNDECIDED)
        if len(left):
            found[left] = self.run(logits[left], threads).code == DIFFERENT
        return found

    @property
    def _window(self) -> float:
        return -1.0 if self.window is None else self.window

    def _check(self, logits: npt.NDArray[Any]) -> None:
        experts = self.geometry.experts
        if logits.ndim != 2 or logits.shape[1] != experts or logits.dtype != np.float32:
            got = f"{logits.dtype}{list(logits.shape)}"
            raise InputError("logits", got, f"float32[row, {experts}]", "paired select")

    def _fast(self, logits: F32, out: RowOutputs, bins: I64, threads: int | None) -> int:
        workers, spans = _spans(len(logits), threads)
        parts = [np.zeros(ULP_BINS, np.int64) for _ in spans]

        def piece(number: int, span: tuple[int, int]) -> int:
            engines, bins = self._engines, parts[number]
            memory = make_scratch(self.geometry.experts, self.geometry.top_k)
            return gate_rows(
                logits, self._used, engines, self._slack, self._window, out, bins, span, memory
            )

        twice = _spread(piece, workers, spans)
        for part in parts:
            bins += part
        return twice


def _spans(rows: int, threads: int | None) -> tuple[int, list[tuple[int, int]]]:
    """Threads, and spans of rows for them."""
    workers = (os.cpu_count() or 1) if threads is None else threads
    workers = max(1, min(workers, rows // _ROWS_PER_THREAD))
    # More spans than threads: one that is held up by other work leaves the rest to the others.
    spans = 1 if workers == 1 else max(workers, rows // _ROWS_PER_SPAN)
    return workers, list(pairwise(rows * span // spans for span in range(spans + 1)))


def _spread(
    piece: Callable[[int, tuple[int, int]], int], workers: int, spans: list[tuple[int, int]]
) -> int:
    """The sum of all pieces' answers."""
    if workers == 1:
        return piece(0, spans[0])
    with ThreadPoolExecutor(workers) as pool:
        return sum(pool.map(lambda job: piece(*job), enumerate(spans)))


def _outputs(rows: int, slots: int) -> RowOutputs:
    return RowOutputs(
        ids_a=np.empty((rows, slots), np.int32),
        weights_a=np.empty((rows, slots), np.float32),
        ids_b=np.empty((rows, slots), np.int32),
        weights_b=np.empty((rows, slots), np.float32),
        code=np.full(rows, PLAIN, np.int8),
        margin_steps=np.empty(rows, np.int64),
        margin=np.empty(rows),
        shift=np.empty(rows),
        weight_ulp=np.empty(rows, np.int64),
    )
