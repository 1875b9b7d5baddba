"""Normal FP32 logits at the speed of memory: any row by itself, the same bits on every machine.

Bits come from SplitMix64, whose n-th output is a function of n alone; they become a normal value by
the inverse of its distribution. IEEE +, -, *, / and square roots only, no library function.

Source: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014;
M. Giles, "Approximating the erfinv function", GPU Computing Gems, 2011 (single precision); the
logarithm is that of Cephes (logf).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numba
import numpy as np
import numpy.typing as npt

from .bank import RowBlock
from .generate import BIAS_STD, COMMON, F32, STD, GeneratedBank, normal_bias, row_keys
from .normal_constants import (
    EDGE,
    FAR,
    FAR_MIDDLE,
    GOLDEN,
    LN2_HIGH,
    LN2_LOW,
    LOGARITHM,
    MIDDLE,
    MIX_1,
    MIX_2,
    NEAR,
    ROOT_2,
    ROOT_HALF_BITS,
    STEP,
)
from .spec import Generator, Spec

_GOLDEN: Final = np.uint64(GOLDEN)
_MIX_1: Final = np.uint64(MIX_1)
_MIX_2: Final = np.uint64(MIX_2)

_F: Final = np.float32
_HALF, _ONE, _TWO = _F(0.5), _F(1.0), _F(2.0)
_STEP, _ROOT_2 = _F(STEP), _F(ROOT_2)
_LN2_HIGH, _LN2_LOW = _F(LN2_HIGH), _F(LN2_LOW)
_ROOT_HALF_BITS: Final = np.int32(ROOT_HALF_BITS)
_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7, _L8 = map(_F, LOGARITHM)
_A0, _A1, _A2, _A3, _A4, _A5, _A6, _A7, _A8 = map(_F, NEAR)
_B0, _B1, _B2, _B3, _B4, _B5, _B6, _B7, _B8 = map(_F, FAR)
_MIDDLE, _EDGE, _FAR = _F(MIDDLE), _F(EDGE), _F(FAR_MIDDLE)


@numba.njit(cache=True, error_model="numpy")
def _log(q: Any) -> Any:
    """log(q) of a normal float32 q > 0, within a few 2^-24."""
    bits = np.float32(q).view(np.int32) - _ROOT_HALF_BITS
    power = np.float32(np.int32(bits >> 23))
    fraction = np.int32((bits & np.int32(0x7FFFFF)) + _ROOT_HALF_BITS).view(np.float32)
    x = fraction - _ONE
    z = x * x
    y = _L3 + x * (_L4 + x * (_L5 + x * (_L6 + x * (_L7 + x * _L8))))
    y = x * z * (_L0 + x * (_L1 + x * (_L2 + x * y)))
    y = y + _LN2_LOW * power - _HALF * z
    return x + y + _LN2_HIGH * power


@numba.njit(cache=True, error_model="numpy")
def _normals(bits: Any, chance: F32, w: F32, out: F32) -> None:
    """The normal values of 32 random bits each: a sign, and the chance of a larger magnitude.

    One short loop a step, which the compiler vectorises; together they do not.
    """
    for i in range(len(out)):
        chance[i] = (np.float32(np.int32(bits[i] & np.int32(0x7FFFFFFF))) + _HALF) * _STEP
    for i in range(len(out)):
        w[i] = -_log(chance[i] * (_TWO - chance[i]))
    for i in range(len(out)):
        b = np.float32(math.sqrt(w[i])) - _FAR
        far = _B4 + b * (_B5 + b * (_B6 + b * (_B7 + b * _B8)))
        out[i] = _B0 + b * (_B1 + b * (_B2 + b * (_B3 + b * far)))
    for i in range(len(out)):
        a = w[i] - _MIDDLE
        near = _A4 + a * (_A5 + a * (_A6 + a * (_A7 + a * _A8)))
        near = _A0 + a * (_A1 + a * (_A2 + a * (_A3 + a * near)))
        value = near if w[i] < _EDGE else out[i]
        value = _ROOT_2 * (value * (_ONE - chance[i]))
        out[i] = -value if bits[i] < 0 else value


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _fill(key: Any, rows: Any, std: Any, out: F32) -> None:
    experts = out.shape[1]
    pairs = (experts + 1) // 2
    words = np.empty(pairs, np.uint64)
    bits = words.view(np.int32)
    chance, w = np.empty(experts, np.float32), np.empty(experts, np.float32)
    for row in range(len(out)):
        base = key + np.uint64(rows[row]) * np.uint64(pairs) * _GOLDEN
        for pair in range(pairs):
            z = base + np.uint64(pair + 1) * _GOLDEN
            z = (z ^ (z >> np.uint64(30))) * _MIX_1
            z = (z ^ (z >> np.uint64(27))) * _MIX_2
            words[pair] = z ^ (z >> np.uint64(31))
        line = out[row]
        _normals(bits, chance, w, line)
        if std != _ONE:
            for i in range(experts):
                line[i] = line[i] * std


@dataclass(frozen=True)
class NormalStream:
    """Rows of N(0, std) without an end, each made from its own number alone.

    A magnitude is one of 2^31 quantiles, so the largest is 6.3 standard deviations; where its
    density is above 1e-3 their spacing is below one FP32 step. Values are within 1e-6 of the
    quantile up to 5 standard deviations, and within 4e-4 of it beyond.

    Attributes:
        key: 64 bits that the seed stands for.
        experts: values of a row.
        std: standard deviation, taken as float32.
    """

    key: int
    experts: int
    std: float = 1.0

    @classmethod
    def of_seed(cls, seed: int, experts: int, std: float = 1.0) -> NormalStream:
        """Return the stream of a seed."""
        return cls(
            int(np.random.SeedSequence((seed, 4)).generate_state(1, np.uint64)[0]), experts, std
        )

    def rows(self, rows: npt.NDArray[np.int64]) -> F32:
        """Return the rows of these numbers: float32 [row, expert]."""
        out = np.empty((len(rows), self.experts), np.float32)
        _fill(np.uint64(self.key), rows, np.float32(self.std), out)
        return out


def normal_rows(seed: int, start: int, rows: int, experts: int, std: float = 1.0) -> F32:
    """Rows start .. start + rows of the stream of a seed: float32 [row, expert], N(0, std)."""
    return NormalStream.of_seed(seed, experts, std).rows(np.arange(start, start + rows))


class NormalBank(GeneratedBank):
    """Logits N(0, std) and a bias N(0, bias), for many rows."""

    threads_may_read = True

    def __init__(self, spec: Spec) -> None:
        super().__init__(
            spec, "logits", NORMAL.summary, lambda g: {"correction_bias": normal_bias(spec, g)}
        )

    def _block(self, block: int) -> dict[str, npt.NDArray[Any]]:
        raise NotImplementedError("rows are made one by one")

    def _read(self, start: int, stop: int) -> RowBlock:
        logits = self.stream.rows(np.arange(start, stop))
        return RowBlock(start, stop - start, row_keys(start, stop), logits=logits)

    @property
    def stream(self) -> NormalStream:
        """What the bank's logits are: row r of it is row r of the bank."""
        values = self.parsed.values
        return NormalStream.of_seed(values["seed"], self.geometry.experts, values["std"])


NORMAL: Final = Generator(
    "normal",
    "logits N(0,std), bias N(0,bias): as gaussian:stage=logits from a faster generator",
    (*COMMON, STD, BIAS_STD),
    NormalBank,
)
