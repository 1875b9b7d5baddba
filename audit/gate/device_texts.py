"""What a gate's record says of a device: its sides, its versions, and what it did not compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...banks.bank import Bank
from ...kernels.cuda.forms import DEVICE_FORM_VERSIONS, DEVICE_FORMS
from ...kernels.cuda.selects import SCREEN
from ..launching import front_weights
from .device_plan import margin_limit
from .plan import GatePlan
from .sides import Side


def device_record(plan: GatePlan, banks: Sequence[Bank]) -> dict[str, Any] | None:
    """Return the device, its forms and bounds, and what the margins cover; None on the CPU."""
    device = plan.device_plan
    if device is None:
        return None
    return {
        **device.facts,
        "screen": SCREEN,
        "forms": {
            form: {
                "version": DEVICE_FORM_VERSIONS[form],
                "steps": DEVICE_FORMS[form].steps,
                "screen_bound": bound,
            }
            for form, bound in sorted(device.bounds.items())
        },
        "margin_limits": [margin_limit(front_weights(bank).bias) for bank in banks],
    }


def form_words(side: Side, widths: Sequence[int]) -> str:
    """Return a device side's score as it is declared, by width where it changes."""
    return _by_width(widths, lambda width: _words(side.on_device(width)[1]))


def device_limitations(plan: GatePlan) -> list[str]:
    """What a signature must disclose of a device's gate; nothing where it was not run."""
    device = plan.device_plan
    if device is None:
        return []
    texts = []
    for side, name in zip(plan.sides(), ("baseline", "candidate"), strict=True):
        form = _form_names(side, plan.widths)
        text = f"{name} {side.spec} is the select's arithmetic in a Triton kernel with {form}"
        texts.append(f"{text}, not the serving kernel itself")
    if device.facts["compute_capability"] == "none":
        texts.append(f"the device was {device.facts['device']}: exp and tanh are numpy's")
    texts.append(
        "margins and shifts were counted of rows up to the margin limit, of the others only that "
        "they are beyond it; near ties and the density at 0 are exact"
    )
    return texts


def _form_names(side: Side, widths: Sequence[int]) -> str:
    return _by_width(widths, lambda width: side.on_device(width)[1])


def _words(form: str) -> str:
    return f"{form} on the device, version {DEVICE_FORM_VERSIONS[form]}: {DEVICE_FORMS[form].steps}"


def _by_width(widths: Sequence[int], text: Callable[[int], str]) -> str:
    """One text, or each with its widths."""
    by_text: dict[str, list[int]] = {}
    for width in widths:
        by_text.setdefault(text(width), []).append(width)
    if len(by_text) == 1:
        return next(iter(by_text))
    parts = [f"{one} (width {', '.join(map(str, some))})" for one, some in by_text.items()]
    return "; ".join(parts)
