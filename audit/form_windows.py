"""Which device score form could have moved a key so far, by the certificates that are kept."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..kernels.cuda.forms import DEVICE_FORMS
from ..kernels.exhaustive.float_line import RANGES
from .certify import default_cache_dir
from .device_certificate import load_device_certificate

PRECISE: Final = "tanh.cuda"
"""The form that the others are held against: tanhf as CUDA gives it without -use_fast_math."""

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


def windows_that_allow(
    keys: F32,
    eligible: Bools,
    expected: I32,
    ids: I32,
    logits: F32,
    bias: F32,
) -> str | None:
    """Say which forms' bounds allow the one-for-one swaps, where they do not all.

    Args:
        keys: [row, expert] float32, the reference's.
        eligible: [row, expert] whether the reference may choose it; a swap with another group's
            expert is moved by sums of keys, and bounds nothing.
        expected: [row, slot] int32, the reference's ids.
        ids: [row, slot] int32, the path's.
        logits: [row, expert] float32.
        bias: [expert] float32.

    Returns:
        One sentence; None where no swap is one for one, every form allows them, or none does.
    """
    gaps = _swap_gaps(keys, eligible, expected, ids)
    # Bounds are of finite numbers: an infinite bias moves no key by a score's error.
    finite = bias[np.isfinite(bias)]
    if not gaps or not np.isfinite(gaps).all() or not len(finite):
        return None
    largest, device = max(gaps), ""
    allowed: list[tuple[str, float]] = []
    refused: list[tuple[str, float]] = []
    for form in DEVICE_FORMS:
        if form == PRECISE:
            continue
        found = load_device_certificate(form, PRECISE, default_cache_dir() / "certificates")
        if found is None:
            continue
        assert found.device is not None
        device = found.device["device"]
        window = found.swap_window(_range_of(logits), float(finite.min()), float(finite.max()))
        (allowed if largest <= window else refused).append((form, window))
    if not allowed or not refused:
        return None
    return (
        f"{len(gaps)} one-for-one swaps have keys up to {largest:.3g} apart: the bounds of "
        f"{_told(allowed)} against {PRECISE} allow that, those of {_told(refused)} do not "
        f"(certificates of {device})"
    )


def _told(forms: list[tuple[str, float]]) -> str:
    return ", ".join(f"{form} ({window:.3g})" for form, window in forms)


def _swap_gaps(keys: F32, eligible: Bools, expected: I32, ids: I32) -> list[float]:
    gaps = []
    for row in range(len(ids)):
        out = sorted(set(expected[row].tolist()) - set(ids[row].tolist()))
        into = sorted(set(ids[row].tolist()) - set(expected[row].tolist()))
        if len(out) == 1 and eligible[row, into[0]]:
            gaps.append(abs(float(keys[row, out[0]]) - float(keys[row, into[0]])))
    return gaps


def _range_of(logits: npt.NDArray[Any]) -> str:
    """The narrowest certified range that holds every finite logit."""
    largest = float(np.abs(logits[np.isfinite(logits)]).max(initial=0.0))
    return next(name for name, (limit, _) in RANGES.items() if largest <= limit)
