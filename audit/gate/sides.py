"""The two sides of a gate: named selects, paths, or outputs that the bank carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ...banks.errors import InputError, printable
from ...banks.geometry import ScoringRule
from ...kernels.contract import F32
from ...kernels.cuda.forms import DEVICE_FORMS
from ...kernels.device_select import parse_device_select
from ...kernels.options import parse_spec
from ...kernels.registry import names_a_path
from ...kernels.scores import FORMS
from ...kernels.select import SELECTS, SelectArithmetic, make_select, select_bias
from ..certify import load_certificate
from ..metrics.score_bounds import key_bound, swap_window

_OTHERS: Final = ("auto", "recorded")
_SIGMOIDS: Final = ("exp", "tanh", "sigmoid")


@dataclass(frozen=True)
class Side:
    """One side of the gate, from ``fused``, ``hf:bias=bf16``, ``auto``, ``mypkg.front:MyRoute``.

    Attributes:
        spec: as the user wrote it.
        path: the audit's path that selects alike, for records and ``replay_row``; of a device
            side the one with CPU arithmetic, without the device form.
        recorded: which of the bank's recorded outputs; None for a select.
        fused_rows: of ``auto``: up to this width ``fused``, above it ``standalone``.
        runs: whether the side is ``path`` itself, run on the rows' logits; its select is unknown.
    """

    spec: str
    path: str
    recorded: str | None = None
    fused_rows: int | None = None
    runs: bool = False

    def rule(self, width: int) -> SelectArithmetic:
        """The select at one width.

        Raises:
            InputError: recorded outputs and paths have none.
        """
        return make_select(*self._at(width), f"gate {self.spec}")

    def on_device(self, width: int) -> tuple[SelectArithmetic, str]:
        """The select at one width and the device form that it scores with.

        Raises:
            InputError: recorded outputs and paths have none, or no kernel computes the select.
        """
        return parse_device_select(*self._at(width), f"gate {self.spec}")

    def _at(self, width: int) -> tuple[str, dict[str, str]]:
        """Name and options of the select at one width."""
        if self.recorded is not None or self.runs:
            raise InputError("select", self.spec, "a select", "gate side")
        if self.fused_rows is not None:
            return ("fused" if width <= self.fused_rows else "standalone"), {}
        return parse_spec(self.spec)


def parse_side(spec: str, role: str, device: str = "cpu") -> Side:
    """Return the side that a spec names.

    Args:
        spec: a select with options, ``auto[:fused_rows=N]``, ``recorded[:name=NAME]``, or a path
            (``registry.make_path``), which is run on the rows' logits.
        role: ``baseline`` or ``candidate``.
        device: ``cpu``, or ``cuda``, where ``score`` is a name of ``forms.DEVICE_FORMS``.

    Raises:
        InputError: an unknown select, option or value, or one of the other device.
    """
    if _is_path(spec):
        if device != "cpu":
            expected = "a select; a path runs where it declares, without --device"
            raise InputError("select", printable(spec), expected, "--device")
        # Made where it is run: a factory may take its time.
        return Side(spec, spec, runs=True)
    name, options = parse_spec(spec)
    if name not in (*SELECTS, *_OTHERS):
        expected = f"one of {', '.join((*SELECTS, *_OTHERS))}, or a path (neartie paths)"
        raise InputError("select", printable(name), expected, f"gate {role}")
    if name == "recorded" and device != "cpu":
        raise InputError("select", spec, "a select; recorded outputs need no device", "--device")
    if name == "recorded":
        if set(options) - {"name"}:
            raise InputError("option", ", ".join(sorted(options)), "name", spec)
        source = options.get("name", "gpu")
        return Side(spec, f"recorded:name={source}" if source != "gpu" else "recorded", source)
    if name == "auto":
        text = options.get("fused_rows", "8")
        if set(options) - {"fused_rows"} or not text.isdigit():
            raise InputError("option", spec.partition(":")[2], "fused_rows=N", spec)
        path = "route" if text == "8" else f"route:fused_rows={text}"
        return Side(spec, path, fused_rows=int(text))
    if device != "cpu":
        rule, form = parse_device_select(name, options, f"gate {role}")
        options = {key: value for key, value in options.items() if key != "score"}
        family = form.partition(".")[0]
        if rule.score != family:
            options["score"] = family
    elif options.get("score") in DEVICE_FORMS:
        expected = f"one of {', '.join(FORMS)}; a device form needs --device cuda"
        raise InputError("score", options["score"], expected, f"gate {role}")
    make_select(name, options, f"gate {role}")
    kind = "general" if role == "baseline" else "route"
    changed = ",".join(f"{key}={value}" for key, value in [("select", name), *options.items()])
    return Side(spec, f"{kind}:{changed}")


def _is_path(spec: str) -> bool:
    """Whether the spec names a path and no select: ``module:factory`` has no ``=`` in its name."""
    name = spec.partition(":")[0]
    return name not in (*SELECTS, *_OTHERS) and names_a_path(spec)


def proven_window(
    a: SelectArithmetic, b: SelectArithmetic, bias: F32, scoring: ScoringRule
) -> float | None:
    """Return the margin above which both select one set, from the certificate of all scores.

    None where there is no certificate of the two forms, or the sides differ in more than the form.
    """
    forms = [scoring.function if rule.score == "rule" else rule.score for rule in (a, b)]
    used = select_bias(a, bias)
    if a.precise or b.precise or not set(forms) <= set(_SIGMOIDS) & set(FORMS):
        return None
    same_bias = used.tobytes() == select_bias(b, bias).tobytes()
    if a.logits != b.logits or not same_bias or not np.isfinite(used).all():
        return None
    found = load_certificate(*forms)
    apart = None if found is None else found.max_abs("all")
    if apart is None:
        return None
    return swap_window(key_bound(float(apart), float(used.min()), float(used.max())))
