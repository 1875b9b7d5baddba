"""``record``: what the gates of a running model see and choose, as banks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import torch

from ..errors import InputError
from .find import find_gates
from .group import Group
from .options import (
    check_layers,
    check_model,
    check_names,
    check_target_name,
    check_types,
    checked_provenance,
)
from .ready import READY
from .report import environment
from .session import Recording, Settings
from .shard import SHARD_VERSION, Layout
from .spec import GateSpec

MEMORY: Final = 256 << 20
"""Default limit, in bytes, of what waits for the writing thread."""


def record(
    model: torch.nn.Module,
    *,
    out: str | Path,
    layers: Collection[int] | None = None,
    specs: Sequence[GateSpec] = READY,
    name: str | None = None,
    path: str = "model",
    unit: str = "step",
    max_rows: int | None = None,
    memory: int = MEMORY,
    parallel: Literal["tensor", "data"] = "tensor",
    layouts: Mapping[str, Layout] | None = None,
    group: Any = None,
    merge: bool = True,
    provenance: Mapping[str, Any] | None = None,
    quiet: bool = False,
) -> Recording:
    """Record the gates of a model while the context is open; one bank a layer at its end.

    The model is only listened to: its outputs keep their bits. Keys of a row: its layer, the step
    (the call of that gate, from 0), the row within the call, and the rank (-1 where every rank
    holds it).

    Args:
        model: a torch module, compiled or not; the gates are found anywhere below it.
        out: a new or empty directory; ``out/layer3`` and so on appear there together, at the end.
        layers: layers to record; None records all.
        specs: how gates are recognised.
        name: the banks are ``NAME/layer3``; None takes the directory's name.
        path: the model's ids and weights become the path ``recorded:name=PATH``.
        unit: what is independent: ``step`` (rows of one call share their text), ``row``, ``none``,
            or a key that ``mark`` gives, such as ``doc``.
        max_rows: rows a layer at most; later ones are left out. None records all.
        memory: bytes that may wait for the writing thread; the model waits where it is full.
        parallel: ``tensor``: the ranks of the group see the same rows; ``data``: each its own.
        layouts: how a rank holds the logits (``column``: its experts) and the latent (``column``:
            its columns; ``partial``: a partial sum); both ``replicated`` unless told.
        group: a torch.distributed group; None is the default group, or this process alone; or
            (rank, ranks) of processes that torch.distributed does not join, without a merge.
        merge: False leaves a shard a rank in ``out`` (``out/rank0``, ...), for ``merge_ranks``.
        provenance: JSON values beside those that the model and the machine tell.
        quiet: leave out the line on stderr at the end.

    Raises:
        InputError: no gate, a wrong option; at a gate's first call: no mark gives the ``unit``;
            at the end: a gate without a row, a changed weight.
        RankDisagreement: at the end: a rank holds other bits; the shards stay in ``OUT.ranks``.
        RecordingError: the writing thread failed.
    """
    check_model(model, specs)
    check_layers(layers)
    check_types(
        max_rows=(max_rows, (int, type(None)), "a whole number, or None for all"),
        memory=(memory, (int,), "a whole number of bytes"),
        layouts=(layouts, (Mapping, type(None)), "a mapping from tensors to layouts"),
        merge=(merge, (bool,), "True or False"),
        quiet=(quiet, (bool,), "True or False"),
    )
    if parallel not in ("tensor", "data"):
        raise InputError("parallel", parallel, "tensor or data", "record")
    if isinstance(group, tuple) and merge:
        expected = "False where the ranks do not talk; merge_ranks joins their shards"
        raise InputError("merge", merge, expected, "record")
    if max_rows is not None and max_rows < 1:
        raise InputError("max_rows", max_rows, "at least 1", "record")
    if memory < 1:
        raise InputError("memory", memory, "at least 1 byte", "record")
    held: dict[str, Layout] = {"logits": "replicated", "latent": "replicated", **(layouts or {})}
    _check_layouts(held, parallel)
    target = check_target_name(out)
    called = target.name if name is None else name
    check_names(called, path, unit)
    told = checked_provenance(provenance)
    about = {
        "shard_version": SHARD_VERSION,
        "name": called,
        "path": path,
        "parallel": parallel,
        "layouts": held,
        "unit": unit,
        "provenance": {**environment(model), **told},
    }
    gates = find_gates(model, specs, layers)
    settings = Settings(target, about, Group(group), max_rows, memory, merge, quiet)
    return Recording(model, gates, settings)


def _check_layouts(layouts: Mapping[str, str], parallel: str) -> None:
    known = {
        "logits": ("replicated", "column"),
        "latent": ("replicated", "column", "partial"),
    }
    for tensor, layout in layouts.items():
        if tensor not in known:
            raise InputError("layouts", tensor, f"one of {', '.join(known)}", "record")
        if layout not in known[tensor]:
            expected = f"one of {', '.join(known[tensor])}"
            raise InputError(f"layouts {tensor}", layout, expected, "record")
        if parallel == "data" and layout != "replicated":
            expected = "replicated where ranks are data-parallel"
            raise InputError(f"layouts {tensor}", layout, expected, "record")
