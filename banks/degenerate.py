"""Generated logits that are rare in recordings and common in bug reports."""

from __future__ import annotations

from typing import Final

import ml_dtypes
import numpy as np

from .bank import Array, Bank
from .errors import InputError
from .generate import (
    BIAS_STD,
    BLOCK,
    COMMON,
    F32,
    STD,
    Rows,
    geometry_of,
    normal,
    normal_bias,
    random,
)
from .geometry import Geometry
from .spec import Generator, Option, Spec, at_least, choice, positive, real

SPECIAL_KINDS: Final = (
    "nan_one",
    "nan_most",
    "nan_all",
    "plus_inf",
    "minus_inf",
    "both_inf",
    "signed_zeros",
    "finite",
)
"""What row r of ``special`` is: kind r % 8 where ``kind`` names none, also in the key column
``kind``."""


def _rng(spec: Spec, block: int) -> np.random.Generator:
    return random(spec.values["seed"], "rows", block)


def _no_bias(spec: Spec, geometry: Geometry) -> F32:
    return np.zeros(geometry.experts, np.float32)


def _saturated(spec: Spec, geometry: Geometry, bias: F32, block: int) -> dict[str, Array]:
    shape = (BLOCK, geometry.experts)
    rng = _rng(spec, block)
    # From 17.4 on the FP32 sigmoid is exactly 1; below -87.34 it is subnormal, from -104 on 0.
    high = rng.uniform(18.0, 90.0, shape).astype(np.float32)
    low = rng.uniform(-103.0, -88.0, shape).astype(np.float32)
    side = spec.values["side"]
    rows = np.arange(BLOCK)[:, np.newaxis] % 2 == 0
    chosen = {"high": high, "low": low, "mixed": np.where(rows, high, low)}[side]
    return {"logits": chosen}


def _gaussian(spec: Spec, geometry: Geometry, bias: F32, block: int) -> dict[str, Array]:
    return {"logits": normal(_rng(spec, block), (BLOCK, geometry.experts), spec.values["std"])}


def _large(spec: Spec, geometry: Geometry) -> F32:
    rng = random(spec.values["seed"], "correction_bias")
    return normal(rng, (geometry.experts,), spec.values["spread"], spec.values["bias"])


def _bf16(spec: Spec, geometry: Geometry, bias: F32, block: int) -> dict[str, Array]:
    logits = _gaussian(spec, geometry, bias, block)["logits"]
    return {"logits": logits.astype(ml_dtypes.bfloat16).astype(np.float32)}


def _special(spec: Spec, geometry: Geometry, bias: F32, block: int) -> dict[str, Array]:
    rng = _rng(spec, block)
    experts = geometry.experts
    logits = normal(rng, (BLOCK, experts), spec.values["std"])
    place = np.argsort(rng.random((BLOCK, experts)), axis=1)
    kind = (np.arange(BLOCK) % len(SPECIAL_KINDS)).astype(np.int32)
    if spec.values["kind"] != "all":
        kind[:] = SPECIAL_KINDS.index(spec.values["kind"])
    few = max(1, geometry.top_k // 2)
    counts = {
        "nan_one": (1, np.nan),
        "nan_most": (experts - few, np.nan),
        "nan_all": (experts, np.nan),
        "plus_inf": (few, np.inf),
        "minus_inf": (experts // 2, -np.inf),
    }
    for row, number in enumerate(kind):
        name = SPECIAL_KINDS[number]
        if name in counts:
            count, value = counts[name]
            logits[row, place[row, :count]] = value
        elif name == "both_inf":
            logits[row, place[row, :few]] = np.inf
            logits[row, place[row, few : 2 * few]] = -np.inf
        elif name == "signed_zeros":
            logits[row, place[row, ::2]] = 0.0
            logits[row, place[row, 1::2]] = -0.0
    return {"logits": logits, "kind": kind}


def _special_bias(spec: Spec, geometry: Geometry) -> F32:
    bias, first = normal_bias(spec, geometry), 0
    count = spec.values["inf_bias"]
    for value in {"both": (np.inf, -np.inf), "plus": (np.inf,), "minus": (-np.inf,)}[
        spec.values["inf_sign"]
    ]:
        bias[first : first + count] = value
        first += count
    return bias


def _zeros(spec: Spec, geometry: Geometry, bias: F32, block: int) -> dict[str, Array]:
    negative = _rng(spec, block).random((BLOCK, geometry.experts)) < 0.5
    return {"logits": np.where(negative, np.float32(-0.0), np.float32(0.0))}


def _zero_bias(spec: Spec, geometry: Geometry) -> F32:
    negative = random(spec.values["seed"], "correction_bias").random(geometry.experts) < 0.5
    return np.where(negative, np.float32(-0.0), np.float32(0.0))


def _equal(spec: Spec, geometry: Geometry, bias: F32, block: int) -> dict[str, Array]:
    values = normal(_rng(spec, block), (BLOCK, 1), spec.values["std"])
    return {"logits": np.repeat(values, geometry.experts, axis=1)}


def _saturated_bank(spec: Spec) -> Bank:
    return Rows(spec, SATURATED.summary, _saturated, normal_bias)


def _large_bank(spec: Spec) -> Bank:
    return Rows(spec, LARGE_BIAS.summary, _gaussian, _large)


def _bf16_bank(spec: Spec) -> Bank:
    return Rows(spec, BF16_LOGITS.summary, _bf16, normal_bias)


def _special_bank(spec: Spec) -> Bank:
    experts = geometry_of(spec)[0].experts
    if 2 * spec.values["inf_bias"] > experts:
        raise InputError("inf_bias", spec.values["inf_bias"], f"at most {experts // 2}", spec.text)
    return Rows(spec, SPECIAL.summary, _special, _special_bias)


def _zeros_bank(spec: Spec) -> Bank:
    return Rows(spec, SIGNED_ZEROS.summary, _zeros, _zero_bias)


def _equal_bank(spec: Spec) -> Bank:
    return Rows(spec, ALL_EQUAL.summary, _equal, _no_bias)


SATURATED: Final = Generator(
    "saturated",
    "logits in 18..90, where every FP32 score is exactly 1 (even rows), or in -103..-88, where it "
    "is subnormal (odd rows); bias N(0,bias)",
    (
        *COMMON,
        Option("side", "mixed", choice("mixed", "high", "low"), "which of the two"),
        BIAS_STD,
    ),
    _saturated_bank,
)
LARGE_BIAS: Final = Generator(
    "large_bias",
    "logits N(0,std), bias N(bias,spread): the sum loses the scores' low bits, so keys tie",
    (
        *COMMON,
        Option("bias", "7", real, "mean bias, such as 7 or 12"),
        Option("spread", "0.02", positive, "standard deviation of the bias"),
        STD,
    ),
    _large_bank,
)
BF16_LOGITS: Final = Generator(
    "bf16_logits",
    "logits N(0,std) rounded to BF16: many equal logits; with bias=0 many exact ties",
    (*COMMON, STD, BIAS_STD),
    _bf16_bank,
)
SPECIAL: Final = Generator(
    "special",
    "rows in turn: " + ", ".join(SPECIAL_KINDS) + " (key column kind); logits N(0,std)",
    (
        *COMMON,
        Option("kind", "all", choice("all", *SPECIAL_KINDS), "rows of one kind alone"),
        Option("inf_bias", "0", at_least(0), "so many +inf biases, then as many -inf, from id 0"),
        Option("inf_sign", "both", choice("both", "plus", "minus"), "only those of one sign"),
        STD,
        BIAS_STD,
    ),
    _special_bank,
)
SIGNED_ZEROS: Final = Generator(
    "signed_zeros",
    "every logit and bias is +0 or -0: all keys equal, ids 0..K-1 under the lower-id rule",
    COMMON,
    _zeros_bank,
)
ALL_EQUAL: Final = Generator(
    "all_equal",
    "one logit N(0,std) a row for all experts, bias 0: all keys equal",
    (*COMMON, STD),
    _equal_bank,
)
