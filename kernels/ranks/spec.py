"""The specs of paths on real ranks: which exchange, which select, in the path's one name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ...banks.errors import InputError
from ...banks.geometry import MAX_WIDTH
from ..contract import Declared
from ..device_select import parse_device_select, runs_on_device
from ..options import Option, parse_spec, resolve
from ..reduce import SCHEDULES
from ..select import NONFINITE, SelectArithmetic, make_select
from .exchange import SYMMETRIC_TRANSPORTS

_SELECTS: Final = tuple(name for name, form in runs_on_device().items() if form is not None)
"""Selects that a CUDA rank computes with a form of its own, and a CPU rank too."""

BACKENDS: Final[Mapping[str, str]] = {"cpu": "gloo", "cuda": "nccl"}
"""The library of the exchanges, by device."""


def option_tables(device: str) -> dict[str, dict[str, Option]]:
    """Return the options of ``general`` and ``route`` on real ranks of a device."""
    library = BACKENDS[device]
    transports = (library,) if device == "cpu" else ("push", "pull", library)
    return {
        "general": {
            "reduce": Option(library, (library,), "all-reduce of the latent partials"),
            "select": Option("topk_sigmoid", _SELECTS, "arithmetic of the top-k"),
        },
        "route": {
            "transport": Option(transports[0], transports, "what carries the paired gather"),
            "row_blocks": Option("1", ("1", "2"), "programs that split the rows (push, pull)"),
            "select": Option("auto", ("auto", *_SELECTS), "auto: fused, then standalone"),
            "fused_rows": Option("8", None, "largest width of the fused select", lowest=0),
        },
    }


@dataclass(frozen=True)
class RankSpec:
    """A path on real ranks, the same on each of them.

    Attributes:
        kind: ``general`` or ``route``.
        device: ``cpu`` or ``cuda``.
        name: canonical; the exchange is always in it, because no other run has the same.
        options: every option with its value.
    """

    kind: str
    device: str
    name: str
    options: Mapping[str, str]

    def rule(self, width: int) -> SelectArithmetic:
        """Return the select at one width."""
        select = self.options["select"]
        if select == "auto":
            select = "fused" if width <= int(self.options["fused_rows"]) else "standalone"
        return make_select(select, {}, self.name)

    @property
    def declared(self) -> Declared:
        """The arithmetic that the path says it does."""
        general, cuda = self.kind == "general", self.device == "cuda"
        product = "cuBLAS, FP32 accumulation" if cuda else "exact sum, rounded to FP64, to FP32"
        split = "K-split, BF16 partials" if general else "N-split, one rounding to BF16"
        schedule = BACKENDS[self.device] if general else "gather"
        return Declared(
            project=f"latent {split}; logits N-split, FP32; {product}",
            exchange=self._exchange(),
            score=self._words(self._score),
            nonfinite=self._words(lambda rule: NONFINITE[rule.nonfinite].words),
            weight_sum=self._words(lambda rule: rule.weight_sum),
            normalise=self._words(SelectArithmetic.normalise_words),
            slot_order=self._words(lambda rule: rule.slot_order),
            row_independent=not cuda and not general,
            select_row_independent=self.rule(1) == self.rule(MAX_WIDTH),
            machine_dependent=cuda or general,
            latent_schedule=schedule,
            device=self.device,
            notes=self._words(lambda rule: f"{rule.name}: {rule.source}"),
        )

    def _exchange(self) -> str:
        if self.kind == "general":
            words = SCHEDULES[BACKENDS[self.device]].words
            return f"all-reduce of latent ({words}), all-gather of logits"
        options = self.options
        return (
            f"paired gather, a copy; transport={options['transport']}, "
            f"row_blocks={options['row_blocks']}"
        )

    def _score(self, rule: SelectArithmetic) -> str:
        if self.device == "cuda":
            return parse_device_select(rule.name, {}, self.name)[1]
        return rule.score_words()

    def _words(self, part: Callable[[SelectArithmetic], str]) -> str:
        narrow, wide = part(self.rule(1)), part(self.rule(MAX_WIDTH))
        if narrow == wide:
            return narrow
        return f"up to {self.options['fused_rows']} rows: {narrow}; above: {wide}"


def parse_rank_spec(spec: str, device: str) -> RankSpec:
    """Return the path of ``general[:...]`` or ``route[:...]`` on real ranks.

    Raises:
        InputError: another path, an unknown option or value, or one that has no effect.
    """
    kind, given = parse_spec(spec)
    tables = option_tables(device)
    if kind not in tables:
        raise InputError("path", kind, f"one of {', '.join(tables)} on real ranks", "--launch")
    options = resolve(kind, given, tables[kind])
    if "fused_rows" in given and options["select"] != "auto":
        raise InputError("fused_rows", given["fused_rows"], "left out unless select=auto", spec)
    if "row_blocks" in given and options["transport"] not in SYMMETRIC_TRANSPORTS:
        expected = f"left out unless transport is {' or '.join(SYMMETRIC_TRANSPORTS)}"
        raise InputError("row_blocks", given["row_blocks"], expected, spec)
    always = "reduce" if kind == "general" else "transport"
    shown = {
        key: value
        for key, value in sorted(options.items())
        if key == always or value != tables[kind][key].default
    }
    name = f"{kind}:{','.join(f'{key}={value}' for key, value in shown.items())}"
    return RankSpec(kind, device, name, options)
