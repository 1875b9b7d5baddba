"""The two built-in paths of the front, ``general`` and ``route``, composed from named stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..banks.errors import EnvelopeError, InputError
from . import project
from .by_width import ByWidth
from .contract import F32, OUTPUTS, Bf16, Declared, Launch, Routed
from .front_checks import check_inputs, check_rows, latent_schedule, refuse_idle, router_weight
from .gather import gather
from .options import Option, canonical, resolve
from .reduce import SCHEDULES, reduce_partials
from .select import (
    NONFINITE,
    OPTIONS,
    SELECTS,
    SelectArithmetic,
    check_select,
    make_select,
    select,
)
from .select_stages import SelectStages

_COMMON: Final = {
    "accumulate": Option("fp64", ("fp64", "fp32"), "products: exact, or torch's FP32 matmul"),
    "router_weight": Option("router_weight", None, "the bank's tensor used as router weight"),
    **{
        key: Option("", choices, "the select's own if left out") for key, choices in OPTIONS.items()
    },
}
GENERAL_OPTIONS: Final = {
    "reduce": Option("one_shot_fp32", tuple(SCHEDULES), "all-reduce of the latent partials"),
    "islands": Option("2", None, "islands of reduce=two_level", lowest=1),
    "select": Option("topk_sigmoid", tuple(SELECTS), "arithmetic of the top-k"),
    **_COMMON,
}
ROUTE_OPTIONS: Final = {
    "select": Option("auto", ("auto", *SELECTS), "auto: fused up to fused_rows, else standalone"),
    "fused_rows": Option("8", None, "largest width of the fused select", lowest=0),
    "row_blocks": Option("1", ("1", "2"), "workers that split the rows of the gather"),
    **_COMMON,
}


class FrontPath:
    """A front on the CPU: project, exchange, select, for all ranks.

    What every rank would compute alike is computed once and copied: the select, gathers, and
    reductions whose ranks agree.
    """

    batches_launches = True
    outputs = OUTPUTS

    def __init__(self, kind: str, options: Mapping[str, str]) -> None:
        table = GENERAL_OPTIONS if kind == "general" else ROUTE_OPTIONS
        self._kind = kind
        self._options = resolve(kind, options, table)
        self.name = canonical(kind, self._options, table)
        for key, needs in (
            ("islands", ("reduce", "two_level")),
            ("fused_rows", ("select", "auto")),
        ):
            refuse_idle(options, self._options, key, needs, self.name)
        changes = {key: self._options[key] for key in OPTIONS if self._options[key]}
        name = self._options["select"]
        names = ("fused", "standalone") if name == "auto" else (name, name)
        most = int(self._options.get("fused_rows", 0))
        narrow, wide = (make_select(each, changes, self.name) for each in names)
        self._rules = ByWidth(narrow, wide, most)
        self.declared = self._declare()

    def _declare(self) -> Declared:
        exact = self._options["accumulate"] == "fp64"
        product = "exact sum, rounded to FP64, to FP32" if exact else "torch FP32 matmul"
        if self._kind == "general":
            schedule = SCHEDULES[self._options["reduce"]]
            split = "latent K-split, BF16 partials"
            exchange = f"all-reduce of latent ({schedule.words}), all-gather of logits"
            latent = latent_schedule(self._options)
            if self._options["reduce"] == "two_level":
                exchange += f"; {self._options['islands']} islands"
            independent, agree = schedule.row_independent, schedule.ranks_agree
        else:
            latent = "gather"
            split = "latent N-split, one rounding to BF16"
            exchange = f"paired gather, a copy; row_blocks={self._options['row_blocks']}"
            independent, agree = True, True
        words = self._rules.words
        return Declared(
            project=f"{split}; logits N-split, FP32; {product}; {self._options['router_weight']}",
            exchange=exchange,
            score=words(SelectArithmetic.score_words),
            nonfinite=words(lambda rule: NONFINITE[rule.nonfinite].words),
            weight_sum=words(lambda rule: rule.weight_sum),
            normalise=words(SelectArithmetic.normalise_words),
            slot_order=words(lambda rule: rule.slot_order),
            row_independent=independent and exact,
            select_row_independent=self._options["select"] != "auto",
            ranks_agree=agree,
            machine_dependent=not exact,
            latent_schedule=latent,
            notes=words(lambda rule: f"{rule.name}: {rule.source}"),
        )

    def unavailable(self) -> str | None:
        """Why this path cannot run here, or None."""
        return SCHEDULES[self._options["reduce"]].unavailable if self._kind == "general" else None

    def check(self, launch: Launch) -> None:
        """Refuse what the path is not prepared for.

        Raises:
            EnvelopeError: width, ranks, geometry, scoring rule or stage outside the envelope.
            InputError: a weight that the bank does not have.
        """
        check_rows(launch, self.name)
        check_select(self._rules.at(launch.width), launch.geometry, launch.scoring)
        reason = self.unavailable()
        if reason is not None:
            raise EnvelopeError("path", self.name, "one that runs here", reason)
        check_inputs(launch, self._kind, self._options, self.name)

    def run(self, launch: Launch, out: Routed) -> None:
        """Write every element of ``out``.

        Raises:
            EnvelopeError: as for ``check``.
        """
        self.check(launch)
        if out.latent is not None:
            self._latent(launch, out.latent)
        logits = self._logits(launch, out.logits)
        rule = self._rules.at(launch.width)
        ids, weights = select(rule, logits, launch.weights.bias, launch.geometry, launch.scoring)
        out.ids[:] = ids
        out.weights[:] = weights

    def projected(self, launch: Launch) -> Launch:
        """The launch after the first stage: it holds the pieces that the exchange takes.

        A launch without hidden rows is past that stage, and is returned as it is.

        Raises:
            EnvelopeError: as for ``check``.
            InputError: a weight that the bank does not have.
        """
        self.check(launch)
        if launch.hidden is None:
            return launch
        latent = None if launch.weights.latent is None else self._pieces(launch)
        general = self._kind == "general"
        return replace(
            launch,
            hidden=None,
            latent_partials=latent if general else None,
            latent_shards=None if general else latent,
            logits_shards=self._shards(launch),
        )

    def select_stages(self, launch: Launch) -> SelectStages:
        """The select as this launch's width takes it, stage by stage."""
        rule = self._rules.at(launch.width)
        return SelectStages(rule, launch.geometry, launch.scoring, launch.weights.bias)

    def _project(
        self, stage: Callable[..., npt.NDArray[Any]], launch: Launch, weight: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        """Shards or partials [rank, row, column]; an FP32 matmul sees one launch at a time."""
        hidden, ranks, accumulate = launch.hidden, launch.ranks, self._options["accumulate"]
        assert hidden is not None
        step = launch.width if accumulate == "fp32" else max(launch.rows, 1)
        parts = [
            stage(hidden[start : start + step], weight, ranks, accumulate)
            for start in range(0, launch.rows, step)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _pieces(self, launch: Launch) -> Bf16:
        """What each rank has of the latent before the exchange."""
        weight = launch.weights.latent
        general = self._kind == "general"
        pieces = launch.latent_partials if general else launch.latent_shards
        if launch.hidden is not None and weight is not None:
            stage = project.latent_partials if general else project.latent_shards
            pieces = self._project(stage, launch, weight)
        if pieces is None:
            raise InputError("latent weight", "nothing", "latent_down_weight", self.name)
        return pieces

    def _latent(self, launch: Launch, out: Bf16) -> None:
        pieces = self._pieces(launch)
        if self._kind == "general":
            islands = int(self._options["islands"])
            reduce_partials(self._options["reduce"], pieces, out, launch.width, islands)
        else:
            gather(pieces, out[0], int(self._options["row_blocks"]))
            out.view(np.uint16)[1:] = out[0].view(np.uint16)

    def _shards(self, launch: Launch) -> F32 | None:
        """What each rank has of the logits before the exchange; None where they come whole."""
        if launch.hidden is None:
            return launch.logits_shards
        weight = router_weight(launch, self._options["router_weight"], self.name)
        return self._project(project.logits_shards, launch, weight)

    def _logits(self, launch: Launch, out: F32 | None) -> F32:
        """The logits [row, expert] that every rank holds after the exchange; also into ``out``."""
        shards = self._shards(launch)
        if shards is None:
            assert launch.logits is not None
            whole = launch.logits
        else:
            whole = np.empty((launch.rows, launch.geometry.experts), np.float32)
            gather(shards, whole, int(self._options.get("row_blocks", 1)))
        if out is not None:
            out.view(np.uint32)[:] = whole.view(np.uint32)
        return whole


def general(options: Mapping[str, str]) -> FrontPath:
    """General path: K-split latent with an all-reduce, gathered logits, native top-k."""
    return FrontPath("general", options)


def route(options: Mapping[str, str]) -> FrontPath:
    """Route path: N-split latent and logits, one paired gather, fused or standalone top-k."""
    return FrontPath("route", options)
