"""Cut a block of bank rows into launches and run a path on them with poisoned outputs."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..banks.bank import Bank, RowBlock
from ..banks.errors import EnvelopeError, InputError, printable
from ..kernels import contract
from ..kernels.contract import (
    BFLOAT16,
    FrontWeights,
    Launch,
    Recorded,
    Routed,
    why_unavailable,
)
from .metrics.findings import bits

_MOST_WORDS: Final = 500


@dataclass(frozen=True, slots=True)
class Poison:
    """Bit patterns that no path writes: an id far below zero and NaNs with a payload."""

    ids: int
    float32_bits: int
    bfloat16_bits: int


# Two patterns: an element that holds one of them after the first run and the other after the
# second was written by neither.
POISONS = (
    Poison(-0x5A5A5A5B, 0x7FA5A5A5, 0x7FA5),
    Poison(-0x4B4B4B4C, 0x7FB4B4B4, 0x7FB4),
)


class PathError(RuntimeError):
    """A path raised while it ran: nothing can be said of its rows, for or against it."""


def front_weights(bank: Bank) -> FrontWeights:
    """Return the bank's weights in the form that a launch carries."""
    named = {name: read_only(tensor) for name, tensor in bank.weights.items()}
    router = named.pop("router_weight", None)
    latent = named.pop("latent_down_weight", None)
    bias = named.pop("correction_bias", None)
    if bias is None:
        bias = np.zeros(bank.geometry.experts, np.float32)
    return FrontWeights(router=router, bias=bias, latent=latent, extra=named)


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a view that a path cannot write to: both paths must see the same inputs."""
    view = array.view()
    view.flags.writeable = False
    return view


def make_launch(
    bank: Bank, weights: FrontWeights, block: RowBlock, width: int, ranks: int
) -> Launch:
    """Return the block's rows as full launches of ``width`` rows.

    The last launch is filled up with the block's first rows, so that every launch has the true
    width; the caller drops what lies past ``block.rows``.
    """
    launches = -(-block.rows // width)
    index = np.arange(launches * width, dtype=np.int64) % block.rows

    def rows(array: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
        return None if array is None else read_only(array[index])

    def ranked(array: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
        return None if array is None else read_only(array[:, index])

    recorded = {
        name: Recorded(read_only(ids[index]), rows(values), bank.recorded_widths.get(name))
        for name, (ids, values) in block.recorded.items()
    }
    return Launch(
        geometry=bank.geometry,
        scoring=bank.scoring,
        ranks=ranks,
        width=width,
        weights=weights,
        row_index=index + block.start,
        hidden=rows(block.hidden),
        latent_partials=ranked(block.latent_partials),
        latent_shards=ranked(block.latent_shards),
        logits_shards=ranked(block.logits_shards),
        logits=rows(block.logits),
        recorded=recorded,
    )


def run_path(path: contract.Path, launch: Launch, poison: Poison = POISONS[0]) -> Routed:
    """Run a path on freshly poisoned outputs; one call per launch unless it batches them.

    Raises:
        PathError: the path raised; it is told with its place in the path's code.
        PathsLost: nothing more can be computed.
    """
    out = poisoned_outputs(path, launch, poison)
    step = launch.rows if path.batches_launches else launch.width
    for first in range(0, launch.rows, step):
        part = slice(first, first + step)
        try:
            path.run(_rows_of_launch(launch, part), _rows_of_outputs(out, part))
        except contract.PathsLost:
            raise
        # Whatever third-party code raises is "could not compute", never a difference.
        except (Exception, SystemExit) as error:
            raise PathError(f"{path.name} raised {told(error)}") from error
    return out


def refusal(paths: Iterable[contract.Path], launch: Launch) -> str:
    """Return why the first of the paths that refuses a launch does not run it; empty if none does.

    Raises:
        InputError: a path was asked for what is no input of its, or does not say whether it runs.
    """
    for path in paths:
        try:
            reason = why_unavailable(path)
            if reason is not None:
                return f"{path.name}: {printable(reason)}"
            path.check(launch)
        except EnvelopeError as error:
            return f"{path.name}: {error}"
        # A third party's check that breaks is a reason not to run, not a traceback.
        except (Exception, SystemExit) as error:
            if isinstance(error, InputError):
                raise
            return f"{path.name} raised {told(error)}"
    return ""


def told(error: BaseException) -> str:
    """Return an exception with the place that raised it, in one line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    # Its words are somebody else's: no new line, no escape and no flood reaches a terminal.
    words = printable(str(error))
    words = words if len(words) <= _MOST_WORDS else f"{words[:_MOST_WORDS]}..."
    return f"{type(error).__name__}: {words} ({Path(frame.filename).name}:{frame.lineno})"


def poisoned_outputs(path: contract.Path, launch: Launch, poison: Poison) -> Routed:
    """Allocate every output that the path has for this launch, filled with poison."""
    geometry, shape = launch.geometry, (launch.ranks, launch.rows)
    latent: npt.NDArray[Any] | None = None
    logits: npt.NDArray[Any] | None = None
    pieces = (launch.latent_partials, launch.latent_shards)
    has_latent = launch.hidden is not None and launch.weights.latent is not None
    if "latent" in path.outputs and (has_latent or any(p is not None for p in pieces)):
        bits16 = np.full((*shape, geometry.latent), poison.bfloat16_bits, np.uint16)
        latent = bits16.view(BFLOAT16)
    if "logits" in path.outputs and launch.logits is None:
        bits = np.full((*shape, geometry.experts), poison.float32_bits, np.uint32)
        logits = bits.view(np.float32)
    return Routed(
        ids=np.full((*shape, geometry.top_k), poison.ids, np.int32),
        weights=np.full((*shape, geometry.top_k), poison.float32_bits, np.uint32).view(np.float32),
        latent=latent,
        logits=logits,
    )


def first_rows(out: Routed, rows: int) -> Routed:
    """Drop the rows that filled up the last launch."""
    return _rows_of_outputs(out, slice(0, rows))


def same_bits(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    """Whether two arrays hold the same bits; NaN equals the same NaN, -0 differs from +0."""
    return a.shape == b.shape and np.array_equal(bits(a), bits(b))


def poisoned_rows(array: npt.NDArray[Any], run: int) -> npt.NDArray[np.bool_]:
    """Return the rows [row] where any rank holds an element of that run's poison."""
    poison = POISONS[run]
    patterns: dict[str, int] = {"u4": poison.float32_bits, "u2": poison.bfloat16_bits}
    if array.dtype == np.int32:
        return np.asarray((array == poison.ids).any(axis=(0, 2)))
    view = bits(array)
    return np.asarray((view == patterns[view.dtype.str[1:]]).any(axis=(0, 2)))


def tensors(out: Routed) -> Sequence[tuple[str, npt.NDArray[Any]]]:
    """Return the outputs that exist, by name."""
    named = (("latent", out.latent), ("logits", out.logits), ("ids", out.ids))
    present = [(name, array) for name, array in named if array is not None]
    return [*present, ("weights", out.weights)]


def alternating(launch: Launch) -> list[Launch]:
    """Return the first launch of several, and one of other inputs: the second, or rows reversed.

    One row alone has nothing else to offer: it is returned by itself.
    """
    first = _rows_of_launch(launch, slice(0, launch.width))
    if launch.rows > launch.width:
        return [first, _rows_of_launch(launch, slice(launch.width, 2 * launch.width))]
    if launch.width > 1:
        return [first, _rows_of_launch(launch, slice(None, None, -1))]
    return [first]


def _rows_of_launch(launch: Launch, part: slice) -> Launch:
    def rows(array: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
        return None if array is None else array[part]

    def ranked(array: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
        return None if array is None else array[:, part]

    recorded = {
        name: Recorded(r.ids[part], rows(r.weights), r.width) for name, r in launch.recorded.items()
    }
    return replace(
        launch,
        row_index=launch.row_index[part],
        hidden=rows(launch.hidden),
        latent_partials=ranked(launch.latent_partials),
        latent_shards=ranked(launch.latent_shards),
        logits_shards=ranked(launch.logits_shards),
        logits=rows(launch.logits),
        recorded=recorded,
    )


def _rows_of_outputs(out: Routed, part: slice) -> Routed:
    return Routed(
        ids=out.ids[:, part],
        weights=out.weights[:, part],
        latent=None if out.latent is None else out.latent[:, part],
        logits=None if out.logits is None else out.logits[:, part],
    )
