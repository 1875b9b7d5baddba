"""Generated banks: rows made when they are read, the same bits whatever the chunking.

Rows come in blocks of 256; block b of a stream draws from Philox seeded by (seed, stream, b).
numpy keeps the bit stream for ever and its normal transform within a release line.
"""

from __future__ import annotations

import hashlib
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt

from .bank import NO_UNIT, Array, Bank, Header, RowBlock, Stage
from .errors import InputError
from .geometry import PRESETS, Geometry, ScoringRule, TieContract
from .spec import Generator, Option, Spec, at_least, between, choice, positive, real, row_count

BLOCK: Final = 256
_VERSION: Final = 1
_BF16: Final = np.dtype(ml_dtypes.bfloat16)
_STREAMS: Final = {"rows": 0, "router_weight": 1, "latent_down_weight": 2, "correction_bias": 3}
_MOST_SIZE: Final = 9_999_999
MOST_ELEMENTS: Final = 1 << 27
"""Elements of one block of rows, or of one weight: half a gigabyte of float32."""
_SIZES: Final = re.compile(r"(\d{1,7})x(\d{1,7})x(\d{1,7})x(\d{1,7})")

F32 = npt.NDArray[np.float32]


_DRAWS: Final = {"seed", "bank", "geometry", "hidden", "latent", "experts", "top_k"}
"""Options that decide which numbers are drawn, and for which expert."""


def random(seed: int, stream: str, block: int = 0) -> np.random.Generator:
    """Return the generator of one block of one stream."""
    sequence = np.random.SeedSequence((seed, _STREAMS[stream], block))
    return np.random.Generator(np.random.Philox(sequence))


def geometry_name(text: str) -> str:
    """Return a preset's name or HxLxExK, checked."""
    if text not in PRESETS and not _SIZES.fullmatch(text):
        raise ValueError(f"one of {', '.join(PRESETS)} or HIDDENxLATENTxEXPERTSxTOP_K")
    return text


def _size(least: int) -> Callable[[str], int | None]:
    return lambda text: None if text == "preset" else between(least, _MOST_SIZE)(text)


COMMON: Final = (
    Option("geometry", "mini", geometry_name, "preset, or HIDDENxLATENTxEXPERTSxTOP_K"),
    Option("hidden", "preset", _size(1), "hidden size instead of the geometry's"),
    Option("latent", "preset", _size(0), "latent size instead of the geometry's"),
    Option("experts", "preset", _size(1), "experts instead of the geometry's"),
    Option("top_k", "preset", _size(1), "experts per row instead of the geometry's"),
    Option("rows", "960", row_count, "rows"),
    Option("seed", "0", at_least(0), "seed"),
    Option("tie_contract", "unspecified", choice("unspecified", "lower_id"), "rule for ties"),
)
"""Options of every generator of new rows."""


def geometry_of(spec: Spec) -> tuple[Geometry, ScoringRule]:
    """Return the geometry and rule of a spec's options.

    Raises:
        InputError: sizes that contradict each other.
    """
    name = spec.values["geometry"]
    sizes = _SIZES.fullmatch(name)
    if sizes:
        base, scoring = Geometry(name, *map(int, sizes.groups())), ScoringRule()
    else:
        base, scoring = PRESETS[name]
    axes = {axis: spec.values[axis] for axis in ("hidden", "latent", "experts", "top_k")}
    changed = {axis: value for axis, value in axes.items() if value is not None}
    if not changed:
        return base, scoring
    label = ",".join([name, *(f"{axis}={value}" for axis, value in changed.items())])
    if "experts" in changed:
        # Groups of a preset do not fit another number of experts.
        changed |= {"groups": 1, "top_groups": 1}
    return replace(base, name=label, **changed), scoring


def _check_elements(geometry: Geometry, stage: Stage, text: str) -> None:
    """Refuse sizes whose arrays would not fit into memory before any of them is made."""
    sizes = {"experts": BLOCK * geometry.experts}
    if stage == "hidden":
        widest = max(geometry.experts, geometry.latent)
        sizes["hidden"] = geometry.hidden * max(BLOCK, widest)
    for what, elements in sizes.items():
        if elements > MOST_ELEMENTS:
            expected = f"of at most {MOST_ELEMENTS:,} elements in a block of rows or a weight"
            raise InputError(what, f"{elements:,} elements", expected, text)


def spec_digest(text: str) -> str:
    """Return the digest that stands for a canonical spec."""
    return hashlib.sha256(f"neartie generator {_VERSION}: {text}".encode()).hexdigest()


def rows_source(spec: Spec, independence_unit: str) -> str:
    """Return what names the draws of a spec, however many are asked for.

    Rows that bound a rate are named by seed and sizes: of one seed they are the same draws with
    another scale or bias. Others by every option but the number of rows.
    """
    named = spec.values if independence_unit == NO_UNIT else spec.values.keys() & _DRAWS
    options = sorted((key, str(spec.values[key])) for key in named if key != "rows")
    return f"{spec.text.partition(':')[0]} {options}"


class GeneratedBank(Bank):
    """A bank whose blocks are functions of (seed, block)."""

    def __init__(
        self,
        spec: Spec,
        stage: Stage,
        summary: str,
        weights: Callable[[Geometry], Mapping[str, Array]],
        independence_unit: str = "row",
    ) -> None:
        geometry, scoring = geometry_of(spec)
        _check_elements(geometry, stage, spec.text)
        header = Header(
            name=spec.text,
            rows=spec.values["rows"],
            geometry=geometry,
            scoring=scoring,
            tie_contract=cast(TieContract, spec.values["tie_contract"]),
            independence_unit=independence_unit,
            stage=stage,
            digest=spec_digest(spec.text),
            provenance={
                "model": "none: generated rows",
                "source": spec.text,
                "seeds": {"seed": spec.values["seed"]},
                "rows": summary,
            },
        )
        super().__init__(header, lambda: weights(geometry))
        self.parsed = spec
        self._last: tuple[int, dict[str, Array]] = (-1, {})

    @property
    def rows_from(self) -> str:
        """The generator with its seed and sizes, see ``rows_source``."""
        return rows_source(self.parsed, self.independence_unit)

    @abstractmethod
    def _block(self, block: int) -> dict[str, Array]:
        """Return all ``BLOCK`` rows of a block: hidden or logits, and keys of its own."""

    def _cached(self, block: int) -> dict[str, Array]:
        index, made = self._last
        if index != block:
            made = self._block(block)
            self._last = (block, made)
        return made

    def _read(self, start: int, stop: int) -> RowBlock:
        pieces = []
        for block in range(start // BLOCK, (stop - 1) // BLOCK + 1):
            first = block * BLOCK
            part = slice(max(start - first, 0), min(stop - first, BLOCK))
            pieces.append({name: v[part] for name, v in self._cached(block).items()})
        columns = {name: np.concatenate([p[name] for p in pieces]) for name in pieces[0]}
        hidden, logits = columns.pop("hidden", None), columns.pop("logits", None)
        keys = {**row_keys(start, stop), **columns}
        return RowBlock(start, stop - start, keys, hidden=hidden, logits=logits)


def row_keys(start: int, stop: int) -> dict[str, Array]:
    """Return the keys of generated rows start..stop."""
    return keys_of(np.arange(start, stop, dtype=np.int64))


def keys_of(row: npt.NDArray[np.int64]) -> dict[str, Array]:
    """Return the keys of generated rows [row]: one layer, one step, each row its own unit."""
    zero = np.zeros(len(row), np.int32)
    return {"layer": zero, "step": zero, "row": row, "rank": zero - 1, "unit": row}


class Rows(GeneratedBank):
    """A generated bank given by a function of (spec, geometry, bias, block) -> columns.

    Its rows are made to provoke something, so they are independent samples of nothing.
    """

    def __init__(
        self,
        spec: Spec,
        summary: str,
        make: Callable[[Spec, Geometry, F32, int], dict[str, Array]],
        bias: Callable[[Spec, Geometry], F32],
    ) -> None:
        super().__init__(
            spec, "logits", summary, lambda g: {"correction_bias": bias(spec, g)}, NO_UNIT
        )
        self._make = make

    def _block(self, block: int) -> dict[str, Array]:
        return self._make(self.parsed, self.geometry, self.weights["correction_bias"], block)


def normal(rng: np.random.Generator, shape: tuple[int, ...], std: float, mean: float = 0.0) -> F32:
    """Return float32 normal values, one rounding a step."""
    values: F32 = rng.standard_normal(shape, np.float32)
    return values * np.float32(std) + np.float32(mean)


def normal_bias(spec: Spec, geometry: Geometry) -> F32:
    """Return [expert] bias with the spec's standard deviation ``bias``."""
    rng = random(spec.values["seed"], "correction_bias")
    return normal(rng, (geometry.experts,), spec.values["bias"])


class _Gaussian(GeneratedBank):
    def __init__(self, spec: Spec) -> None:
        super().__init__(spec, spec.values["stage"], GAUSSIAN.summary, self._make_weights)

    def _make_weights(self, geometry: Geometry) -> dict[str, Array]:
        seed = self.parsed.values["seed"]
        bias = normal_bias(self.parsed, geometry)
        if self.parsed.values["stage"] == "logits":
            return {"correction_bias": bias}
        sizes = {
            "router_weight": (geometry.experts, self.parsed.values["std"]),
            "latent_down_weight": (geometry.latent, 1.0),
        }
        weights: dict[str, Any] = {"correction_bias": bias}
        for name, (rows, std) in sizes.items():
            if rows:
                shape, scale = (rows, geometry.hidden), std / geometry.hidden**0.5
                weights[name] = normal(random(seed, name), shape, scale).astype(_BF16)
        return weights

    def _block(self, block: int) -> dict[str, Array]:
        rng = random(self.parsed.values["seed"], "rows", block)
        if self.stage == "logits":
            shape = (BLOCK, self.geometry.experts)
            return {"logits": normal(rng, shape, self.parsed.values["std"])}
        return {"hidden": normal(rng, (BLOCK, self.geometry.hidden), 1.0).astype(_BF16)}


def _bias_option(text: str) -> float:
    value = real(text)
    if value < 0:
        raise ValueError("a standard deviation of at least 0")
    return value


BIAS_STD: Final = Option("bias", "0.02", _bias_option, "standard deviation of the bias")
STD: Final = Option("std", "1", positive, "standard deviation of the logits")

GAUSSIAN: Final = Generator(
    "gaussian",
    "hidden N(0,1) BF16, router N(0,1)/sqrt(H)*std BF16, latent N(0,1)/sqrt(H) BF16, bias "
    "N(0,bias); stage=logits draws logits N(0,std) instead",
    (
        *COMMON,
        Option("stage", "hidden", choice("hidden", "logits"), "where the rows start"),
        STD,
        BIAS_STD,
    ),
    _Gaussian,
)


def check_no_groups(geometry: Geometry, text: str) -> None:
    """Refuse a geometry with expert groups.

    Raises:
        InputError: the geometry selects groups first.
    """
    if geometry.groups > 1:
        raise InputError("geometry", geometry.name, "one without expert groups", text)
