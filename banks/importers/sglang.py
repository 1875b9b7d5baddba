"""A directory of SGLang's dumper as named arrays.

A file a tensor, step and rank (``srt/debug_utils/dumper.py`` in 0.5.23): the name is its tags,
``step=0___rank=1___dump_index=7___name=router_logits___recompute_status=disabled___layer_id=3.pt``,
the content ``{"value": tensor, "meta": {tags, "dims": "t e[tp]", ...}}`` of torch.save.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..bank import Array
from ..errors import BankError
from ..interchange import Column, Content, column, stacked
from ..schema import WEIGHTS
from ..write import RANKED
from .directory import HEADER_NAME, check_regular
from .header import parse_exported
from .reading import KEY_NAMES, SHARDED, TENSOR_NAMES, Reading
from .sglang_dims import Dims, parse_dims
from .torch_file import load_safely, tensor_column


@dataclass(frozen=True)
class _Dump:
    """One file, by the tags of its name."""

    path: Path
    name: str
    step: int
    rank: int
    index: int
    layer: int | None


def read_sglang(path: Path, reading: Reading) -> Content:
    """Return the tensors of a dump directory that a bank has a place for, by their bank's names.

    Tokens of a step and layer are rows; ``layer`` is the tag layer_id. A tensor without dims, or
    with no sharded axis, must have the same bits on each rank; dims with a sharded last axis or a
    partial sum become pieces per rank.

    Raises:
        BankError: no dump files, a tag that is missing, ranks that disagree, a tensor dumped twice
            in a step and layer, or steps that lack one.
    """
    if not path.is_dir():
        raise BankError("file", "nothing" if not path.exists() else "a file",
                        "a directory of SGLang's dumper", str(path))  # fmt: skip
    header = None
    if (path / HEADER_NAME).is_file():
        text = (path / HEADER_NAME).read_text(encoding="utf-8", errors="replace")
        header = parse_exported(text, str(path / HEADER_NAME))
    by_name: dict[str, list[_Dump]] = {}
    for dump in _scan(path):
        if reading.layers is None or dump.layer is None or dump.layer in reading.layers:
            by_name.setdefault(dump.name, []).append(dump)
    wanted = _wanted(by_name, reading, header)
    weights = {name: _weight(by_name[theirs]) for name, theirs in wanted.items() if name in WEIGHTS}
    rows = {name: by_name[theirs] for name, theirs in wanted.items() if name not in WEIGHTS}
    columns = {**_row_columns(rows, path), **weights}
    return Content(str(path), columns, header, _facts(by_name), labels=wanted)


def _scan(directory: Path) -> list[_Dump]:
    dumps = []
    for path in sorted(directory.glob("*.pt")):
        check_regular(path)
        tags = dict(part.split("=", 1) for part in path.stem.split("___") if "=" in part)
        # A second forward pass in the backward one says nothing new of the model.
        if tags.get("recompute_status") == "recompute":
            continue
        # Until 0.5.3 the step was called forward_pass_id.
        step = tags.get("step", tags.get("forward_pass_id"))
        numbers = {"step": step, "rank": tags.get("rank"), "dump_index": tags.get("dump_index")}
        for tag, text in numbers.items():
            if text is None or not re.fullmatch(r"\d{1,9}", text):
                raise BankError(f"tag {tag}", text or "nothing", "a whole number", str(path))
        layer = tags.get("layer_id")
        if layer is not None and not re.fullmatch(r"\d{1,9}", layer):
            raise BankError("tag layer_id", layer, "a whole number", str(path))
        if "name" not in tags:
            raise BankError("tag name", "nothing", "present", str(path))
        step_number, rank, index = (int(text or 0) for text in numbers.values())
        held = None if layer is None else int(layer)
        dumps.append(_Dump(path, tags["name"], step_number, rank, index, held))
    if not dumps:
        raise BankError("file", "no *.pt", "files of SGLang's dumper", str(directory))
    return dumps


def _wanted(
    by_name: Mapping[str, Any], reading: Reading, header: Mapping[str, Any] | None
) -> dict[str, str]:
    """What the dumper calls the tensors of a bank that are there, by the bank's names."""
    names = [*TENSOR_NAMES, *reading.names, *KEY_NAMES, *reading.keys]
    names += [name for name in by_name if re.fullmatch(r"recorded\..+\.(ids|weights)", name)]
    if header is not None:
        # Of an exported bank, everything.
        names += list(by_name)
    found = {}
    for name in dict.fromkeys(names):
        theirs = next((n for n in reading.candidates(name) if n in by_name), None)
        if theirs is not None:
            found[name] = theirs
    return found


def _facts(by_name: Mapping[str, list[_Dump]]) -> dict[str, Any]:
    dumps = [dump for held in by_name.values() for dump in held]
    return {
        "source": {
            "format": "sglang dumper",
            "files": len(dumps),
            "ranks": len({dump.rank for dump in dumps}),
            "steps": len({dump.step for dump in dumps}),
        }
    }


def _loaded(dump: _Dump) -> tuple[Column, Dims | None]:
    where = str(dump.path)
    held = load_safely(dump.path)
    value = held
    text: Any = None
    if isinstance(held, Mapping) and "value" in held:
        value = held["value"]
        meta = held.get("meta")
        text = meta.get("dims") if isinstance(meta, Mapping) else None
    if not hasattr(value, "layout"):
        raise BankError(f"value of {dump.name}", type(value).__name__, "a tensor", where)
    read = tensor_column(value, f"value of {dump.name}", where)
    if text is None:
        return read, None
    if not isinstance(text, str):
        raise BankError("dims", type(text).__name__, "text", where)
    dims = parse_dims(text, where)
    if len(dims.names) != len(read.shape):
        got = f"{list(read.shape)} with dims {text!r}"
        raise BankError(f"shape of {dump.name}", got, "an axis for each of dims", where)
    return read, dims


def _weight(dumps: list[_Dump]) -> Column:
    """A weight, from the first of its files; every other must have the same bits."""
    first, _ = _loaded(dumps[0])
    values = first.whole()
    for dump in dumps[1:]:
        other, _ = _loaded(dump)
        _check_same(dumps[0], dump, values, other.whole() if other.shape == first.shape else None)
    return column(values)


def _check_same(first: _Dump, other: _Dump, values: Array, found: Array | None) -> None:
    if found is None or found.dtype != values.dtype or found.tobytes() != values.tobytes():
        expected = f"the bits of {first.path.name}, or dims that tell how it lies over ranks"
        raise BankError(f"{other.name} on rank {other.rank}", "other bits", expected,
                        str(other.path))  # fmt: skip


def _row_columns(rows: Mapping[str, list[_Dump]], directory: Path) -> dict[str, Column]:
    if not rows:
        expected = "tensors of a router (name them with --tensor BANK_NAME=DUMP_NAME)"
        raise BankError("names", "none known", expected, str(directory))
    groups: dict[str, dict[tuple[int, int | None], list[_Dump]]] = {}
    for name, dumps in rows.items():
        for dump in dumps:
            groups.setdefault(name, {}).setdefault((dump.step, dump.layer), []).append(dump)
    first = next(iter(groups))
    for name, held in groups.items():
        for place in sorted(set(held) ^ set(groups[first]), key=str):
            lacks = name if place in groups[first] else first
            step, layer = place
            got = f"nothing in step {step}" + ("" if layer is None else f", layer {layer}")
            raise BankError(lacks, got, f"there, as {first} or {name} is", str(directory))
    # In the order in which they were computed.
    order = sorted(groups[first], key=lambda place: min(d.index for d in groups[first][place]))
    columns: dict[str, Column] = {}
    for name, held in groups.items():
        parts = [_group_column(name, held[place]) for place in order]
        known = {emitted for emitted, _ in parts}
        if len(known) != 1:
            raise BankError(f"dims of {name}", "two layouts", "one", str(directory))
        columns[known.pop()] = _stacked(name, [part for _, part in parts], directory)
    lengths = [part.shape[0] for _, part in (_group_column(first, groups[first][p]) for p in order)]
    return {**_keys(order, lengths), **columns}


def _stacked(name: str, parts: list[Column], directory: Path) -> Column:
    for part in parts:
        if part.dtype != parts[0].dtype or part.shape[1:] != parts[0].shape[1:]:
            got = f"{part.dtype} {list(part.shape[1:])}"
            expected = f"{parts[0].dtype} {list(parts[0].shape[1:])} in each step"
            raise BankError(f"a token of {name}", got, expected, str(directory))
    return stacked(parts)


def _keys(order: list[tuple[int, int | None]], lengths: list[int]) -> dict[str, Column]:
    step = [np.full(n, step, np.int32) for (step, _), n in zip(order, lengths, strict=True)]
    row = [np.arange(n, dtype=np.int32) for n in lengths]
    keys = {"step": column(np.concatenate(step)), "row": column(np.concatenate(row))}
    if all(layer is not None for _, layer in order):
        layers = [np.full(n, layer, np.int32) for (_, layer), n in zip(order, lengths, strict=True)]
        keys["layer"] = column(np.concatenate(layers))
    return keys


def _group_column(name: str, dumps: list[_Dump]) -> tuple[str, Column]:
    """What a tensor is called in the bank, and its tokens of one step and layer."""
    by_rank: dict[int, _Dump] = {}
    for dump in dumps:
        if dump.rank in by_rank:
            got = f"{by_rank[dump.rank].path.name} too"
            expected = "dumped once in a step, layer and rank"
            raise BankError(f"name {dump.name}", got, expected, str(dump.path))
        by_rank[dump.rank] = dump
    ranked = [by_rank[rank] for rank in sorted(by_rank)]
    loaded = [_loaded(dump) for dump in ranked]
    where = str(ranked[0].path)
    shapes = {part.shape for part, _ in loaded}
    if len(shapes) != 1 or not loaded[0][0].shape:
        found = sorted(list(shape) for shape in shapes)
        raise BankError(f"shapes of {name}", found, "one, with tokens as first axis", where)
    layout = _layout(name, loaded[0][1], where)
    parts = [part for part, _ in loaded]
    if layout == "replicated":
        return name, _replicated(ranked, parts)
    emitted = SHARDED.get(name, name)
    if RANKED.get(emitted) != layout:
        expected = f"{RANKED.get(emitted, 'replicated')}, as {emitted} is"
        raise BankError(f"dims of {name}", layout, expected, where)
    return emitted, _pieces(parts)


def _layout(name: str, dims: Dims | None, where: str) -> str:
    if dims is not None:
        if dims.layout == "replicated" and name in RANKED:
            expected = "an axis sharded over ranks, or a partial sum"
            raise BankError(f"dims of {name}", " ".join(dims.names), expected, where)
        return dims.layout
    return RANKED.get(name, "replicated")


def _replicated(dumps: list[_Dump], parts: list[Column]) -> Column:
    def read(start: int, stop: int) -> Array:
        values = parts[0].read(start, stop)
        for dump, part in zip(dumps[1:], parts[1:], strict=True):
            _check_same(dumps[0], dump, values, part.read(start, stop))
        return values

    return Column(parts[0].dtype, parts[0].shape, read)


def _pieces(parts: list[Column]) -> Column:
    def read(start: int, stop: int) -> Array:
        return np.stack([part.read(start, stop) for part in parts], axis=1)

    tokens, *rest = parts[0].shape
    return Column(parts[0].dtype, (tokens, len(parts), *rest), read)
