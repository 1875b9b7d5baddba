"""What a gate on a device must know before it starts: the device, and proven bounds of its forms.

Both are part of the plan: a shard of another device, compiler or bound is never taken over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...banks.errors import InputError
from ...kernels.contract import F32
from ...kernels.cuda.bounds import key_ulp
from ...kernels.cuda.facts import device_facts, why_not_real
from ...kernels.cuda.selects import SCREEN
from ..certify import default_cache_dir
from ..device_certificate import evaluate_device_forms, load_device_certificate
from ..metrics.margins import DENSITY_EXPONENT, EXACT_STEPS


@dataclass(frozen=True)
class DevicePlan:
    """The device of a plan.

    Attributes:
        facts: of ``device_facts``, as text.
        bounds: by device form, the proven largest |``SCREEN`` score - score| over all finite
            logits; None where nothing is proven and every row is evaluated in full.
    """

    facts: Mapping[str, str]
    bounds: Mapping[str, float | None]

    def bound(self, forms: Iterable[str]) -> float | None:
        """The bound for several forms; None where one has none."""
        found = [self.bounds[form] for form in forms]
        known = [bound for bound in found if bound is not None]
        return max(known) if len(known) == len(found) else None


def make_device_plan(forms: Iterable[str]) -> DevicePlan:
    """Return the plan of the device here, with a proven bound for each form.

    A bound comes from a certificate of this very device, kept or made now (two evaluations of all
    inputs, 0.2 s and the compiler's time). Triton's interpreter has none.

    Raises:
        UnsteadyDevice: the device counted differently twice.
    """
    wanted = sorted(set(forms))
    if why_not_real() is not None:
        return DevicePlan(device_facts(), dict.fromkeys(wanted))
    return DevicePlan(device_facts(), {form: _proven(form) for form in wanted})


def check_device(planned: DevicePlan) -> None:
    """Refuse a worker whose device is not the plan's: its bounds are proven for that one.

    Raises:
        InputError: the device, its driver or its compiler is another.
    """
    here = device_facts()
    for name, value in planned.facts.items():
        if here.get(name) != value:
            raise InputError(name, here.get(name), f"{value}, as planned", "device of a worker")


def _proven(form: str) -> float | None:
    kept = load_device_certificate(SCREEN, form, default_cache_dir() / "certificates")
    certificate = kept or evaluate_device_forms(SCREEN, form)
    if certificate.range("all").pair.undefined:
        return None
    return certificate.max_abs("all")


_LEAST_LIMIT: Final = 2.0**DENSITY_EXPONENT


def margin_limit(bias: F32) -> float:
    """Return up to which margin every row is fetched, for a bias [expert] float32.

    Wide enough for what the record says of margins: the density at 0, which counts margins below
    2^``DENSITY_EXPONENT``, and near ties of up to ``EXACT_STEPS`` FP32 steps of the largest key.
    """
    if not bool(np.isfinite(bias).all()):
        return _LEAST_LIMIT
    return max(_LEAST_LIMIT, (EXACT_STEPS + 1) * key_ulp(bias, 0.0))
