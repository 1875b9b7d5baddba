"""One of two gloo ranks that record together: ``record_ranks.py RANK PLACE``; prints JSON."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from toy_moe import SPEC, ToyModel, toy_input

import neartie
from neartie.banks.errors import InputError
from neartie.banks.recording.agree import RankDisagreement
from neartie.banks.recording.background import RecordingError


def _agree(out: Path, rank: int) -> Any:
    model = ToyModel()
    with neartie.record(model, out=out, specs=[SPEC], quiet=True) as recording:
        outputs = [model(toy_input(seed)) for seed in range(2)]
        # What a tensor-parallel model does: every rank ends with the same sum.
        total = outputs[0].float().sum()
        dist.all_reduce(total)
    assert recording.report is not None
    return {
        "digests": dict(recording.report.digests),
        "left": out.with_name("agree.ranks").exists(),
    }


def _disagree(out: Path, rank: int) -> Any:
    model = ToyModel()
    if rank == 1:
        model.moe(3).gate.register_forward_hook(_nudge())
    try:
        with neartie.record(model, out=out, specs=[SPEC], quiet=True):
            model(toy_input(0))
            model(toy_input(1))
    except RankDisagreement as error:
        found = [str(one) for one in error.found]
        told = {"error": str(error), "found": found, "notes": error.__notes__}
        try:
            with neartie.record(model, out=out, specs=[SPEC], quiet=True):
                pass
        except InputError as again:
            return {**told, "again": str(again)}
    return {}


def _nudge() -> Callable[..., None]:
    """A hook that moves one weight of the second call by one step."""
    calls = itertools.count()

    def hook(module: Any, args: Any, output: Any) -> None:
        if next(calls) == 1:
            weights = output[1]
            weights[6, 0] = torch.nextafter(weights[6, 0], weights.new_zeros(()))

    return hook


def _own_rows(out: Path, rank: int) -> Any:
    model = ToyModel()
    with neartie.record(model, out=out, specs=[SPEC], parallel="data", quiet=True) as recording:
        model(toy_input(10 + rank, sequence=2 + rank))
    assert recording.report is not None
    return {"rows": list(recording.report.rows.values())}


def _one_fails(out: Path, rank: int) -> Any:
    model = ToyModel()
    try:
        with neartie.record(model, out=out, specs=[SPEC], quiet=True):
            model(toy_input(0))
            if rank == 1:
                with torch.no_grad():
                    model.moe(1).gate.bias[0] += 1
    except InputError as error:
        return {"error": str(error)}
    return {}


def _one_leaves(out: Path, rank: int) -> Any:
    """The last work: the ranks do not talk any more after it."""
    model = ToyModel()
    try:
        with neartie.record(model, out=out, specs=[SPEC], quiet=True):
            model(toy_input(0))
            if rank == 1:
                raise TimeoutError("out of patience")
    except (TimeoutError, RecordingError) as error:
        if rank == 1:
            dist.destroy_process_group()
        return {"type": type(error).__name__, "error": str(error)}
    return {}


def main(rank: int, place: Path) -> None:
    dist.init_process_group("gloo", f"file://{place / 'meet'}", rank=rank, world_size=2)
    works: dict[str, Callable[[Path, int], Any]] = {
        "agree": _agree,
        "disagree": _disagree,
        "own_rows": _own_rows,
        "one_fails": _one_fails,
        "one_leaves": _one_leaves,
    }
    with torch.no_grad():
        told = {name: work(place / name, rank) for name, work in works.items()}
    print(json.dumps(told))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
