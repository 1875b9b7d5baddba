"""Files of routing-replay dumps, and the ids that they hold.

- vLLM (``routed_experts``, pull requests 28284 and 39568): base64 of a .npy of uint8 or uint16;
- SGLang (``srt/state_capturer/routed_experts.py`` in 0.5.23): base64 of bare int32 in
  ``meta_info``, layers being all layers of the model, so dense ones too;
- Dynamo and prime-rl: ``{"data": base64, "shape": [...], "dtype": ...}``, with ``start`` as the
  token at which it begins;
- miles and slime, whose ``Replay.record`` keeps a tensor [tokens, k] a layer and step;
  Megatron-LM's RouterReplay keeps one a layer: a list of them, saved by torch.save.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..bank import Array
from ..errors import BankError, InputError
from .npz import read_npy_header, read_npz
from .reading import Reading
from .torch_file import load_safely, tensor_column

_BARE: Final = ("uint8", "uint16", "int16", "int32", "int64")


@dataclass(frozen=True)
class Dump:
    """One request's ids.

    Attributes:
        ids: [token, layer, slot], any integers; -1 where nothing was selected.
        start: position of the first token in its sequence.
    """

    ids: Array
    start: int = 0


def dumps_of(path: Path, reading: Reading) -> list[Dump]:
    """Return the dumps of a file, one a request; shapes and ids are not checked.

    Raises:
        BankError: not a whole file of its suffix, or no ids in it.
        InputError: ids without a shape of their own, and no number of layers.
    """
    where = str(path)
    suffix = path.suffix
    if suffix == ".npy":
        return [Dump(_mapped(path))]
    if suffix == ".npz":
        columns = read_npz(path, reading).columns
        if len(columns) != 1:
            raise BankError("arrays", len(columns), "one, [tokens, layers, k]", where)
        return [Dump(next(iter(columns.values())).whole())]
    if suffix in (".pt", ".pth"):
        return [Dump(_torch_ids(load_safely(path), where))]
    if suffix in (".json", ".jsonl"):
        dumps = [dump for response in _responses(path) for dump in _of_response(response, reading,
                 where)]  # fmt: skip
        if not dumps:
            raise BankError("routed_experts", "nothing", "present in a response", where)
        return dumps
    raise BankError("file", suffix or "no suffix", ".npy, .npz, .pt, .json or .jsonl", where)


def _mapped(path: Path) -> Array:
    where = str(path)
    try:
        with path.open("rb") as file:
            read_npy_header(file, "array", where)
        mapped: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        if isinstance(error, BankError):
            raise
        raise BankError("file", error, "a whole .npy file", where) from None
    return mapped


def _torch_ids(held: Any, where: str) -> Array:
    import torch

    if isinstance(held, Mapping) and len(held) == 1:
        held = next(iter(held.values()))
    if isinstance(held, list | tuple) and held:
        layers = [_of_layer(item, f"layer {layer}", where) for layer, item in enumerate(held)]
        if len({layer.shape for layer in layers}) != 1:
            raise BankError("layers", [list(layer.shape) for layer in layers],
                            "of one shape [tokens, k]", where)  # fmt: skip
        return np.stack(layers, axis=1)
    if isinstance(held, torch.Tensor):
        return tensor_column(held, "tensor", where).whole()
    expected = "a tensor [tokens, layers, k], or a list of one [tokens, k] a layer"
    raise BankError("file", type(held).__name__, expected, where)


def _of_layer(item: Any, what: str, where: str) -> Array:
    """A layer's ids [token, slot]: a tensor, or one a step, in their order."""
    import torch

    parts = list(item) if isinstance(item, list | tuple) else [item]
    arrays = []
    for part in parts:
        if not isinstance(part, torch.Tensor) or part.ndim != 2:
            got = list(part.shape) if isinstance(part, torch.Tensor) else type(part).__name__
            raise BankError(what, got, "a tensor [tokens, k]", where)
        arrays.append(tensor_column(part, what, where).whole())
    if not arrays or len({array.shape[1:] for array in arrays}) != 1:
        raise BankError(what, f"{len(arrays)} tensors", "at least one, of one k", where)
    return np.concatenate(arrays)


def _responses(path: Path) -> Iterator[Any]:
    where = str(path)
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            loaded = json.loads(text)
            yield from loaded if isinstance(loaded, list) else [loaded]
            return
        for line in text.splitlines():
            if line.strip():
                yield json.loads(line)
    except (OSError, ValueError, RecursionError) as error:
        raise BankError("file", error, "JSON, or one JSON object a line", where) from None


def _of_response(response: Any, reading: Reading, where: str) -> Iterator[Dump]:
    """The dumps of a response: one of SGLang, or one for each of vLLM's choices."""
    if not isinstance(response, dict):
        raise BankError("response", type(response).__name__, "a JSON object", where)
    choices = response.get("choices")
    held = [response, response.get("meta_info"), *(choices if isinstance(choices, list) else [])]
    for place in held:
        if isinstance(place, dict) and place.get("routed_experts") is not None:
            yield _decoded(place["routed_experts"], reading, where)


def _decoded(value: Any, reading: Reading, where: str) -> Dump:
    what = "routed_experts"
    if isinstance(value, list):
        try:
            return Dump(np.asarray(value))
        except ValueError:
            raise BankError(
                what, "lists of several lengths", "[tokens][layers][k]", where
            ) from None
    fields = value if isinstance(value, dict) else {"data": value}
    text = fields.get("data")
    if not isinstance(text, str):
        raise BankError(f"{what}.data", type(text).__name__, "base64 text", where)
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BankError(f"{what}.data", error, "base64 text", where) from None
    start = fields.get("start", 0)
    if type(start) is not int or start < 0:
        raise BankError(f"{what}.start", start, "a whole number", where)
    if data.startswith(b"\x93NUMPY"):
        return Dump(_npy(data, where), start)
    return Dump(_bare(data, fields, reading, where), start)


def _npy(data: bytes, where: str) -> Array:
    source = io.BytesIO(data)
    shape, _, dtype = read_npy_header(source, "routed_experts", where)
    size = source.tell() + math.prod(shape) * dtype.itemsize
    # Before memory is taken for what the header claims.
    if size != len(data):
        raise BankError("routed_experts bytes", len(data), size, where)
    source.seek(0)
    try:
        values: Array = np.load(source, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise BankError("routed_experts", error, "a whole .npy array", where) from None
    return values


def _bare(data: bytes, fields: Mapping[str, Any], reading: Reading, where: str) -> Array:
    """Bytes without a shape of their own: the fields give it, or layers and k."""
    dtype = fields.get("dtype", "int32")
    if dtype not in _BARE:
        raise BankError("routed_experts.dtype", dtype, f"one of {', '.join(_BARE)}", where)
    size = np.dtype(dtype).itemsize
    values = np.frombuffer(data[: len(data) // size * size], dtype)
    shape = fields.get("shape")
    if shape is None:
        assert reading.geometry is not None
        if reading.model_layers is None:
            expected = "given (--model-layers): bare ids do not tell how many layers there are"
            raise InputError("layers of the model", "nothing", expected, where)
        shape = [-1, reading.model_layers, reading.geometry.top_k]
        whole = len(data) == values.nbytes and values.size % (shape[1] * shape[2]) == 0
    else:
        sizes = isinstance(shape, list) and all(type(s) is int and s > 0 for s in shape)
        whole = sizes and math.prod(shape) * values.itemsize == len(data)
    if not whole:
        expected = f"a whole number of {shape} ids of {dtype}"
        raise BankError("routed_experts.data", f"{len(data)} bytes", expected, where)
    return values.reshape(shape)
