"""A select as the device kernels see it; importing this needs neither Triton nor a GPU."""

from __future__ import annotations

from typing import Final, NamedTuple

SCREEN: Final = "exp.approx"
"""The cheap form; its distance to both selects' forms is what a gate's ``bound`` means."""

SUMS: Final = ("left_to_right", "fold", "butterfly")
NORMALISATIONS: Final = ("reciprocal_eps", "reciprocal_guard", "divide_eps", "divide_guard", "none")
NAN_KEYS: Final = ("minus_inf", "lowest", "highest")

BINS: Final = 256
"""Bins of a histogram of ULP: 0..253 each, then all larger ones, then the undefined ones."""

MOST_EXPERTS: Final = 1024
MOST_SLOTS: Final = 16
"""Largest geometry of the kernels."""


class DeviceSelect(NamedTuple):
    """One select on the device; fields as in ``select_weights.EngineRule``, by name."""

    form: str
    mask_logit: bool = False
    mask_bias: bool = False
    zero_score: bool = False
    nan_key: str = "lowest"
    uniform_if_none: bool = False
    weight_sum: str = "left_to_right"
    normalise: str = "divide_guard"
    epsilon: float = 0.0

    @property
    def rule(self) -> int:
        """The non-finite rule as the bits that the exact kernel is compiled for."""
        flags = (self.mask_logit, self.mask_bias, self.zero_score, self.uniform_if_none)
        return sum(flag << bit for bit, flag in enumerate(flags)) + 16 * NAN_KEYS.index(
            self.nan_key
        )


DEVICE_SELECTS: Final = {
    "fused": DeviceSelect(
        "tanh.cuda", True, True, nan_key="minus_inf", weight_sum="fold",
        normalise="reciprocal_eps", epsilon=1e-20,
    ),
    "standalone": DeviceSelect(
        "exp.cuda", zero_score=True, nan_key="minus_inf", normalise="reciprocal_guard",
    ),
    "grouped_topk": DeviceSelect(
        "tanh.cuda", True, nan_key="minus_inf", uniform_if_none=True, weight_sum="butterfly",
        normalise="reciprocal_eps", epsilon=1e-20,
    ),
    "topk_sigmoid": DeviceSelect("exp.cuda", zero_score=True, nan_key="minus_inf"),
}  # fmt: skip
"""Named selects with the GPU's own functions; ``select.SELECTS`` has their sources.

Written out for code that must not import numba; ``device_select`` derives the same ones.
"""
