"""Routing-replay dumps: the ids that an inference engine selected, without inputs or weights.

The array is [tokens, layers, k] logical expert ids, one dump a request, as the engines return it:

- vLLM (``routed_experts``, pull requests 28284 and 39568): base64 of a .npy of uint8 or uint16;
- SGLang (``srt/state_capturer/routed_experts.py`` in 0.5.23): base64 of bare int32 in
  ``meta_info``, layers being all layers of the model, so dense ones too;
- Dynamo and prime-rl: ``{"data": base64, "shape": [...], "dtype": ...}``, with ``start`` as the
  token at which it begins;
- miles and slime, whose ``Replay.record`` keeps a tensor [tokens, k] a layer and step;
  Megatron-LM's RouterReplay keeps one a layer: a list of them, saved by torch.save.

A slot that nothing was selected for is -1.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..bank import Array
from ..errors import BankError, InputError
from ..interchange import Column, Content, column, steps
from .npz import read_npy_header, read_npz
from .reading import Reading
from .torch_file import load_safely, tensor_column

FILL: Final = -1
_KINDS: Final = "iu"
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


def read_replay(path: Path, reading: Reading) -> Content:
    """Return the ids of a dump, one record a token and layer that was captured.

    Args:
        path: .npy or .npz of [tokens, layers, k], .pt of such a tensor or of one a layer, .json or
            .jsonl of responses, one a request.
        reading: ``geometry`` gives experts and k, ``layers`` which to read, ``path`` the name.

    Raises:
        BankError: another shape or dtype, or a layer that was not captured.
        InputError: no geometry.
    """
    if reading.geometry is None:
        expected = "given: a dump does not tell how many experts there are"
        raise InputError("geometry", "nothing", expected, str(path))
    where = str(path)
    dumps = [
        Dump(_checked(dump.ids, f"request {number}", reading, where), dump.start)
        for number, dump in enumerate(_dumps(path, reading))
    ]
    if len({dump.ids.shape[1:] for dump in dumps}) != 1:
        got = sorted({dump.ids.shape[1:] for dump in dumps})
        raise BankError("layers and k", got, "the same in each request", where)
    return _content(dumps, reading, where)


def _dumps(path: Path, reading: Reading) -> list[Dump]:
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
    held = [response, response.get("meta_info"), *(response.get("choices") or [])]
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
    read_npy_header(source, "routed_experts", where)
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
        whole = sizes and int(np.prod(shape, dtype=np.float64)) * values.itemsize == len(data)
    if not whole:
        expected = f"a whole number of {shape} ids of {dtype}"
        raise BankError("routed_experts.data", f"{len(data)} bytes", expected, where)
    return values.reshape(shape)


def _checked(ids: Array, what: str, reading: Reading, where: str) -> Array:
    assert reading.geometry is not None
    if ids.ndim == 4 and ids.shape[0] == 1:
        ids = ids[0]
    if ids.ndim != 3 or 0 in ids.shape or ids.dtype.kind not in _KINDS:
        got = f"{ids.dtype} {list(ids.shape)}"
        raise BankError(f"{what} ids", got, "integers [tokens, layers, k]", where)
    k = reading.geometry.top_k
    if ids.shape[2] != k:
        raise BankError(f"{what} k", ids.shape[2], f"{k}, as in the geometry", where)
    return ids


def _content(dumps: list[Dump], reading: Reading, where: str) -> Content:
    layers = _layers(dumps, reading, where)
    wanted = np.array(layers, np.int64)
    places = [_places(dump, number, wanted, where) for number, dump in enumerate(dumps)]
    rows = sum(len(tokens) for tokens, _ in places)
    if not rows:
        raise BankError("ids", "all -1", "at least one token and layer that was captured", where)
    pieces: dict[str, list[Array]] = {}
    for number, (dump, (tokens, layer)) in enumerate(zip(dumps, places, strict=True)):
        request = np.full(len(tokens), number, np.int32)
        values = {
            "layer": layer.astype(np.int32),
            "step": request,
            "row": (tokens + dump.start).astype(np.int32),
            "request": request,
        }
        for name, array in values.items():
            pieces.setdefault(name, []).append(array)
    columns = {name: column(np.concatenate(parts)) for name, parts in pieces.items()}
    columns[f"recorded.{reading.path}.ids"] = _ids(dumps, places)
    facts = {
        "replay": {
            "tokens": [len(dump.ids) for dump in dumps],
            "layers": int(dumps[0].ids.shape[1]),
            "read_layers": layers,
            "not_captured": sum(len(d.ids) for d in dumps) * len(layers) - rows,
        }
    }
    return Content(where, columns, facts=facts)


def _layers(dumps: list[Dump], reading: Reading, where: str) -> list[int]:
    count = dumps[0].ids.shape[1]
    if reading.layers is None:
        return list(range(count))
    wrong = [layer for layer in sorted(reading.layers) if layer >= count]
    if wrong:
        raise BankError("layer", wrong[0], f"0..{count - 1}", where)
    return sorted(reading.layers)


def _places(
    dump: Dump, number: int, layers: npt.NDArray[np.int64], where: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Token and layer of every record that was captured, token by token."""
    captured = np.zeros((len(dump.ids), len(layers)), np.bool_)
    zeros = np.ones(len(layers), np.bool_)
    for start, stop in steps(len(dump.ids)):
        part = dump.ids[start:stop][:, layers]
        captured[start:stop] = (part != FILL).any(axis=2)
        zeros &= (part == 0).all(axis=(0, 2))
    if dump.ids.shape[2] > 1 and zeros.any():
        # An engine's buffer is zero before it is written: a dense layer, or no capture at all.
        layer = int(layers[zeros][0])
        got = f"expert 0 in every slot of every token of request {number}"
        expected = "captured (leave a layer without experts out with --layers)"
        raise BankError(f"layer {layer}", got, expected, where)
    tokens, index = np.nonzero(captured)
    return tokens, layers[index]


def _ids(
    dumps: list[Dump], places: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]
) -> Column:
    starts = np.concatenate([[0], np.cumsum([len(tokens) for tokens, _ in places])])
    k = dumps[0].ids.shape[2]

    def read(start: int, stop: int) -> Array:
        pieces = []
        for dump, (tokens, layers), first in zip(dumps, places, starts.tolist(), strict=False):
            low, high = max(start - first, 0), min(stop - first, len(tokens))
            if low < high:
                # One type for all, as signed as -1 needs it.
                part = dump.ids[tokens[low:high], layers[low:high]].astype(np.int64)
                pieces.append(part)
        return np.concatenate(pieces)

    return Column(np.dtype(np.int64), (int(starts[-1]), k), read)
