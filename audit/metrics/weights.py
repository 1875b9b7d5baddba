"""Weight differences of rows with one expert set, and the weights that the rule gives."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ...banks.errors import InputError
from .rule_weights import row_sums
from .ulp import Bools, rounded, ulp_distance

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
I8 = npt.NDArray[np.int8]
Ids = npt.NDArray[np.integer[Any]]

BFLOAT16: Final = np.dtype(ml_dtypes.bfloat16)

EXACT_BINS: Final = 256
"""ULP distances up to here have a histogram bin each; above, a bin is a power of two and up."""


class WeightClass(enum.StrEnum):
    """How the weights of one row differ, after aligning by expert id; codes in this order."""

    EQUAL = "equal"
    DRIFT = "drift"
    NARROWED_BF16 = "narrowed_bf16"
    SCALED = "scaled"
    MISMATCH = "mismatch"


WEIGHT_CLASSES: Final = tuple(WeightClass)
WEIGHT_CODE: Final = {kind: code for code, kind in enumerate(WEIGHT_CLASSES)}


def align(ids_a: Ids, w_a: F32, ids_b: Ids, w_b: F32) -> tuple[F32, F32]:
    """Return both paths' weights in ascending order of expert id.

    Args:
        ids_a: [row, slot] integers.
        ids_b: [row, slot], the same set in each row.
        w_a: [row, slot] float32, in the order of ``ids_a``.
        w_b: [row, slot] float32, in the order of ``ids_b``.

    Raises:
        InputError: shapes differ, or a row's sets do.
    """
    for what, array in (("w_a", w_a), ("ids_b", ids_b), ("w_b", w_b)):
        if array.shape != ids_a.shape or array.ndim != 2:
            raise InputError(f"{what}.shape", array.shape, ids_a.shape, "align")
    order_a, order_b = np.argsort(ids_a, axis=1), np.argsort(ids_b, axis=1)
    sorted_a = np.take_along_axis(ids_a, order_a, axis=1)
    sorted_b = np.take_along_axis(ids_b, order_b, axis=1)
    other = np.flatnonzero((sorted_a != sorted_b).any(axis=1))
    if other.size:
        row = int(other[0])
        raise InputError(
            f"ids_b[row {row}]", sorted_b[row].tolist(), sorted_a[row].tolist(), "align"
        )
    return np.take_along_axis(w_a, order_a, axis=1), np.take_along_axis(w_b, order_b, axis=1)


@dataclass(frozen=True, eq=False, slots=True)
class WeightDifferences:
    """What ``classify_weights`` found.

    Attributes:
        weight_class: int8 [row], codes of ``WEIGHT_CLASSES``.
        max_ulp: int64 [row], largest FP32 distance; -1 where a slot has none.
        ratio: float64 [row], b / a of a ``scaled`` row, NaN elsewhere.
        histogram: slots by FP32 distance, see ``EXACT_BINS``; adds up over parts.
        undefined: slots without a distance, which are in no bin.
    """

    weight_class: I8
    max_ulp: I64
    ratio: F64
    histogram: dict[int, int]
    undefined: int

    def counts(self) -> dict[WeightClass, int]:
        """Return the rows of each class, all classes named."""
        found = np.bincount(self.weight_class, minlength=len(WEIGHT_CLASSES))
        return {kind: int(found[code]) for code, kind in enumerate(WEIGHT_CLASSES)}


def classify_weights(w_a: F32, w_b: F32, budget_ulp: int = 8) -> WeightDifferences:
    """Return, for each row, how the weights of the two paths differ.

    The first that holds: ``equal`` (the same bits in each slot, or zeros of either sign);
    ``drift`` (each slot within the budget); ``narrowed_bf16`` (one side is all BF16 values, the
    other is not, and each slot is within one BF16 step of that other side's rounding);
    ``scaled`` (one ratio, see ``_scaled``); ``mismatch``. A slot that is not finite has no
    distance and fits no class but ``equal`` and ``mismatch``.

    Args:
        w_a: [row, slot] float32, aligned by id.
        w_b: [row, slot] float32, in the same order.
        budget_ulp: FP32 steps that count as drift.

    Raises:
        InputError: shapes or dtypes are wrong, or the budget is negative.
    """
    _check_pair(w_a, w_b, budget_ulp)
    distance = ulp_distance(w_a, w_b)
    defined = distance.defined.all(axis=1)
    steps = np.where(distance.defined, distance.steps, np.uint64(0)).astype(np.int64)
    max_ulp = np.where(defined, steps.max(axis=1, initial=0), -1)
    code = np.full(len(w_a), WEIGHT_CODE[WeightClass.MISMATCH], dtype=np.int8)
    drift = defined & (max_ulp <= budget_ulp)
    code[drift] = WEIGHT_CODE[WeightClass.DRIFT]
    same = (w_a.view(np.uint32) == w_b.view(np.uint32)) | ((w_a == 0.0) & (w_b == 0.0))
    equal = same.all(axis=1)
    code[equal] = WEIGHT_CODE[WeightClass.EQUAL]
    ratio = np.full(len(w_a), np.nan)
    open_rows = np.flatnonzero(defined & ~drift & ~equal)
    if open_rows.size:
        a, b = w_a[open_rows], w_b[open_rows]
        ratios = _scaled(a, b, budget_ulp)
        code[open_rows[~np.isnan(ratios)]] = WEIGHT_CODE[WeightClass.SCALED]
        narrowed = _narrowed(a, b) | _narrowed(b, a)
        code[open_rows[narrowed]] = WEIGHT_CODE[WeightClass.NARROWED_BF16]
        ratio[open_rows] = np.where(narrowed, np.nan, ratios)
    histogram = step_bins(steps[distance.defined])
    return WeightDifferences(code, max_ulp, ratio, histogram, distance.undefined)


def _check_pair(w_a: F32, w_b: F32, budget_ulp: int) -> None:
    for what, array in (("w_a", w_a), ("w_b", w_b)):
        if array.dtype != np.float32:
            raise InputError(f"{what}.dtype", array.dtype, "float32", "classify_weights")
        if array.ndim != 2 or array.shape != w_a.shape:
            raise InputError(f"{what}.shape", array.shape, "[row, slot]", "classify_weights")
    if budget_ulp < 0:
        raise InputError("budget_ulp", budget_ulp, "at least 0", "classify_weights")


def step_bins(steps: I64) -> dict[int, int]:
    """Count FP32 distances, any shape int64, by bin, see ``EXACT_BINS``; adds up over parts."""
    wide = steps > EXACT_BINS
    # frexp gives 2**(e-1) <= value < 2**e; distances are below 2**53, so this is exact.
    powers = np.frexp(steps[wide].astype(np.float64))[1].astype(np.int64) - 1
    binned = np.concatenate([steps[~wide], np.left_shift(np.int64(1), powers)])
    values, counts = np.unique(binned, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def _is_bf16(weights: F32) -> Bools:
    """Where finite FP32 values are BF16 values: the lower 16 bits are 0."""
    return np.asarray((weights.view(np.uint32) & np.uint32(0xFFFF)) == 0)


def _narrowed(wide: F32, narrow: F32) -> Bools:
    whole = _is_bf16(narrow).all(axis=1) & ~_is_bf16(wide).all(axis=1)
    expected = rounded(wide, BFLOAT16)
    # Exact where it counts, because `narrow` holds BF16 values in the rows that are kept.
    got = rounded(narrow, BFLOAT16)
    near: Bools = np.asarray(ulp_distance(expected, got).within(1).all(axis=1))
    return whole & near


def _scaled(a: F32, b: F32, budget_ulp: int) -> F64:
    """Return the ratio b / a of rows that one ratio explains, NaN elsewhere.

    Let each weight be within ``budget_ulp`` FP32 steps of the rounded value that it stands for.
    One step, and the rounding's half step, are at most 2**-23 of a normal value, so a relative
    error is at most t = (budget + 1/2) 2**-23, and a slot's b / a lies between (1 - t) / (1 + t)
    and (1 + t) / (1 - t) of the ratio. Two slots' quotients then differ by at most the factor
    f = ((1 + t) / (1 - t))**2. The ratio is told from 1 where it is outside 1/f .. f.
    Zeros must be zero on both sides; at least two other slots must bear the ratio out. The bound
    does not hold for subnormal weights, which fit no ratio.
    """
    t = (budget_ulp + 0.5) * float.fromhex("0x1p-23")
    factor = ((1.0 + t) / (1.0 - t)) ** 2 if t < 1.0 else np.inf
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    zero = (wide_a == 0.0) & (wide_b == 0.0)
    smallest = float.fromhex("0x1p-126")
    normal = (np.abs(wide_a) >= smallest) & (np.abs(wide_b) >= smallest)
    quotient = np.divide(wide_b, wide_a, out=np.ones_like(wide_a), where=normal)
    low = np.where(normal, quotient, np.inf).min(axis=1, initial=np.inf)
    high = np.where(normal, quotient, -np.inf).max(axis=1, initial=-np.inf)
    fits = (zero | normal).all(axis=1) & (normal.sum(axis=1) >= 2) & (low > 0.0)
    sum_a, sum_b = row_sums(np.abs(wide_a)), row_sums(np.abs(wide_b))
    ratio = np.divide(sum_b, sum_a, out=np.full(len(a), np.nan), where=fits)
    with np.errstate(invalid="ignore"):
        fits &= (high <= low * factor) & ((ratio > factor) | (ratio < 1.0 / factor))
    return np.where(fits, ratio, np.nan)
