"""Matrix products of the paths: exact sums rounded once to FP32, or torch's FP32 product."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from ..banks.exact_product import PreparedWeight, exact_product
from .contract import F32

_Prepared = TypeVar("_Prepared")
# One router and one latent weight of two banks each: at k3 size about 0.5 GB in FP64.
_KEPT: Final = 2


class _Cache:
    """The last weights of each kind in their prepared form.

    A weight is known by its memory; the cache holds the array, so the memory is not reused. A
    weight must not be changed in place between launches.
    """

    def __init__(self) -> None:
        self._kept: dict[str, OrderedDict[Any, tuple[npt.NDArray[Any], Any]]] = {}
        self._lock = Lock()

    def get(
        self,
        kind: str,
        weight: npt.NDArray[Any],
        prepare: Callable[[npt.NDArray[Any]], _Prepared],
    ) -> _Prepared:
        interface = weight.__array_interface__
        key = (interface["data"][0], weight.shape, weight.strides, weight.dtype)
        with self._lock:
            kept = self._kept.setdefault(kind, OrderedDict())
            if key not in kept:
                while len(kept) >= _KEPT:
                    kept.popitem(last=False)
                kept[key] = (weight, prepare(weight))
            kept.move_to_end(key)
            prepared: _Prepared = kept[key][1]
            return prepared

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()


_cache = _Cache()


def forget_weights() -> None:
    """Drop all prepared weights, such as before memory is measured."""
    _cache.clear()


def _torch_product(x: npt.NDArray[Any], weight: npt.NDArray[Any]) -> F32:
    """Torch's FP32 matmul of the widened operands; its order of addition is the machine's."""
    import torch

    left = torch.from_numpy(np.ascontiguousarray(x.astype(np.float32)))
    right = torch.from_numpy(np.ascontiguousarray(weight))
    product: F32 = torch.matmul(left, right.T).numpy()
    return product


def multiply(
    x: npt.NDArray[Any],
    weight: npt.NDArray[Any],
    kind: str,
    accumulate: str = "fp64",
    columns: slice = slice(None),
    outputs: slice = slice(None),
) -> F32:
    """Products x[row] . weight[out] as FP32 [row, out].

    Args:
        x: [row, k] BF16.
        weight: [out, k] BF16, or FP32 master weights.
        kind: which weight this is (``router``, ``latent``); each kind keeps its own cache.
        accumulate: ``fp64``: the exact sum, rounded to FP64 and then to FP32; the same bits on
            every machine. ``fp32``: torch's FP32 matmul, whose bits depend on the machine.
        columns: the part of k to multiply (K-split).
        outputs: the part of out to compute (N-split).
    """
    if accumulate == "fp32":
        wide = _cache.get(f"{kind} fp32", weight, lambda w: w.astype(np.float32))
        return _torch_product(x[:, columns], wide[outputs, columns])
    prepared = _cache.get(kind, weight, PreparedWeight)
    start, stop, _ = outputs.indices(prepared.out)
    if (start, stop) != (0, prepared.out):
        prepared = prepared.rows(start, stop)
    with np.errstate(over="ignore", invalid="ignore"):
        return exact_product(x, prepared, columns=columns).astype(np.float32)
