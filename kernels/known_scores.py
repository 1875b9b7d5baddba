"""Every score form of the sigmoid that this machine can evaluate, by name."""

from __future__ import annotations

import numpy as np

from .contract import F32
from .cuda.facts import why_not_real
from .cuda.forms import DEVICE_FORMS
from .scores import score

_CPU_FORMS = ("sigmoid", "exp", "tanh")


def known_forms() -> list[str]:
    """The CPU's sigmoid forms, and the device's where there is a device."""
    return [*_CPU_FORMS, *(() if why_not_real() is not None else DEVICE_FORMS)]


def form_scores(form: str, logits: F32) -> F32:
    """The FP32 scores of logits [row, expert] by one of ``known_forms``, on the CPU or the device.

    Raises:
        InputError: an unknown form.
    """
    if form not in DEVICE_FORMS:
        return score(form, logits)
    import torch

    from .cuda.scores_triton import device_score

    on_device = torch.from_numpy(np.array(logits, copy=True)).cuda()
    values: F32 = device_score(form, on_device).cpu().numpy()
    return values
