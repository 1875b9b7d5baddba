"""``general`` and ``route`` on one GPU: cuBLAS products, Triton exchange and top-k kernels.

One device computes all ranks in turn (*virtual ranks*): every rank has its own shard of weights,
its own products at the true width and shard shape, its own exchange and its own select; what no
single device can have is a collective and its races.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from ..banks.errors import EnvelopeError
from .by_width import ByWidth
from .contract import OUTPUTS, Captured, Declared, Launch, Routed
from .cuda import lang
from .cuda.front_buffers import Buffers, Resident, shape_of
from .cuda.front_steps import Steps, capture_steps, run_steps
from .device_select import (
    DEVICE_OPTIONS,
    DeviceRule,
    device_select,
    parse_device_select,
    runs_on_device,
)
from .front_checks import check_inputs, check_rows, latent_schedule, refuse_idle, router_weight
from .options import Option, canonical, resolve
from .reduce import SCHEDULES
from .select import NONFINITE, OPTIONS, make_select, select_bias

_INPUTS: Final = ("logits", "bias")
"""Options that round what a select reads; the path does it, before the select's kernel."""

_COMMON: Final = {
    "router_gemm": Option("bf16", ("bf16", "fp32"), "operands of the router product; FP32 output"),
    "split_k": Option("fp32", ("fp32", "bf16"), "in what cuBLAS may add parts of a BF16 product"),
    "router_weight": Option("router_weight", None, "the bank's tensor used as router weight"),
    **{
        key: Option("", choices, "the select's own if left out")
        for key, choices in {**{k: OPTIONS[k] for k in _INPUTS}, **DEVICE_OPTIONS}.items()
    },
}
_SELECTS: Final = tuple(runs_on_device())
DEVICE_GENERAL_OPTIONS: Final = {
    "reduce": Option("one_shot_fp32", tuple(SCHEDULES), "all-reduce of the latent partials"),
    "islands": Option("2", None, "islands of reduce=two_level", lowest=1),
    "select": Option("topk_sigmoid", _SELECTS, "arithmetic of the top-k"),
    **_COMMON,
}
DEVICE_ROUTE_OPTIONS: Final = {
    "select": Option("auto", ("auto", *_SELECTS), "auto: fused up to fused_rows, else standalone"),
    "fused_rows": Option("8", None, "largest width of the fused select", lowest=0),
    "row_blocks": Option("1", ("1", "2"), "workers that split the rows of the gather"),
    **_COMMON,
}
_PRODUCTS: Final = {
    "bf16": "logits torch.mm(BF16, BF16, out_dtype=float32), FP32 weights as with fp32",
    "fp32": "logits torch.mm of FP32 operands, TF32 off",
}


class DeviceFrontPath:
    """A front on one CUDA device: project, exchange, select, for all ranks in turn."""

    batches_launches = False
    outputs = OUTPUTS

    def __init__(self, kind: str, options: Mapping[str, str]) -> None:
        table = DEVICE_GENERAL_OPTIONS if kind == "general" else DEVICE_ROUTE_OPTIONS
        self._kind = kind
        self._options = resolve(kind, options, table)
        self.name = canonical(kind, self._options, table)
        for key, needs in (
            ("islands", ("reduce", "two_level")),
            ("fused_rows", ("select", "auto")),
        ):
            refuse_idle(options, self._options, key, needs, self.name)
        changes = {key: self._options[key] for key in DEVICE_OPTIONS if self._options[key]}
        name = self._options["select"]
        names = ("fused", "standalone") if name == "auto" else (name, name)
        most = int(self._options.get("fused_rows", 0))
        narrow, wide = (parse_device_select(each, changes, self.name) for each in names)
        self._rules = ByWidth(narrow, wide, most)
        inputs = {key: self._options[key] for key in _INPUTS if self._options[key]}
        # Only how it rounds logits and bias is used.
        self._inputs = make_select(names[0], inputs, self.name)
        self.declared = self._declare()
        self._buffers: Buffers | None = None
        self._resident: Resident | None = None

    def _declare(self) -> Declared:
        split_k = self._options["split_k"]
        product = f"torch.mm in BF16 (cuBLAS, FP32 accumulation, split-K sums in {split_k})"
        if self._kind == "general":
            schedule = SCHEDULES[self._options["reduce"]]
            split = f"latent K-split, BF16 partials, {product}"
            exchange = f"all-reduce of latent ({schedule.words}), all-gather of logits"
            latent, agree = latent_schedule(self._options), schedule.ranks_agree
            if self._options["reduce"] == "two_level":
                exchange += f"; {self._options['islands']} islands"
        else:
            split = f"latent N-split, one rounding to BF16, {product}"
            exchange = f"paired gather, a copy; row_blocks={self._options['row_blocks']}"
            latent, agree = "gather", True
        words = self._rules.words
        logits = f"{_PRODUCTS[self._options['router_gemm']]}; {self._options['router_weight']}"
        return Declared(
            project=f"{split}; N-split {logits}",
            exchange=exchange,
            score=words(DeviceRule.score_words) + self._input_words(),
            nonfinite=words(lambda one: NONFINITE[one.rule.nonfinite].words),
            weight_sum=words(lambda one: one.rule.weight_sum),
            normalise=words(lambda one: one.rule.normalise_words()),
            slot_order=words(lambda one: one.rule.slot_order),
            row_independent=False,
            select_row_independent=self._options["select"] != "auto",
            ranks_agree=agree,
            machine_dependent=True,
            latent_schedule=latent,
            device="cuda",
            virtual_ranks=True,
            notes=words(lambda one: f"{one.rule.name}: {one.rule.source}"),
        )

    def _input_words(self) -> str:
        """How the select's inputs are rounded, after the words of its score."""
        logits, bias = self._inputs.logits, self._inputs.bias
        words = "; logits rounded to BF16 first" if logits == "bf16" else ""
        if bias == "none":
            return f"{words}; bias left out"
        return f"{words}; bias rounded to BF16" if bias == "bf16" else words

    def unavailable(self) -> str | None:
        """Why this path cannot run here, or None."""
        if self._options.get("reduce") == "nccl":
            return "NCCL needs one process and one GPU for each rank; this path has virtual ranks"
        return why_no_device()

    def check(self, launch: Launch) -> None:
        """Refuse what the path is not prepared for.

        Raises:
            EnvelopeError: width, ranks, geometry, scoring rule or stage outside the envelope.
            InputError: a weight that the bank does not have.
        """
        check_rows(launch, self.name)
        reason = self.unavailable()
        if reason is not None:
            raise EnvelopeError("path", self.name, "one that runs here", reason)
        device_select(*self._rules.at(launch.width), launch.geometry, launch.scoring)
        check_inputs(launch, self._kind, self._options, self.name)

    def run(self, launch: Launch, out: Routed) -> None:
        """Write every element of ``out``, whose bits the outputs on the device hold before.

        Raises:
            EnvelopeError: as for ``check``; or more than one launch.
        """
        self.check(launch)
        if launch.rows != launch.width:
            raise EnvelopeError("rows", launch.rows, f"one launch of {launch.width}", self.name)
        run_steps(self._steps(launch), launch, out)

    def capture(self, launch: Launch) -> Captured | None:
        """Capture one launch in a CUDA graph with memory of its own; the interpreter has none.

        Raises:
            EnvelopeError: as for ``check``.
        """
        self.check(launch)
        if lang.INTERPRETED:
            return None
        own = Buffers(shape_of(launch), self._kind == "general")
        return capture_steps(replace(self._steps(launch), buffers=own), launch)

    def _steps(self, launch: Launch) -> Steps:
        """The steps of a launch, over buffers and weights that the last launch may have left."""
        shape = shape_of(launch)
        k_split = self._kind == "general"
        if self._buffers is None or self._buffers.shape != shape:
            self._buffers = Buffers(shape, k_split)
        rule = self._rules.at(launch.width)
        return Steps(
            buffers=self._buffers,
            resident=self._weights(launch),
            reduce=(self._options["reduce"], int(self._options["islands"])) if k_split else None,
            row_blocks=int(self._options.get("row_blocks", 1)),
            select=device_select(*rule, launch.geometry, launch.scoring),
            scale=launch.scoring.scale,
            bf16_logits=self._inputs.logits == "bf16",
            wide_router=self._wide_router(launch),
            reduced=self._options["split_k"] == "bf16",
        )

    def _wide_router(self, launch: Launch) -> bool:
        """Whether the router product has FP32 operands: asked for, or the weight is FP32."""
        if launch.hidden is None:
            return False
        weight = router_weight(launch, self._options["router_weight"], self.name)
        return self._options["router_gemm"] == "fp32" or weight.dtype == np.float32

    def _weights(self, launch: Launch) -> Resident:
        """The launch's weights on the device; the last ones are kept."""
        last = self._resident
        if last is None or last.of is not launch.weights or last.ranks != launch.ranks:
            router: Any = None
            if launch.hidden is not None:
                router = router_weight(launch, self._options["router_weight"], self.name)
            self._resident = None
            self._resident = last = Resident(
                launch.weights,
                router,
                select_bias(self._inputs, launch.weights.bias),
                launch.ranks,
                k_split=self._kind == "general",
                wide_router=self._wide_router(launch),
            )
        return last


def why_no_device() -> str | None:
    """Why no device path can run here, or None: what is missing, and how to have it."""
    reason = lang.unavailable()
    if reason is None:
        return None
    import torch

    missing = [] if torch.cuda.is_available() else ["no CUDA device"]
    if not lang.INSTALLED:
        missing.append("triton is not installed (pip install 'neartie[cuda]')")
    return f"device cuda: {'; '.join(missing)}"


def device_general(options: Mapping[str, str]) -> DeviceFrontPath:
    """General path on a GPU: cuBLAS partials, all-reduce schedule and top-k as Triton kernels."""
    return DeviceFrontPath("general", options)


def device_route(options: Mapping[str, str]) -> DeviceFrontPath:
    """Route path on a GPU: cuBLAS shards, one paired gather and top-k as Triton kernels."""
    return DeviceFrontPath("route", options)
