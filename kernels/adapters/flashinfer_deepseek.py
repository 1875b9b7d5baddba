"""FlashInfer's fused DeepSeek-V3 routing: logits and bias in, ids and weights out, one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...banks.errors import EnvelopeError
from ...banks.geometry import Geometry, ScoringRule
from ..contract import F32, I32, Declared
from ..options import Option, canonical, resolve
from . import flashinfer
from .select_path import EXCHANGE_WORDS, LOGITS_WORDS, SelectPath, check_sigmoid
from .tensors import to_device, write_back

ENTRY: Final = flashinfer.Entry(
    "flashinfer.fused_moe", "fused_topk_deepseek", (89, 90, 100, 103, 107, 120, 121), "0.6.18"
)

# The library's own checks (fused_routing_dsv3.py, 0.6.18 and 0.7.4), which it makes at each call.
MOST_SLOTS: Final = 8
MOST_EXPERTS: Final = 384
MOST_PER_GROUP: Final = 32
MOST_SELECTABLE: Final = 128
MOST_GROUPED_EXPERTS: Final = 256

OPTIONS: Final[dict[str, Option]] = {}


class FlashinferDeepseek:
    """``fused_topk_deepseek``: sigmoid, bias, groups, top-k and renormalisation in one kernel."""

    # One thread block a row, whatever the batch.
    batches_launches = True

    def __init__(self, options: Mapping[str, str]) -> None:
        values = resolve("flashinfer_deepseek", options, OPTIONS)
        self.name = canonical("flashinfer_deepseek", values, OPTIONS)

    def why_not(self) -> str | None:
        """What the library or the device lacks."""
        return flashinfer.why_not(ENTRY)

    def check(self, geometry: Geometry, scoring: ScoringRule, width: int) -> None:
        """Refuse what the library refuses.

        Raises:
            EnvelopeError: the rule, or a size over the library's limits.
        """
        check_sigmoid(scoring, self.name)
        groups, top_k = geometry.groups, geometry.top_k
        pool = geometry.top_groups * groups
        size = geometry.experts // groups
        limits = [("top_k", top_k, MOST_SLOTS)]
        if groups > 1:
            limits += [
                ("experts", geometry.experts, MOST_GROUPED_EXPERTS),
                ("experts in a group", size, MOST_PER_GROUP),
                ("experts in the top groups", size * geometry.top_groups, MOST_SELECTABLE),
            ]
        else:
            limits.append(("experts", geometry.experts, MOST_EXPERTS))
        for what, value, most in limits:
            if value > most:
                raise EnvelopeError(what, value, f"at most {most}", self.name)
        if pool < top_k:
            expected = f"at least top_k {top_k}, by the library's own check"
            raise EnvelopeError("topk_group * n_group", pool, expected, self.name)

    def declare(self) -> Declared:
        """The kernel's source (noAuxTcKernels.cu), and the flags that it is built with."""
        build = flashinfer.build_notes("flashinfer.jit", "gen_dsv3_fused_routing_module")
        return Declared(
            project=LOGITS_WORDS,
            exchange=EXCHANGE_WORDS,
            score="0.5f*tanhf(0.5f*x)+0.5f in the source; see notes for how it is built",
            nonfinite="propagates; NaN key ranks highest",
            weight_sum="warp reduction (cg::reduce), FP32",
            normalise="times scale, divide by (sum+1e-20), in FP64, rounded once",
            slot_order="key descending, then lower id",
            machine_dependent=True,
            device=flashinfer.DEVICE,
            notes=build,
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
        """Call the library with output buffers that hold the caller's poison."""
        x, b = to_device(logits, flashinfer.DEVICE), to_device(bias, flashinfer.DEVICE)
        out_ids = to_device(ids, flashinfer.DEVICE)
        out_weights = to_device(weights, flashinfer.DEVICE)
        flashinfer.find(ENTRY)(
            x,
            b,
            geometry.groups,
            geometry.top_groups,
            geometry.top_k,
            float(scoring.scale),
            out_weights,
            out_ids,
        )
        write_back(out_ids, out_weights, ids, weights)


def flashinfer_deepseek(options: Mapping[str, str]) -> SelectPath:
    """FlashInfer fused_topk_deepseek; needs FlashInfer, SM89+ (8.9, 9.0, 10.x, 12.x) and nvcc."""
    return SelectPath(FlashinferDeepseek(options))
