"""The tensors of a file that a bank has a place for: what they may be, and their checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np

from ..bank import Array
from ..errors import BankError
from ..interchange import Column, Content, as_dtype
from ..schema import DTYPES

BF16: Final = np.dtype(ml_dtypes.bfloat16)
F16: Final = np.dtype(np.float16)
F32: Final = np.dtype(np.float32)
FLOAT32: Final = (F32, BF16, F16)
"""A bank keeps these in float32; BF16 and FP16 values are widened, which is exact."""
INTEGERS: Final = tuple(np.dtype(k) for k in ("i4", "i8", "i2", "i1", "u1", "u2", "u4", "u8"))

_MAY_BE: Final[dict[str, tuple[np.dtype[Any], ...]]] = {
    "logits": FLOAT32,
    "logits_shards": FLOAT32,
    "correction_bias": FLOAT32,
    "router_weight": (BF16, F16, F32),
    "router_weight_master": (F32,),
}
"""What a tensor may be in the file; the others are BF16."""
_AXES: Final = {"latent_partials": 3, "latent_shards": 3, "logits_shards": 3, "correction_bias": 1}
"""How many axes a tensor has; the others have two."""


@dataclass(frozen=True)
class Found:
    """One column of the file, as the bank will have it: its name there, and its dtype."""

    name: str
    column: Column
    dtype: np.dtype[Any]

    @property
    def widened(self) -> str | None:
        """The dtype in the file, where the bank's is wider."""
        narrow = self.dtype == F32 and self.column.dtype in (BF16, F16)
        return _dtype_name(self.column.dtype) if narrow else None


class Tensors:
    """The columns of a file under their bank's names; messages use the file's own."""

    def __init__(self, content: Content) -> None:
        self.content = content

    def has(self, name: str) -> bool:
        """Return whether the file has it."""
        return name in self.content.columns

    def label(self, found: Found) -> str:
        """Return what the file calls it."""
        return self.content.label(found.name)

    def source(self, found: Found) -> str:
        """Return the file that it is of."""
        return self.content.source(found.name)

    def find(self, name: str) -> Found:
        """Return a tensor whose dtype and axes its name tells."""
        return self.find_as(name, _AXES.get(name, 2), _MAY_BE.get(name, (BF16,)))

    def find_as(self, name: str, axes: int, dtypes: tuple[np.dtype[Any], ...]) -> Found:
        """Return a tensor.

        Args:
            name: in the bank.
            axes: how many it must have, none of them empty.
            dtypes: what it may be; ``FLOAT32`` is widened to float32, any other is kept. A decimal
                number becomes the first.

        Raises:
            BankError: it is not there, or something else.
        """
        if not self.has(name):
            raise BankError(f"tensor {name}", "nothing", "present", self.content.where)
        theirs, where = self.content.label(name), self.content.source(name)
        column = self.content.columns[name]
        if column.dtype not in dtypes and not _decimal(column, dtypes[0]):
            known = " or ".join(_dtype_name(dtype) for dtype in dtypes)
            raise BankError(f"tensor {theirs} dtype", _dtype_name(column.dtype), known, where)
        shape = column.shape
        if len(shape) != axes or 0 in shape:
            expected = f"{axes} axes, not empty"
            raise BankError(f"tensor {theirs} shape", list(shape), expected, where)
        changed = dtypes == FLOAT32 or column.dtype not in dtypes
        return Found(name, column, dtypes[0] if changed else column.dtype)

    def values(self, found: Found, start: int, stop: int) -> Array:
        """Return records start..stop in the bank's dtype; integers as they are in the file.

        Raises:
            BankError: a decimal number that the dtype does not have.
        """
        values = found.column.read(start, stop)
        if found.dtype.kind in "iu":
            return values
        if found.widened is not None:
            return values.astype(np.float32)
        return as_dtype(self.content, found.name, values, found.dtype, start)

    def check_finite(self, found: Found, values: Array, start: int) -> None:
        """Refuse a NaN or infinity in records from ``start`` on.

        Raises:
            BankError: names the first such record.
        """
        # A record at a time: no FP32 copy of a large weight.
        for index, line in enumerate(values):
            if not np.isfinite(line.astype(np.float32)).all():
                what = f"tensor {self.label(found)}[{start + index}]"
                raise BankError(what, "a NaN or infinity", "finite", self.source(found))

    def expert_ids(self, found: Found, ids: Array, start: int, least: int, experts: int) -> Array:
        """Return ids as int32.

        Raises:
            BankError: one that is not in least..experts-1.
        """
        wrong = np.argwhere((ids < least) | (ids >= experts))
        if len(wrong):
            row, slot = wrong[0].tolist()
            what = f"tensor {self.label(found)}[{start + row}, {slot}]"
            raise BankError(what, ids[row, slot], f"{least}..{experts - 1}", self.source(found))
        return ids.astype(np.int32, copy=False)


def _decimal(column: Column, dtype: np.dtype[Any]) -> bool:
    kinds = "iu" if dtype.kind in "iu" else "iuf"
    return column.decimal and column.dtype.kind in kinds


def _dtype_name(dtype: np.dtype[Any]) -> str:
    return next((name for name, known in DTYPES.items() if known == dtype), str(dtype))
