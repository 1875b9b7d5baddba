"""Faults of the projection: what a rank multiplies, and how exactly."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from ....kernels.contract import Launch, Path, Routed
from ..fault import Fault, always
from ..loops import held, select_again
from ..scenes import FRONT

_K_BLOCK: Final = 48
_LOGIT_ERROR: Final = np.float32(1e-4)


def _k_tail_dropped(clean: Path, launch: Launch, out: Routed) -> None:
    """The product's loop runs over whole blocks of K; what is left over is never added."""
    assert launch.hidden is not None
    hidden = launch.hidden.copy()
    hidden[:, hidden.shape[1] // _K_BLOCK * _K_BLOCK :] = 0
    clean.run(replace(launch, hidden=hidden), out)


def _logits_off(clean: Path, launch: Launch, out: Routed) -> None:
    clean.run(launch, out)
    assert out.logits is not None
    signs = np.where(np.arange(out.logits.shape[2]) % 2, -_LOGIT_ERROR, _LOGIT_ERROR)
    out.logits[:] += signs
    select_again(clean, launch, out, held(launch, out))


FAULTS: Final = (
    Fault(
        "k_tail_dropped",
        "the product leaves out the columns after the last whole block of K",
        "aiter#4331",
        (FRONT,),
        always(_k_tail_dropped),
        ("columns_dropped",),
    ),
    Fault(
        "logits_off_by_1e-4",
        "every router logit is 1e-4 away from its exact value",
        "a product in fewer bits than declared",
        (FRONT,),
        always(_logits_off),
        ("wrong_logits",),
    ),
)
