"""The standalone top-16 of Kimi K3 (b12x ``kimi_topk16``), as FlashInfer ships it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from ...banks.errors import EnvelopeError
from ...banks.geometry import Geometry, ScoringRule
from ..contract import F32, I32, Declared
from ..options import Option, canonical, resolve
from . import flashinfer
from .flashinfer_routing import check_kimi
from .select_path import EXCHANGE_WORDS, LOGITS_WORDS, SelectPath
from .tensors import to_device, write_back

ENTRY: Final = flashinfer.Entry(
    "flashinfer.experimental.b12x.comm.pcie", "kimi_topk16", (120, 121), "0.7.4"
)
MOST_ROWS: Final = 8
"""Rows per launch of every version that declares nothing else."""
PIN: Final = "KIMI_TOPK16_MAX_ROWS"
"""Where a version declares more: an attribute of the module."""

OPTIONS: Final = {"threads": Option("256", ("128", "256", "512"), "threads of a block")}


class KimiTopk16:
    """``kimi_topk16``: one block a row, 1 to 8 rows unless the installed version declares more."""

    batches_launches = False

    def __init__(self, options: Mapping[str, str]) -> None:
        values = resolve("flashinfer_kimi_topk16", options, OPTIONS)
        self.name = canonical("flashinfer_kimi_topk16", values, OPTIONS)
        self._threads = int(values["threads"])

    def why_not(self) -> str | None:
        """What the library or the device lacks, or a version that asks for a prepared plan."""
        reason = flashinfer.why_not(ENTRY)
        if reason is not None:
            return reason
        if "plan" in inspect.signature(flashinfer.find(ENTRY)).parameters:
            return (
                f"kimi_topk16 of flashinfer {flashinfer.library_version()} takes a plan of its "
                "PreparationSession, which this adapter does not make"
            )
        return None

    def check(self, geometry: Geometry, scoring: ScoringRule, width: int) -> None:
        """Refuse another router, and a width that the installed version does not declare.

        A version may declare more rows than it then accepts: its own refusal is a path that raised,
        and the width is recorded as not run with the library's words.

        Raises:
            EnvelopeError: geometry, rule, or rows over the declared number.
        """
        check_kimi(geometry, scoring, self.name)
        most, source = declared_rows()
        if width > most:
            raise EnvelopeError("width", width, f"1..{most} ({source})", self.name)

    def declare(self) -> Declared:
        """b12x's kernel, which is compiled by CuTe DSL and not with FlashInfer's nvcc flags."""
        most, source = declared_rows()
        return Declared(
            project=LOGITS_WORDS,
            exchange=EXCHANGE_WORDS,
            score="1/(1+exp(-x)), fast exp",
            nonfinite="non-finite score: 0, still ranked by bias; NaN key: -inf; +inf bias wins",
            weight_sum="left_to_right",
            normalise="times scale/(sum>0 ? sum : 1)",
            slot_order="key descending, then lower id",
            machine_dependent=True,
            device=flashinfer.DEVICE,
            notes=f"{flashinfer.version_notes()}; 1..{most} rows ({source})",
        )

    def select(
        self,
        logits: F32,
        bias: F32,
        geometry: Geometry,
        scoring: ScoringRule,
        ids: I32,
        weights: F32,
    ) -> None:
        """Call the library on one launch with output buffers that hold the caller's poison."""
        out_ids = to_device(ids, flashinfer.DEVICE)
        out_weights = to_device(weights, flashinfer.DEVICE)
        flashinfer.find(ENTRY)(
            to_device(logits, flashinfer.DEVICE),
            to_device(bias, flashinfer.DEVICE),
            out_weights,
            out_ids,
            threads=self._threads,
        )
        write_back(out_ids, out_weights, ids, weights)


def declared_rows() -> tuple[int, str]:
    """The most rows per launch that the installed version declares, and who says so."""
    try:
        module: Any = import_module(ENTRY.module)
    except (ImportError, OSError, RuntimeError):
        return MOST_ROWS, "every known version"
    pinned = getattr(module, PIN, None)
    if isinstance(pinned, int) and not isinstance(pinned, bool) and pinned > 0:
        return pinned, f"{PIN} of the installed version"
    return MOST_ROWS, f"the installed version has no {PIN}"


def flashinfer_kimi_topk16(options: Mapping[str, str]) -> SelectPath:
    """FlashInfer kimi_topk16 (b12x), 1..8 rows; needs FlashInfer 0.7.4+, SM120/121, cutlass-dsl."""
    return SelectPath(KimiTopk16(options))
