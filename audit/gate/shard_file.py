"""Shard results as JSON files: written whole or not at all, read back to the same counts."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..engine.contract import write_whole
from ..engine.work_directory import read_document
from ..metrics.margins import MarginTally
from ..tally import Tally, Witness
from .plan import GatePlan, Shard
from .shard import ShardResult


def shard_path(directory: Path, shard: Shard) -> Path:
    """Where a shard's result lies."""
    return directory / f"shard-{shard.number:06d}.json"


def shard_document(plan: GatePlan, shard: Shard, result: ShardResult) -> bytes:
    """Return the content of a shard's file: the same bits wherever it was run."""
    plain = _plain(result)
    document = {
        "plan": plan.digest,
        "shard": shard.number,
        "sha256": _digest(plan, shard, plain),
        "result": plain,
    }
    return json.dumps(document, allow_nan=False).encode()


def write_shard(directory: Path, plan: GatePlan, shard: Shard, result: ShardResult) -> None:
    """Write a result in one step: a killed run leaves no half file."""
    write_whole(shard_path(directory, shard), shard_document(plan, shard, result))


def read_shard(directory: Path, plan: GatePlan, shard: Shard) -> ShardResult | None:
    """Return a finished shard's result; None where there is none of this plan, whole.

    Raises:
        InputError: what lies there is no file, or cannot be read.
    """
    content = read_document(shard_path(directory, shard))
    if content is None:
        return None
    try:
        document = json.loads(content)
        if document["sha256"] != _digest(plan, shard, document["result"]):
            return None
        return _result(document["result"])
    except (ValueError, KeyError, TypeError):
        return None


def _digest(plan: GatePlan, shard: Shard, result: Any) -> str:
    """Sha256 hex of a result and of what it is a result of: an altered file is no shard."""
    text = json.dumps([plan.digest, shard.number, result])
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(result: ShardResult) -> dict[str, Any]:
    # Not asdict: it rebuilds a Counter from pairs, as keys.
    tally = dict(vars(result.tally))
    for name in ("cluster_units", "differing_units", "invalid_units"):
        tally[name] = sorted(tally[name])
    worst = result.tally.worst_weight
    tally["worst_weight"] = None if worst is None else asdict(worst)
    return {**vars(result), "tally": tally, "margins": vars(result.margins)}


def _result(values: dict[str, Any]) -> ShardResult:
    tally, margins = values["tally"], values["margins"]
    worst = tally["worst_weight"]
    return ShardResult(
        **{
            **values,
            "tally": Tally(
                **{
                    **tally,
                    "counts": Counter(tally["counts"]),
                    "weight_classes": Counter(tally["weight_classes"]),
                    "weight_ulp": _whole(tally["weight_ulp"]),
                    "worst_weight": None if worst is None else Witness(**worst),
                    "flags": {role: Counter(c) for role, c in tally["flags"].items()},
                    "breaches": {role: Counter(c) for role, c in tally["breaches"].items()},
                    "input_flags": Counter(tally["input_flags"]),
                    "cluster_units": set(tally["cluster_units"]),
                    "differing_units": set(tally["differing_units"]),
                    "invalid_units": set(tally["invalid_units"]),
                }
            ),
            "margins": MarginTally(
                **{
                    **margins,
                    "steps": _whole(margins["steps"]),
                    "exponents": Counter(margins["exponents"]),
                }
            ),
            "boundary": Counter(values["boundary"]),
            "reference": {role: Counter(c) for role, c in values["reference"].items()},
        }
    )


def _whole(values: dict[str, int]) -> Counter[int]:
    """A counter whose keys are integers again."""
    return Counter({int(key): count for key, count in values.items()})
