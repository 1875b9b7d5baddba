"""The device score forms by name; importing this needs neither Triton nor a GPU."""

from __future__ import annotations

from typing import Final, NamedTuple


class DeviceForm(NamedTuple):
    """A named device form: the code in ``scores_triton.score``, and its arithmetic in words."""

    code: int
    steps: str


DEVICE_FORMS: Final[dict[str, DeviceForm]] = {
    "exp.cuda": DeviceForm(0, "1/(1+expf(-x)), reciprocal rounded to nearest, no contraction"),
    "exp.cuda_fma": DeviceForm(1, "1/(1+expf(-x)), expf's last product joined with the sum"),
    "exp.approx": DeviceForm(2, "rcp.approx.ftz(1 + ex2.approx.ftz(-x*log2(e)))"),
    "tanh.cuda": DeviceForm(3, "0.5*tanhf(0.5*x)+0.5"),
    "tanh.approx": DeviceForm(4, "0.5*tanh.approx(0.5*x)+0.5"),
}

DEVICE_FORM_VERSIONS: Final[dict[str, int]] = dict.fromkeys(DEVICE_FORMS, 1)
"""A change of steps is a new name; a repaired mistake raises the version."""

FORM_ON_DEVICE: Final = {"exp": "exp.cuda", "tanh": "tanh.cuda"}
"""The form that a select with a CPU form of ``scores.FORMS`` runs on the device."""
