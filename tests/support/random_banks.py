"""Small banks of every stage, with any bits in their values, and a comparison of two banks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from neartie.banks.bank import Bank, Header, RowBlock, Stage
from neartie.banks.geometry import Geometry, ScoringRule
from neartie.banks.write import block_columns, write_bank

Array = np.ndarray[Any, Any]
GEOMETRY = Geometry("tiny", hidden=8, latent=4, experts=6, top_k=2)
RANKS = 2
BF16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Kind:
    """What a random bank holds."""

    stage: Stage
    rows: int
    seed: int
    any_bits: bool = True
    launches: int = 3


kinds = st.builds(
    Kind,
    stage=st.sampled_from(["hidden", "partials", "shards", "logits", "outputs"]),
    rows=st.integers(1, 9),
    seed=st.integers(0, 1 << 30),
)


def any_floats(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, plain: bool) -> Array:
    """Values of any bits (NaNs, infinities, both zeros), or ordinary ones."""
    kind = np.dtype(dtype)
    if plain:
        return rng.standard_normal(shape).astype(kind)
    bits: Any = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[kind.itemsize]
    raw = rng.integers(0, np.iinfo(bits).max, shape, dtype=bits, endpoint=True)
    return raw.view(kind)


def finite(values: Array) -> Array:
    """The same with zeros for what is not finite."""
    return np.where(np.isfinite(values.astype(np.float32)), values, np.zeros((), values.dtype))


def write_random(kind: Kind, directory: Path, name: str = "random/bank") -> str:
    """Write a bank and return its digest."""
    rng = np.random.default_rng(kind.seed)
    plain = not kind.any_bits
    g = GEOMETRY

    def floats(*shape: int, dtype: Any = np.float32) -> Array:
        return any_floats(rng, shape, dtype, plain)

    row = np.arange(kind.rows, dtype=np.int32)
    keys: dict[str, Array] = {
        "layer": np.full_like(row, 3),
        "step": row // kind.launches,
        "row": row % kind.launches,
        "rank": np.full_like(row, -1),
        "doc": rng.integers(-(1 << 40), 1 << 40, kind.rows),
    }
    ids = rng.integers(0, g.experts, (kind.rows, g.top_k)).astype(np.int32)
    inputs: dict[str, Any] = {}
    extra: dict[str, Array] = {}
    if kind.stage == "hidden":
        inputs["hidden"] = floats(kind.rows, g.hidden, dtype=BF16)
        extra["logits_recorded"] = floats(kind.rows, g.experts)
        extra["scaled"] = floats(kind.rows, 2, 3, dtype=ml_dtypes.float8_e4m3fn)
        extra["half"] = floats(kind.rows, 1, dtype=np.float16)
        extra["exact"] = floats(kind.rows, 2, dtype=np.float64)
        extra["places"] = rng.integers(-(1 << 60), 1 << 60, (kind.rows, 2))
    elif kind.stage == "logits":
        inputs["logits"] = floats(kind.rows, g.experts)
    elif kind.stage != "outputs":
        inputs["logits_shards"] = floats(RANKS, kind.rows, g.experts // RANKS)
        if kind.stage == "partials":
            inputs["latent_partials"] = floats(RANKS, kind.rows, g.latent, dtype=BF16)
        else:
            inputs["latent_shards"] = floats(RANKS, kind.rows, g.latent // RANKS, dtype=BF16)
    weights: dict[str, Array] = {}
    if kind.stage != "outputs":
        weights["correction_bias"] = floats(g.experts)
    if kind.stage == "hidden":
        weights["router_weight"] = finite(floats(g.experts, g.hidden, dtype=BF16))
        weights["latent_down_weight"] = finite(floats(g.latent, g.hidden, dtype=BF16))
    block = RowBlock(
        0,
        kind.rows,
        keys,
        recorded={"gpu": (ids, floats(kind.rows, g.top_k)), "other": (ids[:, ::-1].copy(), None)},
        extra=extra,
        **inputs,
    )
    header = Header(
        name=name,
        rows=0,
        geometry=g,
        scoring=ScoringRule("softmax", scale=2.5),
        tie_contract="lower_id",
        independence_unit="doc",
        stage=kind.stage,
        digest="",
        ranks=RANKS if kind.stage in ("partials", "shards") else None,
        recorded_widths={"gpu": 3, "other": None},
        provenance={"model": "none", "anything": [1, "two", None, {"ü": 0.1}]},
    )
    return write_bank(directory, header, weights, [block])


def assert_same_rows(got: Bank, expected: Bank) -> None:
    """Every key and tensor of every row, and every weight, has the same dtype and bits."""
    mine = block_columns(got.read(0, got.rows))
    theirs = block_columns(expected.read(0, expected.rows))
    assert list(mine) == list(theirs)
    for name, values in theirs.items():
        assert mine[name].dtype == values.dtype, name
        assert mine[name].shape == values.shape, name
        assert mine[name].tobytes() == values.tobytes(), name
    assert list(got.weights) == list(expected.weights)
    for name, weight in expected.weights.items():
        assert got.weights[name].dtype == weight.dtype
        assert got.weights[name].tobytes() == weight.tobytes(), name
