"""Small right inputs of every reader, and Arrow files as no writer of ours makes them."""

from __future__ import annotations

import contextlib
import io
import json
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
import pyarrow as pa
from safetensors import SafetensorError
from safetensors.numpy import load, save

from neartie.banks.bank import Header, RowBlock, Stage
from neartie.banks.geometry import Geometry, ScoringRule
from neartie.banks.open import GENERATORS
from neartie.banks.write import write_bank

ROOT: Final = Path(__file__).resolve().parents[3]
_BF16: Final = np.dtype(ml_dtypes.bfloat16)

POLICIES: Final = (
    'name = "mine"\ntie_contract = "lower_id"\nset_rate = 1e-5\nweight_budget_ulp = 4\n',
    "window_ulp = 3\nconfidence = 0.99\nnoise_abs = 1e-6\nflush_to_zero = true\n",
    '[coverage]\nwidths = [9, 12]\nranks = 8\nbanks = ["k3-mini"]\n\n[model.k3]\nset_rate = 2e-5\n',
    'noise_abs = 1e-7\nindependence_unit = "doc"\n\n[provenance.noise_abs]\n'
    'measured_at = "a bench"\ndevice = "H200"\ndate = 2026-01-31\nsource = "log"\n',
)

SPECS: Final = (
    "gaussian:geometry=mini,rows=60,seed=3",
    "gaussian:geometry=deepseek-v3,stage=logits,rows=3.2M,std=2,bias=0.5",
    "near_tie:gap=1,slot=16,rows=60k,geometry=mini",
    "saturated:geometry=mini", "large_bias:geometry=mini", "bf16_logits:geometry=mini",
    "special:geometry=mini", "signed_zeros:geometry=mini", "all_equal:geometry=mini",
    "normal:geometry=mini,rows=20", "resample:bank=k3-mini/layer0,rows=20,seed=1",
)  # fmt: skip


_SIZES: Final = (
    "0", "1", "2", "3", "7", "8", "16", "64", "896", "1e3", "60k", "3.2M", "1G", "999999999999",
    "-1", "0.5", "1e-45", "1e38", "1e308", "-1e9", "inf", "nan", "18446744073709551616",
)  # fmt: skip


def other_spec(rng: random.Random) -> str:
    """A spec of any generator, some of its options set to sizes or to words of other options."""
    generator = GENERATORS[rng.choice(sorted(GENERATORS))]
    defaults = [option.default for one in GENERATORS.values() for option in one.options]
    words = (*defaults, "mini", "k3", "k2", "deepseek-v3", "logits", "hidden", "k3-mini/layer3")
    options = rng.sample(generator.options, rng.randrange(min(4, len(generator.options)) + 1))
    given = [
        f"{option.name}={rng.choice(_SIZES if rng.random() < 0.6 else words)}" for option in options
    ]
    if rng.random() < 0.7 and not any(one.startswith("geometry=") for one in given):
        given.append("geometry=mini")
    return f"{generator.name}:{','.join(given)}"


def claims() -> list[str]:
    """The shipped claims in parts: a claim each is enough to be read."""
    text = (ROOT / "audit/claims/route-9-20.toml").read_text()
    head, *parts = text.split("[[claim]]")
    return [head + "".join(f"[[claim]]{part}" for part in parts[i : i + 3]) for i in (0, 6, 12, 18)]


def cases() -> list[dict[str, Any]]:
    """The short ones of the case files."""
    found = []
    for name in ("router_cases.json", "router_cases_more.json"):
        content = json.loads((ROOT / "tests/data" / name).read_text())
        listed = content if isinstance(content, list) else content["cases"]
        found += [case for case in listed if len(json.dumps(case)) < 1_200]
    return found


def _block(rows: int, ranks: int | None, rng: np.random.Generator, stage: Stage) -> RowBlock:
    count = np.arange(rows, dtype=np.int32)
    keys = {
        "layer": count * 0,
        "step": count // 2,
        "row": count,
        "rank": count * 0 - 1,
        "doc": count // 3,
    }
    values: dict[str, Any] = {}
    if stage == "hidden":
        values["hidden"] = rng.standard_normal((rows, 8)).astype(_BF16)
        values["extra"] = {"logits_recorded": rng.standard_normal((rows, 6)).astype(np.float32)}
    elif stage == "logits":
        values["logits"] = rng.standard_normal((rows, 6)).astype(np.float32)
    else:
        assert ranks is not None
        shape = (ranks, rows, 6 // ranks)
        values["logits_shards"] = rng.standard_normal(shape).astype(np.float32)
        values["latent_partials"] = rng.standard_normal((ranks, rows, 4)).astype(_BF16)
    if stage != "partials":
        ids = np.argsort(rng.random((rows, 6)), axis=1)[:, :2].astype(np.int32)
        values["recorded"] = {"gpu": (ids, rng.random((rows, 2)).astype(np.float32))}
    return RowBlock(0, rows, keys, **values)


def banks() -> list[Mapping[str, bytes]]:
    """A bank of every kind of file: hidden rows, logits, and partial sums of ranks."""
    rng = np.random.default_rng(0)
    found: list[Mapping[str, bytes]] = []
    stages: tuple[tuple[Stage, int | None], ...] = (
        ("hidden", None),
        ("logits", None),
        ("partials", 2),
    )
    for stage, ranks in stages:
        weights = {
            "router_weight": rng.standard_normal((6, 8)).astype(_BF16),
            "correction_bias": rng.standard_normal(6).astype(np.float32),
        }
        latent = 4 if stage == "partials" else 0
        header = Header(
            stage, 5, Geometry("tiny", 8, latent, 6, 2), ScoringRule(), "unspecified", "doc", stage,
            "", ranks=ranks, recorded_widths={} if ranks else {"gpu": 2},
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as place:
            write_bank(f"{place}/bank", header, weights, [_block(5, ranks, rng, stage)])
            files = sorted(Path(place, "bank").iterdir())
            found.append({file.name: file.read_bytes() for file in files})
    return found


def other_tensors(data: bytes, rng: random.Random) -> bytes:
    """A safetensors file with a tensor of another shape, dtype or value, or without one."""
    try:
        tensors = load(data)
    except (SafetensorError, KeyError, ValueError):
        return data
    name = rng.choice(sorted(tensors))
    array, kind = tensors[name], rng.randrange(6)
    if kind == 0:
        del tensors[name]
    elif kind == 1:
        tensors[rng.choice(("x", "logits", "doc", "hidden", "topk_ids", ""))] = array
    elif kind == 2:
        shape = rng.choice(((0,), (-1,), (1, -1), (-1, 1), array.shape[::-1], (1, 1, -1)))
        with contextlib.suppress(ValueError):
            tensors[name] = array.reshape(shape)
    elif kind == 3:
        dtype = rng.choice((np.int8, np.int64, np.float16, np.float32, np.float64, np.bool_))
        tensors[name] = array.astype(dtype)
    elif kind == 4 and array.size:
        value = rng.choice((np.nan, np.inf, -1, 6, 2**31 - 1))
        flat = array.astype(np.float64).reshape(-1)
        flat[rng.randrange(flat.size)] = value
        tensors[name] = flat.reshape(array.shape).astype(array.dtype)
    else:
        tensors[name] = np.concatenate([array, array])[: rng.choice((1, 3, 5, 9))]
    return bytes(save({key: np.ascontiguousarray(value) for key, value in tensors.items()}))


def safetensors() -> list[bytes]:
    """A recording with every tensor that is looked for, and one with the needed ones alone."""
    rng = np.random.default_rng(1)
    ids = np.argsort(rng.random((4, 6)), axis=1)[:, :2].astype(np.int32)
    least: dict[str, Any] = {
        "hidden": rng.standard_normal((4, 8)).astype(_BF16),
        "router_weight": rng.standard_normal((6, 8)).astype(_BF16),
        "correction_bias": rng.standard_normal(6).astype(np.float32),
        "topk_ids": ids,
        "topk_weights": rng.random((4, 2)).astype(np.float32),
        "doc": np.array([0, 0, 1, 1], np.int32),
    }
    more = {
        "logits": rng.standard_normal((4, 6)).astype(np.float32),
        "latent_down_weight": rng.standard_normal((4, 8)).astype(_BF16),
        "router_weight_master": rng.standard_normal((6, 8)).astype(np.float32),
        "token_ids": np.arange(4, dtype=np.int32),
        "unused": np.zeros((0, 3), np.float64),
    }
    return [save(least), save({**least, **more})]


def other_arrow(data: bytes, rng: random.Random) -> bytes:
    """An Arrow file with other columns, types, batches, nulls, metadata or compression."""
    try:
        table = pa.ipc.open_file(pa.BufferReader(data)).read_all()
        # Arrow reads a name when it is asked for it.
        names = table.schema.names
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return data
    if not names:
        return data
    options = None
    kind = rng.randrange(9)
    column = rng.randrange(len(names))
    field = table.schema.field(column)
    if kind == 0:
        table = pa.concat_tables([table] * rng.choice((0, 2, 3)) or [table.slice(0, 0)])
    elif kind == 1:
        table = table.slice(0, rng.choice((0, 1, max(table.num_rows - 1, 0))))
    elif kind == 2:
        table = table.append_column(rng.choice(("x", field.name, "")), table.column(column))
    elif kind == 3:
        table = table.remove_column(column)
    elif kind == 4:
        nulls = pa.nulls(table.num_rows, field.type)
        table = table.set_column(column, field, nulls) if field.nullable else table
        table = table.set_column(column, field.with_nullable(True), nulls)
    elif kind == 5:
        metadata = {
            "dtype": rng.choice(("bfloat16", "x", "")),
            "shape": rng.choice(("[]", "[8", "null", "[1e9]")),
        }
        table = table.cast(table.schema.set(column, field.with_metadata(metadata)))
    elif kind == 6:
        wide = pa.array([["x" * 9] * 3] * table.num_rows, pa.list_(pa.string()))
        table = table.set_column(column, field.name, wide)
    elif kind == 7:
        options = pa.ipc.IpcWriteOptions(compression=rng.choice(("lz4", "zstd")))
    else:
        # A bomb: a batch of zeros that a codec makes small.
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        zeros = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(1 << 22, np.uint16)), 1 << 22)
        table = pa.table({field.name: zeros})
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rng.choice((None, 1, 2)))
    return sink.getvalue()
