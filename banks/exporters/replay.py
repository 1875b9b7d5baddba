"""Recorded ids as a routing-replay dump: [tokens, layers, k], -1 where the bank has none.

A dump has no place for inputs, weights of experts, or keys but the layer and the token's order.
"""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..atomic import new_file
from ..errors import BankError, InputError
from ..importers.replay import FILL
from ..interchange import Content, steps
from .writing import Writing


def write_replay(content: Content, target: Path, writing: Writing) -> None:
    """Write the ids of one path: .npy of one request, or .jsonl with a response for each step.

    A line of the latter is as vLLM returns it: ``{"choices": [{"index": 0, "routed_experts":
    base64 of a .npy}]}``; of a step whose rows do not begin at 0, the object with ``start`` that
    Dynamo and prime-rl use.

    Raises:
        BankError: no recorded ids, rows that are not in order (step, row, layer), several steps for
            an .npy, or another suffix.
        InputError: outputs of no such name, or of several to choose from.
    """
    name = _path(content, writing)
    if target.suffix not in (".npy", ".jsonl"):
        raise BankError("file", target.suffix or "no suffix", ".npy or .jsonl", str(target))
    requests = _requests(content)
    layers = _layers(content, writing)
    if target.suffix == ".npy" and len(requests) != 1:
        expected = "1 in an .npy file: write .jsonl, a line for each"
        raise BankError("requests", len(requests), expected, str(target))
    with new_file(target, "dump of ids") as partial:
        if target.suffix == ".npy":
            (rows,) = requests
            shape = (_tokens(content, rows), layers, content.columns[name].shape[1])
            ids = np.lib.format.open_memmap(partial, "w+", np.int32, shape)
            _fill(content, name, rows, ids)
            ids.flush()
            return
        with partial.open("w", encoding="utf-8") as file:
            for rows in requests:
                start = _first_token(content, rows)
                shape = (_tokens(content, rows) - start, layers, content.columns[name].shape[1])
                held = np.empty(shape, np.int32)
                _fill(content, name, rows, held, start)
                file.write(json.dumps(_response(held, start)) + "\n")


def _response(ids: npt.NDArray[np.int32], start: int) -> dict[str, Any]:
    if start:
        text = base64.b64encode(ids.tobytes()).decode("ascii")
        envelope = {"data": text, "shape": list(ids.shape), "dtype": "int32", "start": start}
        return {"choices": [{"index": 0, "routed_experts": envelope}]}
    data = io.BytesIO()
    np.save(data, ids, allow_pickle=False)
    text = base64.b64encode(data.getvalue()).decode("ascii")
    return {"choices": [{"index": 0, "routed_experts": text}]}


def _path(content: Content, writing: Writing) -> str:
    header = dict(content.header or {})
    paths = list(header.get("recorded", {}))
    if not paths:
        raise BankError("recorded", "nothing", "outputs of a path", content.where)
    if writing.path is None and len(paths) > 1:
        raise InputError("path", "nothing", f"one of {', '.join(paths)}", content.where)
    if writing.path is not None and writing.path not in paths:
        raise InputError("path", writing.path, f"one of {', '.join(paths)}", content.where)
    return f"recorded.{writing.path or paths[0]}.ids"


def _layers(content: Content, writing: Writing) -> int:
    rows = content.columns["layer"].shape[0]
    layer = content.columns["layer"]
    highest = max(int(layer.read(start, stop).max()) for start, stop in steps(rows))
    lowest = min(int(layer.read(start, stop).min()) for start, stop in steps(rows))
    replay = dict(dict(content.header or {}).get("provenance", {})).get("replay")
    known = replay.get("layers") if isinstance(replay, dict) else None
    count = writing.model_layers or (known if isinstance(known, int) else None) or highest + 1
    if lowest < 0 or highest >= count:
        raise BankError("layer", lowest if lowest < 0 else highest, f"0..{count - 1}",
                        content.where)  # fmt: skip
    return count


def _requests(content: Content) -> list[tuple[int, int]]:
    """Rows start..stop of each step, of which the order is (step, row, layer)."""
    names = ("step", "row", "layer")
    rows = content.columns["step"].shape[0]
    bounds = [0]
    last: npt.NDArray[np.int64] | None = None
    for start, stop in steps(rows):
        part = np.stack([content.columns[n].read(start, stop).astype(np.int64) for n in names], 1)
        joined = part if last is None else np.concatenate([last, part])
        first = start - (last is not None)
        moved = joined[1:] - joined[:-1]
        lead = np.argmax(moved != 0, axis=1)
        ahead = moved[np.arange(len(moved)), lead] > 0
        if not ahead.all():
            row = first + 1 + int(np.argmin(ahead))
            raise BankError(f"row {row}", "not after the one before by step, row and layer",
                            "in this order, each once", content.where)  # fmt: skip
        bounds += (np.flatnonzero(moved[:, 0]) + first + 1).tolist()
        last = part[-1:]
    return list(zip(bounds, [*bounds[1:], rows], strict=True))


def _tokens(content: Content, rows: tuple[int, int]) -> int:
    row = content.columns["row"]
    highest = max(int(row.read(*part).max()) for part in _parts(rows))
    # Tokens that no layer captured at a request's end are known to the import alone.
    replay = dict(dict(content.header or {}).get("provenance", {})).get("replay")
    step = int(content.columns["step"].read(rows[0], rows[0] + 1)[0])
    tokens = replay.get("tokens") if isinstance(replay, dict) else None
    known = tokens[step] if isinstance(tokens, list) and 0 <= step < len(tokens) else 0
    return max(highest + 1, int(known))


def _parts(rows: tuple[int, int]) -> list[tuple[int, int]]:
    start, stop = rows
    return [(start + low, start + high) for low, high in steps(stop - start)]


def _first_token(content: Content, rows: tuple[int, int]) -> int:
    # The rows of a step are in order.
    return int(content.columns["row"].read(rows[0], rows[0] + 1)[0])


def _fill(
    content: Content,
    name: str,
    rows: tuple[int, int],
    ids: npt.NDArray[np.int32],
    first: int = 0,
) -> None:
    ids[:] = FILL
    for start, stop in _parts(rows):
        token = content.columns["row"].read(start, stop) - first
        layer = content.columns["layer"].read(start, stop)
        ids[token, layer] = content.columns[name].read(start, stop)
