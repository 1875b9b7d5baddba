"""Flush to zero: subnormal FP32 values as a device counts them that does not keep them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

_LEAST_NORMAL: Final = float(np.finfo(np.float32).tiny)


def flushed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``values`` with what is subnormal in FP32 replaced by a zero of the same sign."""
    return np.where(np.abs(values) < _LEAST_NORMAL, np.copysign(0.0, values), values).astype(
        values.dtype
    )


def has_subnormals(*arrays: npt.NDArray[Any] | None) -> bool:
    """Whether any value is not zero and subnormal in FP32."""
    return any(
        bool(((np.abs(values) < _LEAST_NORMAL) & (values != 0)).any())
        for values in arrays
        if values is not None
    )
