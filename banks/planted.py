"""Near ties planted at an exact distance, at a chosen slot of the biased order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from .bank import Array, Bank
from .errors import InputError
from .generate import BLOCK, COMMON, F32, STD, Rows, check_no_groups, geometry_of, normal, random
from .geometry import Geometry
from .spec import Generator, Option, Spec, at_least, between, real

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

# FP32 steps searched on each side of the logit that should give a key.
_REACH: Final = 96
_ATTEMPTS: Final = 8
# Keys of one sign lie within so many FP32 steps.
_MOST_GAP: Final = 1 << 31


def sigmoid32(logits: npt.NDArray[np.floating]) -> F32:
    """Return the sigmoid in FP64 rounded to FP32."""
    with np.errstate(over="ignore"):
        scores = 1.0 / (1.0 + np.exp(-logits.astype(np.float64)))
    return scores.astype(np.float32)


def keys32(logits: F32, bias: F32) -> F32:
    """Return biased scores: FP32(sigmoid) + bias in FP32."""
    return sigmoid32(logits) + bias


def steps(values: F32) -> I64:
    """Return each value's position on the ordered line of FP32 values; both zeros are 0."""
    bits = np.ascontiguousarray(values).view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def value_at(position: I64) -> F32:
    """Return the FP32 value at a position of ``steps``."""
    bits = np.where(position < 0, 0x80000000 | -position, position)
    return bits.astype(np.uint32).view(np.float32)


def _logit(score: F64) -> F64:
    clipped = np.clip(score, 1e-30, 1 - 2.0**-25)
    return np.log(clipped) - np.log1p(-clipped)


def logits_near(key: F32, bias: np.float32 | F32) -> F32:
    """Return [row, candidate] logits around the one whose key should be ``key``.

    Args:
        key: [row] biased scores.
        bias: one for all, or [row].
    """
    score = key.astype(np.float64) - np.asarray(bias, np.float64)
    wanted = _logit(score).astype(np.float32)
    offsets = np.arange(-_REACH, _REACH + 1)
    return value_at(steps(wanted)[:, np.newaxis] + offsets)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the two keys go.

    Attributes:
        slot: 1-based slot of the higher key.
        at: key value near which to plant; None: where the row's own keys are.
        around: the keys lie on both sides of ``at``, which counts to the larger magnitudes.
        shards: the two experts are put into different ones of so many equal shards.
    """

    slot: int
    at: float | None = None
    around: bool = False
    shards: int = 1


def plant(logits: F32, bias: F32, gap: I64, place: Place) -> F32:
    """Return logits whose keys of ``place.slot`` and the next are exactly ``gap`` ULP apart.

    A row where that was not possible is all NaN.

    Args:
        logits: [row, expert].
        bias: [expert], the same value for all.
        gap: [row] in FP32 ULP of the keys.
        place: slot and value.
    """
    rows, slot = np.arange(len(logits)), place.slot
    order = np.argsort(-keys32(logits, bias), axis=1, kind="stable")
    high, low = order[:, slot - 1], order[:, slot]
    above = order[:, slot - 2] if slot > 1 else high
    below = order[:, slot + 1] if slot + 1 < logits.shape[1] else low
    middle = (logits[rows, above].astype(np.float64) + logits[rows, below]) / 2
    result = logits.copy()
    if place.shards > 1:
        # Trade logits with an expert of another shard: the order of the values stays.
        low = _other_shard(logits, high, low, place.shards)
        result = _swapped(result, order[:, slot], low)
    if place.at is not None:
        wanted = _logit(np.asarray([place.at - float(bias[0])]))[0]
        result = (result + (wanted - middle)[:, np.newaxis]).astype(np.float32)
        target = np.full(len(rows), place.at, np.float32)
    else:
        target = keys32(middle[:, np.newaxis].astype(np.float32), bias[:1])[:, 0]
    # A power of two starts its binade: the higher of positive keys takes it, the lower of negative.
    wanted_high = steps(target) + ((target < 0) & (gap > 0)) + gap // 2
    first, second, found = _pair(wanted_high, gap, bias[0], place.around)
    result[rows, high], result[rows, low] = first, second
    result[~(found & _is_planted(result, bias, gap, slot, high, low))] = np.nan
    return result


def _other_shard(logits: F32, high: I64, low: I64, shards: int) -> I64:
    size = logits.shape[1] // shards
    same = high // size == low // size
    return np.where(same, (low + size) % (size * shards), low)


def _swapped(logits: F32, one: I64, other: I64) -> F32:
    rows = np.arange(len(logits))
    result = logits.copy()
    result[rows, one], result[rows, other] = logits[rows, other], logits[rows, one]
    return result


def _pair(
    wanted: I64, gap: I64, bias: np.float32, around: bool
) -> tuple[F32, F32, npt.NDArray[np.bool_]]:
    """Return [row] logits of the two experts, and whether there are any such.

    The higher key is the nearest to ``wanted`` that has a partner; ``around`` keeps it within
    gap // 2 steps, so that both stay on their sides of the middle.
    """
    highs, lows = logits_near(value_at(wanted), bias), logits_near(value_at(wanted - gap), bias)
    high_keys, low_keys = steps(sigmoid32(highs) + bias), steps(sigmoid32(lows) + bias)
    count = highs.shape[1]
    best_high, best_low = np.empty_like(wanted), np.empty_like(wanted)
    found = np.empty(len(wanted), np.bool_)
    for row in range(len(wanted)):
        fits = high_keys[row][:, np.newaxis] - low_keys[row] == gap[row]
        offset = (high_keys[row] - wanted[row])[:, np.newaxis]
        if around and gap[row]:
            fits &= (offset >= -(gap[row] // 2)) & (offset < (gap[row] + 1) // 2)
        flat = int(np.argmin(np.where(fits, np.abs(offset), np.iinfo(np.int64).max)))
        best_high[row], best_low[row] = divmod(flat, count)
        found[row] = fits.any()
    rows = np.arange(len(wanted))
    return highs[rows, best_high], lows[rows, best_low], found


def _is_planted(
    logits: F32, bias: F32, gap: I64, slot: int, high: I64, low: I64
) -> npt.NDArray[np.bool_]:
    rows = np.arange(len(logits))
    keys = steps(keys32(logits, bias))
    upper, lower = keys[rows, high], keys[rows, low]
    # Both in their slots, and no third key within reach of the window that is tested.
    margin = np.maximum(4 * gap, 16)
    above = (keys > (upper + margin)[:, np.newaxis]).sum(axis=1)
    below = (keys < (lower - margin)[:, np.newaxis]).sum(axis=1)
    alone = (above == slot - 1) & (below == logits.shape[1] - slot - 1)
    planted: npt.NDArray[np.bool_] = (upper - lower == gap) & alone
    return planted


def _slot(spec: Spec, geometry: Geometry) -> int:
    given: int | None = spec.values["slot"]
    return geometry.top_k if given is None else given


def _place(spec: Spec, geometry: Geometry) -> Place:
    values = spec.values
    at, bias = values["at"], values["bias"]
    if at is None and bias <= -0.25:
        # Small scores and negative keys: there the key's grid is the coarser one, so every gap
        # exists; a small positive difference of large numbers has only some.
        at = bias + min(-bias / 3, 0.25)
    return Place(_slot(spec, geometry), at, values["at"] is not None, values["shards"])


def _block(spec: Spec, geometry: Geometry, bias: F32, block: int) -> dict[str, Array]:
    values = spec.values
    rng = random(values["seed"], "rows", block)
    gaps = np.asarray(values["gap"], np.int64)
    gap = gaps[(np.arange(BLOCK) + block * BLOCK) % len(gaps)]
    result = np.full((BLOCK, geometry.experts), np.nan, np.float32)
    missing = np.arange(BLOCK)
    for _ in range(_ATTEMPTS):
        drawn = normal(rng, result.shape, values["std"])
        made = plant(drawn[missing], bias, gap[missing], _place(spec, geometry))
        result[missing] = made
        missing = missing[np.isnan(made[:, 0])]
        if not len(missing):
            return {"logits": result, "planted_gap": gap}
    raise InputError("gap", int(gap[missing[0]]), "one that FP32 keys can have there", spec.text)


def _gaps(text: str) -> tuple[int, ...]:
    try:
        return tuple(between(0, _MOST_GAP)(part) for part in text.split("+"))
    except ValueError:
        expected = f"ULP counts of at least 0 such as 1 or 0+1+2+3, up to {_MOST_GAP}"
        raise ValueError(expected) from None


def _build(spec: Spec) -> Bank:
    geometry, _ = geometry_of(spec)
    check_no_groups(geometry, spec.text)
    values = spec.values
    slot, most = _slot(spec, geometry), min(geometry.top_k, geometry.experts - 1)
    if slot > most:
        expected = f"1..{most}, inside the top_k" if most else "one of 2 experts or more"
        raise InputError("slot", slot, expected, spec.text)
    if geometry.experts % values["shards"]:
        expected = f"a divisor of {geometry.experts} experts"
        raise InputError("shards", values["shards"], expected, spec.text)
    if values["at"] is not None and not 0 < values["at"] - values["bias"] < 1:
        raise InputError("at", values["at"], "between bias and bias + 1", spec.text)
    return Rows(
        spec,
        NEAR_TIE.summary,
        _block,
        lambda s, g: np.full(g.experts, s.values["bias"], np.float32),
    )


NEAR_TIE: Final = Generator(
    "near_tie",
    "logits N(0,std) with the biased FP32 scores of slots `slot` and `slot`+1 exactly `gap` ULP "
    "apart and every other score further away; key column planted_gap",
    (
        *COMMON,
        Option("gap", "1", _gaps, "FP32 ULP, or a cycle of them such as 0+1+2+3"),
        Option("slot", "top_k", lambda text: None if text == "top_k" else at_least(1)(text),
               "slot of the higher one; top_k, the last, is the boundary"),
        Option("bias", "0", real, "bias of every expert; negative ones give negative keys"),
        Option("at", "none", lambda text: None if text == "none" else real(text),
               "biased score between the two; a power of two puts them across a binade"),
        Option("shards", "1", at_least(1), "put the two into different shards of so many"),
        STD,
    ),
    _build,
)  # fmt: skip
