"""From the tensors of one call to work for the writing thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import ml_dtypes
import numpy as np
import torch

from ..bank import Array
from ..errors import InputError
from .background import BackgroundWriter
from .options import ROW, check_key, check_same_keys, check_unit_marked
from .shard import ShardWriter, spans

_WIDE: Final = np.dtype(np.int64)
_BITS: Final = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
}


@dataclass(frozen=True, eq=False)
class Mark:
    """What the user told of the next calls.

    Attributes:
        rows: the rows of each call to record; None records all.
        keys: integer columns of a call's rows, or one number for all of them.
        of: rows of a call, where a mask tells them; else None.
    """

    rows: Array | None = None
    keys: Mapping[str, Array | int] = field(default_factory=dict)
    of: int | None = None

    def dtypes(self) -> dict[str, np.dtype[Any]]:
        """Return what the keys are stored as, by name."""
        return {
            name: _WIDE if isinstance(values, int) else values.dtype
            for name, values in self.keys.items()
        }


def make_mark(rows: Any, keys: Mapping[str, Any]) -> Mark:
    """Return the checked mark.

    Raises:
        InputError: rows that do not ascend, or keys that are no integers or have a taken name.
    """
    columns = {name: _key(name, values) for name, values in keys.items()}
    if rows is None:
        return Mark(None, columns)
    if isinstance(rows, torch.Tensor | np.ndarray | list | tuple) and not _size(rows):
        return Mark(np.zeros(0, np.int64), columns)
    array = _integers(rows, "rows")
    if array.dtype.kind == "b":
        return Mark(np.flatnonzero(array), columns, len(array))
    return Mark(_ascending(array), columns)


def _size(rows: torch.Tensor | Array | list[Any] | tuple[Any, ...]) -> int:
    if isinstance(rows, torch.Tensor):
        return rows.numel()
    return rows.size if isinstance(rows, np.ndarray) else len(rows)


def _ascending(array: Array) -> Array:
    whole = array.astype(np.int64)
    if (np.diff(whole) <= 0).any():
        raise InputError("rows", "numbers that do not ascend", "ascending", "mark")
    return whole


def _key(name: str, values: Any) -> Array | int:
    check_key(name)
    whole = int(values) if isinstance(values, int | np.integer) else None
    array = _integers([whole] if whole is not None else values, name)
    narrow = array.dtype.itemsize < _WIDE.itemsize and array.dtype != np.uint32
    if array.dtype == np.uint64 and (array > np.iinfo(_WIDE).max).any():
        raise InputError(name, array.max(), "a number of 64 bits with a sign", "mark")
    return whole if whole is not None else array.astype(np.int32 if narrow else _WIDE)


def _integers(values: Any, what: str) -> Array:
    if isinstance(values, torch.Tensor):
        if values.is_floating_point() or values.is_complex():
            raise InputError(what, values.dtype, "integers", "mark")
        values = values.detach().cpu().numpy()
    try:
        array = np.asarray(values).reshape(-1)
    except (ValueError, OverflowError) as error:
        raise InputError(what, error, "integers, one a row", "mark") from None
    if array.dtype.kind not in "iub":
        raise InputError(what, array.dtype, "integers", "mark")
    return array


class Stream:
    """The calls of one module, on their way to one file of the shard.

    Attributes:
        calls: how many there were.
        fewest: rows of the smallest call.
        most: rows of the largest call.
        rows: rows recorded.
        seconds: time spent here, in the thread of the calls.
    """

    def __init__(
        self,
        place: tuple[int, str, int],
        names: Sequence[str],
        writer: BackgroundWriter,
        shard: ShardWriter,
        mark: Callable[[], Mark],
        max_rows: int | None,
        unit: str = ROW,
    ) -> None:
        self.layer, self.kind, self._rank = place
        self.calls = self.fewest = self.most = self.rows = 0
        self.seconds = 0.0
        self._names, self._writer, self._shard = names, writer, shard
        self._mark, self._max_rows, self._unit = mark, max_rows, unit
        self._keys: dict[str, np.dtype[Any]] = {}

    def take(self, tensors: Sequence[torch.Tensor]) -> None:
        """Copy the wanted rows of one call and hand them over; waits where memory is full.

        Raises:
            InputError: the tensors have unlike row counts, or do not fit the mark.
            RecordingError: the writing thread failed.
        """
        started = time.perf_counter()
        count = tensors[0].shape[0]
        for name, tensor in zip(self._names, tensors, strict=True):
            if tensor.shape[0] != count:
                raise InputError(f"{name} rows", tensor.shape[0], count, f"layer {self.layer}")
        self.fewest = min(self.fewest, count) if self.calls else count
        self.most = max(self.most, count)
        mark = self._mark()
        self._check(mark, count)
        rows = mark.rows
        wanted = count if rows is None else len(rows)
        if self._max_rows is not None:
            wanted = min(wanted, max(0, self._max_rows - self.rows))
        size = sum(t.element_size() * (t.numel() // count) for t in tensors) if count else 0
        step = max(1, self._writer.limit // max(1, size))
        for start, stop in spans(wanted, step):
            self._writer.reserve(size * (stop - start))
            part = None if rows is None else rows[start:stop]
            held = [self._copy(tensor, part, start, stop) for tensor in tensors]
            work = self._work(
                held, mark, self.calls, np.arange(start, stop) if part is None else part
            )
            self._writer.put(size * (stop - start), work)
        self.calls += 1
        self.rows += wanted
        self.seconds += time.perf_counter() - started

    def _check(self, mark: Mark, count: int) -> None:
        """Refuse a mark that does not fit a call of ``count`` rows."""
        rows = mark.rows
        if not self.rows and (rows is None or len(rows)):
            check_unit_marked(self._unit, mark.keys, self.layer)
            self._keys = mark.dtypes()
        if mark.of is not None and mark.of != count:
            where = f"mark, layer {self.layer}"
            raise InputError("mask rows", mark.of, f"{count}, as in the call", where)
        if rows is not None and len(rows) and not (rows[0] >= 0 and rows[-1] < count):
            got = int(rows[-1] if rows[0] >= 0 else rows[0])
            raise InputError("mark rows", got, f"0..{count - 1}", f"layer {self.layer}")
        for name, values in mark.keys.items():
            if not isinstance(values, int) and len(values) != count:
                where = f"mark, layer {self.layer}"
                raise InputError(f"{name} rows", len(values), f"{count}, as in the call", where)
        if rows is None or len(rows):
            check_same_keys(mark.dtypes(), self._keys, self.layer)

    def _work(self, held: list[_Host], mark: Mark, step: int, rows: Array) -> Callable[[], None]:
        """What the writing thread does; the keys are made there, out of the model's way."""

        def write() -> None:
            keys: dict[str, Array] = {
                "layer": np.full(len(rows), self.layer, np.int32),
                "step": np.full(len(rows), step, np.int32),
                "row": rows.astype(np.int32),
                "rank": np.full(len(rows), self._rank, np.int32),
            }
            for name, values in mark.keys.items():
                if isinstance(values, int):
                    keys[name] = np.full(len(rows), values, np.int64)
                else:
                    keys[name] = values[rows]
            arrays = {n: host.numpy() for n, host in zip(self._names, held, strict=True)}
            self._shard.append(f"layer{self.layer}.{self.kind}", keys, arrays)
            for host in held:
                host.give_back(self._writer)

        return write

    def _copy(self, tensor: torch.Tensor, rows: Array | None, start: int, stop: int) -> _Host:
        """A copy of rows start..stop, or of the numbered ``rows``."""
        found = tensor.detach()
        if rows is not None:
            found = found.index_select(0, torch.from_numpy(rows).to(found.device))
        elif (start, stop) != (0, len(found)):
            found = found[start:stop]
        on_gpu = found.device.type == "cuda"
        host = self._writer.kept((found.dtype, found.shape, on_gpu))
        if host is None:
            host = torch.empty(found.shape, dtype=found.dtype, pin_memory=on_gpu)
        # On a GPU queued: behind what made the tensor, and before what may write over it.
        host.copy_(found, non_blocking=on_gpu)
        if not on_gpu:
            return _Host(host)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(found.device))
        return _Host(host, event)


@dataclass(frozen=True, eq=False)
class _Host:
    """A copy in host memory; on a GPU it is there once the event has happened."""

    tensor: torch.Tensor
    event: Any = None

    def numpy(self) -> Array:
        if self.event is not None:
            self.event.synchronize()
        return to_numpy(self.tensor)

    def give_back(self, writer: BackgroundWriter) -> None:
        """Let the next copy of this kind use the memory."""
        tensor = self.tensor
        kind = (tensor.dtype, tensor.shape, tensor.is_pinned())
        writer.keep(kind, tensor.element_size() * tensor.numel(), tensor)


def to_numpy(tensor: torch.Tensor) -> Array:
    """Return a host tensor's values as an array of the same memory, of any bank dtype."""
    whole = tensor.contiguous()
    if whole.dtype in _BITS:
        bits, kind = _BITS[whole.dtype]
        array: Array = whole.view(bits).numpy().view(kind)
        return array
    return whole.numpy()
