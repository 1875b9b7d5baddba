"""FlashInfer's radix top-k as the select, over biased scores that torch computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...banks.geometry import Geometry, ScoringRule
from ..contract import F32, I32, Declared
from ..options import Option, canonical, resolve
from . import flashinfer
from .select_path import EXCHANGE_WORDS, LOGITS_WORDS, SelectPath, check_sigmoid
from .tensors import biased_scores, rule_weights, to_device, write_back

ENTRY: Final = flashinfer.Entry(
    "flashinfer", "top_k", (75, 80, 86, 89, 90, 100, 103, 120, 121), "0.6.18"
)

TIE_BREAKS: Final = {"none": 0, "small": 1, "large": 2}
"""The library's ``TopKTieBreak``: no rule, smaller indices, larger indices."""

OPTIONS: Final = {
    "tie_break": Option("small", tuple(TIE_BREAKS), "which of equal keys at the boundary wins"),
    "deterministic": Option("true", ("true", "false"), "the same output order at each run"),
    "sorted": Option("true", ("true", "false"), "keys in descending order"),
}


class FlashinferTopk:
    """torch.sigmoid, plus bias, flashinfer.top_k, gather, renormalise."""

    # The library picks its algorithm by the batch, so each launch has its true width.
    batches_launches = False

    def __init__(self, options: Mapping[str, str]) -> None:
        values = resolve("flashinfer_topk", options, OPTIONS)
        self.name = canonical("flashinfer_topk", values, OPTIONS)
        self._values = values

    def why_not(self) -> str | None:
        """What the library or the device lacks."""
        return flashinfer.why_not(ENTRY)

    def check(self, geometry: Geometry, scoring: ScoringRule, width: int) -> None:
        """Refuse a rule that is not a renormalised sigmoid.

        Raises:
            EnvelopeError: as ``check_sigmoid``.
        """
        check_sigmoid(scoring, self.name)

    def declare(self) -> Declared:
        """Torch's score and sum, the library's selection."""
        values = self._values
        order = "key descending" if values["sorted"] == "true" else "open"
        # Without it the library may return the same set in another order at each run.
        steady = values["deterministic"] == "true"
        build = flashinfer.build_notes("flashinfer.jit.topk", "gen_topk_module")
        return Declared(
            project=LOGITS_WORDS,
            exchange=EXCHANGE_WORDS,
            score="torch.sigmoid, FP32",
            nonfinite="propagates; NaN keys as the library's radix orders them",
            weight_sum="torch.sum, order open",
            normalise="divide by (sum+scoring.epsilon), times scale",
            slot_order=f"flashinfer.top_k: {order}, tie_break={values['tie_break']}",
            row_independent=False,
            select_row_independent=False,
            machine_dependent=True,
            device=flashinfer.DEVICE,
            notes=f"{build}; torch's score and sum are not built with these flags"
            + ("" if steady else "; deterministic=false: the output order may change"),
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
        """Run the calls on one launch; the library allocates its own outputs."""
        x, b = to_device(logits, flashinfer.DEVICE), to_device(bias, flashinfer.DEVICE)
        scores, keys = biased_scores(x, b, geometry)
        _, chosen = flashinfer.find(ENTRY)(
            keys,
            geometry.top_k,
            sorted=self._values["sorted"] == "true",
            deterministic=self._values["deterministic"] == "true",
            tie_break=TIE_BREAKS[self._values["tie_break"]],
        )
        write_back(chosen, rule_weights(scores, chosen, scoring), ids, weights)


def flashinfer_topk(options: Mapping[str, str]) -> SelectPath:
    """flashinfer.top_k over sigmoid + bias; needs FlashInfer, a CUDA device and nvcc (minutes)."""
    return SelectPath(FlashinferTopk(options))
