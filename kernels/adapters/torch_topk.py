"""The select as a few torch calls, on the CPU or on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...banks.geometry import Geometry, ScoringRule
from ..contract import F32, I32, Declared
from ..options import Option, canonical, resolve
from .select_path import EXCHANGE_WORDS, LOGITS_WORDS, SelectPath, check_sigmoid
from .tensors import biased_scores, rule_weights, to_device, write_back

OPTIONS: Final = {
    "device": Option("cpu", ("cpu", "cuda"), "where torch runs"),
    "sorted": Option("true", ("true", "false"), "torch.topk's own option"),
}


class TorchTopk:
    """torch.sigmoid, plus bias, torch.topk, gather, renormalise."""

    # torch picks a kernel by the shape, so each launch has its true width.
    batches_launches = False

    def __init__(self, options: Mapping[str, str]) -> None:
        values = resolve("torch_topk", options, OPTIONS)
        self.name = canonical("torch_topk", values, OPTIONS)
        self._device, self._sorted = values["device"], values["sorted"] == "true"

    def why_not(self) -> str | None:
        """No CUDA device, where one is asked for."""
        import torch

        if self._device == "cuda" and not torch.cuda.is_available():
            return "no CUDA device"
        return None

    def check(self, geometry: Geometry, scoring: ScoringRule, width: int) -> None:
        """Refuse a rule that is not a renormalised sigmoid.

        Raises:
            EnvelopeError: as ``check_sigmoid``.
        """
        check_sigmoid(scoring, self.name)

    def declare(self) -> Declared:
        """Torch's own arithmetic, machine-dependent."""
        from torch import __version__ as version

        return Declared(
            project=LOGITS_WORDS,
            exchange=EXCHANGE_WORDS,
            score="torch.sigmoid, FP32",
            nonfinite="propagates; NaN key ranks highest",
            weight_sum="torch.sum, order open",
            normalise="divide by (sum+scoring.epsilon), times scale",
            slot_order="torch.topk: key descending, order of equal keys open"
            if self._sorted
            else "torch.topk(sorted=False): open",
            # Rows share nothing, but torch may take another kernel for another shape.
            row_independent=False,
            select_row_independent=False,
            machine_dependent=True,
            device=self._device,
            notes=f"torch {version}; groups: sum of the two best keys, others masked with -inf",
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
        """Run the calls on one launch; torch allocates its own outputs."""
        x, b = to_device(logits, self._device), to_device(bias, self._device)
        scores, keys = biased_scores(x, b, geometry)
        chosen: Any = keys.topk(geometry.top_k, dim=-1, sorted=self._sorted).indices
        write_back(chosen, rule_weights(scores, chosen, scoring), ids, weights)


def torch_topk(options: Mapping[str, str]) -> SelectPath:
    """torch.sigmoid + bias + torch.topk; needs torch, and a CUDA device with device=cuda."""
    return SelectPath(TorchTopk(options))
