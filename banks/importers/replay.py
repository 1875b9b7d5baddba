"""Routing-replay dumps: the ids that an inference engine selected, without inputs or weights.

The array is [tokens, layers, k] logical expert ids, a slot that nothing was selected for -1; which
files hold it is told in ``replay_files``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from ..bank import Array
from ..errors import BankError, InputError
from ..interchange import Column, Content, column, steps
from .reading import Reading
from .replay_files import Dump, dumps_of

FILL: Final = -1
_KINDS: Final = "iu"


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
        for number, dump in enumerate(dumps_of(path, reading))
    ]
    if len({dump.ids.shape[1:] for dump in dumps}) != 1:
        got = sorted({dump.ids.shape[1:] for dump in dumps})
        raise BankError("layers and k", got, "the same in each request", where)
    return _content(dumps, reading, where)


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
