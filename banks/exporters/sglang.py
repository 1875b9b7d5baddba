"""A bank as a directory of SGLang's dumper: a file a tensor, step and rank, with its dims."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..atomic import new_directory
from ..bank import Array
from ..errors import BankError
from ..importers.directory import HEADER_NAME
from ..interchange import Column, Content, steps
from ..write import RANKED
from .torch_file import as_tensor, save
from .writing import Writing, header_text, row_columns, weight_columns

_PIECES: Final = {"partial": "t h[tp:partial]", "column": "t h[tp]"}


def write_sglang(content: Content, target: Path, writing: Writing) -> None:
    """Write the rows of each layer and step that follow one another as that step's tensors.

    Pieces per rank are written by each rank; all else by rank 0. Comparators of dumps read the
    files; our header is beside them.

    Raises:
        BankError: the directory is taken, or a step and layer comes back after another.
    """
    del writing
    with new_directory(target, "directory of dumps") as partial:
        index = 0
        for name, column in weight_columns(content).items():
            index += 1
            _save(partial, _tags(0, 0, index, name, None), column.whole(), None)
        for step, layer, start, stop in _groups(content):
            for name, column in row_columns(content).items():
                values = column.read(start, stop)
                index += 1
                if name not in RANKED:
                    dims = " ".join(["t", "e", "f", "g"][: values.ndim])
                    _save(partial, _tags(step, 0, index, name, layer), values, dims)
                    continue
                for rank in range(values.shape[1]):
                    tags = _tags(step, rank, index, name, layer)
                    _save(partial, tags, values[:, rank], _PIECES[RANKED[name]])
        (partial / HEADER_NAME).write_text(header_text(content), encoding="utf-8")


def _tags(step: int, rank: int, index: int, name: str, layer: int | None) -> dict[str, Any]:
    tags = {"step": step, "rank": rank, "dump_index": index, "name": name}
    tags["recompute_status"] = "disabled"
    return tags if layer is None else {**tags, "layer_id": layer}


def _save(directory: Path, tags: dict[str, Any], values: Array, dims: str | None) -> None:

    meta = {**tags, "world_rank": tags["rank"]} | ({} if dims is None else {"dims": dims})
    name = "___".join(f"{key}={value}" for key, value in tags.items())
    # A copy: a view would be saved with all of the memory behind it.
    tensor = as_tensor(np.ascontiguousarray(values).copy())
    save({"value": tensor, "meta": meta}, directory / f"{name}.pt")


def _groups(content: Content) -> list[tuple[int, int, int, int]]:
    """Runs of rows of one step and layer: (step, layer, start, stop)."""
    step, layer = _whole(content.columns["step"]), _whole(content.columns["layer"])
    cuts = np.flatnonzero((step[1:] != step[:-1]) | (layer[1:] != layer[:-1])) + 1
    bounds = [0, *cuts.tolist(), len(step)]
    groups = [
        (int(step[start]), int(layer[start]), start, stop)
        for start, stop in itertools.pairwise(bounds)
    ]
    seen: set[tuple[int, int]] = set()
    for one, two, start, _ in groups:
        if (one, two) in seen:
            got = f"step {one}, layer {two} again"
            raise BankError(f"row {start}", got, "rows of a step and layer together", content.where)
        seen.add((one, two))
    return groups


def _whole(column: Column) -> Array:
    return np.concatenate([column.read(*part) for part in steps(column.shape[0])])
