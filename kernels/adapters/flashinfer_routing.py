"""FlashInfer's Blackwell routers: the trtllm-gen routing stage and the fused router of Kimi K3."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from ...banks.errors import EnvelopeError
from ...banks.geometry import Geometry, ScoringRule
from ..contract import F32, I32, Declared
from ..options import Option, canonical, resolve
from . import flashinfer
from .select_path import EXCHANGE_WORDS, LOGITS_WORDS, SelectPath, check_sigmoid
from .tensors import to_device, write_back

TRTLLM: Final = flashinfer.Entry(
    "flashinfer.fused_moe", "trtllm_gen_routing", (100, 103, 107, 120, 121), "0.7.4"
)
KIMI_K3: Final = flashinfer.Entry(
    "flashinfer.fused_moe", "kimi_k3_fused_router", (100, 103), "0.7.4"
)
TRTLLM_OPTIONS: Final[dict[str, Option]] = {}
KIMI_K3_OPTIONS: Final = {
    "block_m": Option("8", ("8", "16"), "alignment of the route plan; changes no id or weight"),
}


class TrtllmRouting:
    """``trtllm_gen_routing`` by its DeepSeekV3 method: the routing stage of the fused MoE."""

    # Its kernel depends on the number of tokens.
    batches_launches = False

    def __init__(self, options: Mapping[str, str]) -> None:
        values = resolve("flashinfer_trtllm_routing", options, TRTLLM_OPTIONS)
        self.name = canonical("flashinfer_trtllm_routing", values, TRTLLM_OPTIONS)

    def why_not(self) -> str | None:
        """What the library or the device lacks."""
        return flashinfer.why_not(TRTLLM)

    def check(self, geometry: Geometry, scoring: ScoringRule, width: int) -> None:
        """Refuse a rule that is not a renormalised sigmoid; sizes are checked by the library.

        Raises:
            EnvelopeError: as ``check_sigmoid``.
        """
        check_sigmoid(scoring, self.name)

    def declare(self) -> Declared:
        """What its documentation says."""
        build = flashinfer.build_notes("flashinfer.jit.fused_moe", "gen_trtllm_gen_routing_module")
        return Declared(
            project=LOGITS_WORDS,
            exchange=EXCHANGE_WORDS,
            score="sigmoid, FP32; see notes for how it is built",
            nonfinite="not told",
            weight_sum="not told",
            normalise="renormalised, times scale; weights rounded to BF16",
            slot_order="not told",
            row_independent=False,
            select_row_independent=False,
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
        """Call the library on one launch; it allocates its own outputs."""
        methods: Any = import_module("flashinfer.tllm_enums").RoutingMethodType
        grouped = geometry.groups > 1
        result: Any = flashinfer.find(TRTLLM)(
            to_device(logits, flashinfer.DEVICE),
            to_device(bias, flashinfer.DEVICE),
            methods.DeepSeekV3,
            geometry.top_k,
            n_group=geometry.groups if grouped else 0,
            topk_group=geometry.top_groups if grouped else 0,
            routed_scaling_factor=float(scoring.scale),
        )
        write_back(result.topk_ids, result.topk_weights, ids, weights)


class KimiK3Router:
    """``kimi_k3_fused_router``: top-16 of 896 with the aligned route plan, in one launch."""

    batches_launches = False

    def __init__(self, options: Mapping[str, str]) -> None:
        values = resolve("flashinfer_kimi_k3", options, KIMI_K3_OPTIONS)
        self.name = canonical("flashinfer_kimi_k3", values, KIMI_K3_OPTIONS)
        self._block = int(values["block_m"])

    def why_not(self) -> str | None:
        """What the library or the device lacks."""
        return flashinfer.why_not(KIMI_K3)

    def check(self, geometry: Geometry, scoring: ScoringRule, width: int) -> None:
        """Refuse what is not Kimi K3's router.

        Raises:
            EnvelopeError: another geometry or rule.
        """
        check_kimi(geometry, scoring, self.name)

    def declare(self) -> Declared:
        """What its documentation says (DESIGN's select ``ascending``)."""
        return Declared(
            project=LOGITS_WORDS,
            exchange=EXCHANGE_WORDS,
            score="1/(1+exp(-x)) with __expf and __fdividef",
            nonfinite="finite logits expected",
            weight_sum="ascending id",
            normalise="divide by (sum>0 ? sum : 1)",
            slot_order="ascending id",
            row_independent=False,
            select_row_independent=False,
            machine_dependent=True,
            device=flashinfer.DEVICE,
            notes=flashinfer.version_notes(),
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
        """Call the library on one launch; it allocates its own plan."""
        plan: Any = flashinfer.find(KIMI_K3)(
            to_device(logits, flashinfer.DEVICE),
            to_device(bias, flashinfer.DEVICE),
            block_m=self._block,
        )
        write_back(plan.topk_ids, plan.topk_weights, ids, weights)


def check_kimi(geometry: Geometry, scoring: ScoringRule, where: str) -> None:
    """Refuse what is not Kimi K3's router: 896 experts, top 16, no groups, scale 1.

    Raises:
        EnvelopeError: another geometry or rule.
    """
    check_sigmoid(scoring, where)
    fixed = (
        ("experts", geometry.experts, 896),
        ("top_k", geometry.top_k, 16),
        ("groups", geometry.groups, 1),
        ("scoring.scale", scoring.scale, 1.0),
    )
    for what, value, only in fixed:
        if value != only:
            raise EnvelopeError(what, value, f"{only}, Kimi K3's", where)


def flashinfer_trtllm_routing(options: Mapping[str, str]) -> SelectPath:
    """FlashInfer trtllm_gen_routing (method DeepSeekV3); needs FlashInfer 0.7.4+ and SM100+."""
    return SelectPath(TrtllmRouting(options))


def flashinfer_kimi_k3(options: Mapping[str, str]) -> SelectPath:
    """FlashInfer kimi_k3_fused_router (896 experts, top 16); needs FlashInfer 0.7.4+, SM100/103."""
    return SelectPath(KimiK3Router(options))
