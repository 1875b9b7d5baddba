"""A bank as a dataset of flashinfer-bench: a definition of its router, and a workload a launch."""

from __future__ import annotations

import itertools
import json
import uuid
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..atomic import new_directory
from ..importers.directory import HEADER_NAME
from ..interchange import Column, Content, steps
from ..schema import DTYPES, WEIGHTS
from .safetensors import write_columns
from .writing import Writing, check_stage, header_text, row_columns, weight_columns

OP_TYPE: Final = "moe_router"
_NAMESPACE: Final = uuid.UUID("6f0f2a52-5f3c-4d7e-9a54-4a0f1c5a2d10")
_REFERENCE: Final = """\
import torch


@torch.no_grad()
def run({arguments}):
    logits = {logits}
    scores = {scores}
    keys = scores + correction_bias
{groups}    # Equal keys: the lower id first, as a stable sort has it.
    ids = torch.sort(keys, dim=1, descending=True, stable=True).indices[:, :{top_k}]
    weights = scores.gather(1, ids)
{renormalize}    return ids.to(torch.int32), weights * {scale!r}
"""
_GROUPS: Final = """\
    best = keys.view(len(keys), {groups}, -1).topk(2, dim=2).values.sum(dim=2)
    kept = torch.sort(best, dim=1, descending=True, stable=True).indices[:, :{top_groups}]
    outside = torch.ones_like(best, dtype=torch.bool).scatter_(1, kept, False)
    keys = keys.masked_fill(outside.repeat_interleave({experts} // {groups}, dim=1), -torch.inf)
"""
_SCORES: Final = {
    "sigmoid": "torch.sigmoid(logits)",
    "softmax": "torch.softmax(logits, dim=1)",
    "sqrtsoftplus": "torch.nn.functional.softplus(logits).sqrt()",
    "identity": "logits",
}


def write_flashinfer_bench(content: Content, target: Path, writing: Writing) -> None:
    """Write definition, workloads and their tensors; rows of a step that follow are a workload.

    The definition's reference is the bank's rule in torch, in FP32. Keys and recorded outputs lie
    in the same files as the inputs; flashinfer-bench does not read them.

    Raises:
        BankError: a stage of pieces per rank or without inputs, or the directory is taken.
    """
    del writing
    header = check_stage(content, ("hidden", "logits"), "flashinfer-bench")
    definition = _definition(header, content)
    name = definition["name"]
    with new_directory(target, "dataset of flashinfer-bench") as partial:
        blobs = Path("blob") / "workloads" / OP_TYPE / name
        for folder in (Path("definitions") / OP_TYPE, Path("workloads") / OP_TYPE, blobs):
            (partial / folder).mkdir(parents=True)
        file = partial / "definitions" / OP_TYPE / f"{name}.json"
        file.write_text(json.dumps(definition, indent=2) + "\n", encoding="utf-8")
        shared = blobs / f"{name}_weights.safetensors"
        with (partial / shared).open("wb") as sink:
            write_columns(sink, weight_columns(content), {})
        lines = partial / "workloads" / OP_TYPE / f"{name}.jsonl"
        with lines.open("w", encoding="utf-8") as sink_of_lines:
            for start, stop in _launches(content):
                identity = str(uuid.uuid5(_NAMESPACE, f"{header_text(content)} {start}"))
                blob = blobs / f"{name}_{identity}.safetensors"
                with (partial / blob).open("wb") as sink:
                    write_columns(sink, _part(row_columns(content), start, stop), {})
                line = _workload(definition, stop - start, identity, str(shared), str(blob))
                sink_of_lines.write(json.dumps(line) + "\n")
        (partial / HEADER_NAME).write_text(header_text(content), encoding="utf-8")


def _definition(header: dict[str, Any], content: Content) -> dict[str, Any]:
    geometry, rule, stage = header["geometry"], header["scoring"], header["stage"]
    axes: dict[str, Any] = {"rows": {"type": "var", "description": "tokens of a launch"}}
    sizes = ["experts", "top_k"] + (["hidden"] if stage == "hidden" else [])
    axes |= {size: {"type": "const", "value": geometry[size]} for size in sizes}
    shapes = {"hidden": ["rows", "hidden"], "router_weight": ["experts", "hidden"]}
    shapes = shapes if stage == "hidden" else {"logits": ["rows", "experts"]}
    shapes["correction_bias"] = ["experts"]
    inputs = {
        name: {"shape": shape, "dtype": _dtype(content.columns[name])}
        for name, shape in shapes.items()
    }
    grouped = geometry["groups"] > 1
    reference = _REFERENCE.format(
        arguments=", ".join(shapes),
        logits="hidden.float() @ router_weight.float().T" if stage == "hidden" else "logits",
        scores=_SCORES[rule["function"]],
        groups=_GROUPS.format(**geometry) if grouped else "",
        top_k=geometry["top_k"],
        renormalize=f"    weights = weights / (weights.sum(dim=1, keepdim=True) + "
        f"{rule['epsilon']!r})\n"
        if rule["renormalize"]
        else "",
        scale=rule["scale"],
    )
    return {
        "name": f"router_{stage}_e{geometry['experts']}_k{geometry['top_k']}",
        "op_type": OP_TYPE,
        "description": f"Router of {header['name']}: {stage} to expert ids and weights.",
        "axes": axes,
        "inputs": inputs,
        "outputs": {
            "ids": {"shape": ["rows", "top_k"], "dtype": "int32"},
            "weights": {"shape": ["rows", "top_k"], "dtype": "float32"},
        },
        "reference": reference,
    }


def _dtype(column: Column) -> str:
    return next(name for name, dtype in DTYPES.items() if dtype == column.dtype)


def _launches(content: Content) -> list[tuple[int, int]]:
    """Runs of rows of one step and layer."""
    names = ("step", "layer")
    rows = content.columns["step"].shape[0]
    keys = [
        np.concatenate([content.columns[name].read(*part) for part in steps(rows)])
        for name in names
    ]
    changed = np.zeros(rows - 1, np.bool_)
    for key in keys:
        changed |= key[1:] != key[:-1]
    bounds = [0, *(np.flatnonzero(changed) + 1).tolist(), rows]
    return list(itertools.pairwise(bounds))


def _part(columns: dict[str, Column], start: int, stop: int) -> dict[str, Column]:
    def part(column: Column) -> Column:
        shape = (stop - start, *column.shape[1:])
        return Column(column.dtype, shape, lambda a, b: column.read(start + a, start + b))

    return {name: part(column) for name, column in columns.items()}


def _workload(
    definition: dict[str, Any], rows: int, identity: str, shared: str, blob: str
) -> dict[str, Any]:
    inputs = {
        name: {
            "type": "safetensors",
            "path": shared if name in WEIGHTS else blob,
            "tensor_key": name,
        }
        for name in definition["inputs"]
    }
    workload = {"axes": {"rows": rows}, "inputs": inputs, "uuid": identity}
    return {"definition": definition["name"], "workload": workload, "solution": None,
            "evaluation": None}  # fmt: skip
