"""Workloads and traces of flashinfer-bench as named arrays.

A dataset (``data/trace_set.py`` of flashinfer-bench 0.1.2) is a directory of
definitions/OP/NAME.json, workloads/OP/NAME.jsonl, traces/OP/NAME.jsonl and
blob/workloads/OP/NAME/NAME_UUID.safetensors. A line is ``{"definition", "workload": {"axes",
"inputs", "uuid"}, "solution", "evaluation"}``; an input is ``random``, a ``scalar``, or a tensor of
a safetensors file whose path is relative to the dataset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..bank import Array
from ..errors import BankError, InputError
from ..interchange import Column, Content, column, stacked
from ..schema import WEIGHTS
from .directory import HEADER_NAME, check_regular
from .header import parse_exported
from .reading import TENSOR_NAMES, Reading
from .safetensors import read_safetensors

_FOLDERS: Final = ("workloads", "traces")


@dataclass(frozen=True)
class _Workload:
    """One launch: its inputs by name, and the line that it is of."""

    uuid: str
    inputs: Mapping[str, Any]
    where: str


def read_flashinfer_bench(path: Path, reading: Reading) -> Content:
    """Return the router inputs of a definition's workloads; each is a step, in their order.

    Args:
        path: a dataset with workloads of one definition, or one .jsonl file of it.
        reading: ``workloads`` picks some by uuid; ``names`` tells what the inputs are called.

    Raises:
        BankError: no such dataset, inputs that are random and were not recorded, weights that
            differ between workloads, or a path outside the dataset.
    """
    file, root = _file(path)
    workloads = _workloads(file, reading)
    header = None
    if (root / HEADER_NAME).is_file():
        text = (root / HEADER_NAME).read_text(encoding="utf-8", errors="replace")
        header = parse_exported(text, str(root / HEADER_NAME))
    blobs = _Blobs(root)
    names = _wanted(workloads[0], reading)
    if not any(name not in WEIGHTS for name in names):
        expected = f"one of {', '.join(workloads[0].inputs)} (name it with --tensor logits=INPUT)"
        raise BankError("inputs of a router", "none known", expected, workloads[0].where)
    rows: dict[str, list[Column]] = {}
    columns: dict[str, Column] = {}
    shared: dict[str, Any] = {}
    for workload in workloads:
        for name, theirs in names.items():
            found = blobs.tensor(workload, theirs)
            if name not in WEIGHTS:
                rows.setdefault(name, []).append(found)
            elif name not in columns:
                columns[name] = column(found.whole())
                shared[name] = workload.inputs[theirs]
            # Workloads that name one tensor of one file share it.
            elif workload.inputs[theirs] != shared[name]:
                _check_same(name, columns[name].whole(), found, workload)
        if header is not None:
            for name, found in blobs.beside(workload, names).items():
                if name not in WEIGHTS:
                    rows.setdefault(name, []).append(found)
                elif name not in columns:
                    columns[name] = column(found.whole())
    columns |= {name: stacked(parts) for name, parts in _of_all(rows, workloads).items()}
    if header is None:
        columns |= _keys([part.shape[0] for part in next(iter(rows.values()))])
    return Content(str(file), columns, header, _facts(file, workloads), labels=names)


def _file(path: Path) -> tuple[Path, Path]:
    """The .jsonl file, and the dataset's directory."""
    where = str(path)
    if path.is_dir():
        found = [p for folder in _FOLDERS for p in sorted((path / folder).rglob("*.jsonl"))]
        if len({p.stem for p in found}) != 1:
            got = ", ".join(str(p.relative_to(path)) for p in found) or "no .jsonl"
            expected = "workloads of one definition (name the .jsonl file of one)"
            raise BankError("workloads", got, expected, where)
        check_regular(found[0])
        return found[0], path
    if not path.is_file():
        raise BankError("file", "nothing", "a dataset, or a .jsonl file of it", where)
    for parent in path.resolve().parents:
        if parent.name in _FOLDERS:
            return path, parent.parent
    raise BankError("file", path.name, f"below {' or '.join(_FOLDERS)} of a dataset", where)


def _workloads(file: Path, reading: Reading) -> list[_Workload]:
    where = str(file)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BankError("file", error, "a readable .jsonl file", where) from None
    found: dict[str, _Workload] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip():
            workload = _parsed(line, f"{where}, line {number}")
            # Traces name one workload for each solution that ran it.
            found.setdefault(workload.uuid, workload)
    for uuid in reading.workloads:
        if uuid not in found:
            raise InputError("workload", uuid, f"one of the {len(found)} in the file", where)
    picked = [w for uuid, w in found.items() if not reading.workloads or uuid in reading.workloads]
    if not picked:
        raise BankError("workloads", 0, "at least 1", where)
    return picked


def _parsed(line: str, where: str) -> _Workload:
    try:
        trace = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BankError("line", error, "a JSON object", where) from None
    workload = trace.get("workload") if isinstance(trace, dict) else None
    inputs = workload.get("inputs") if isinstance(workload, dict) else None
    uuid = workload.get("uuid") if isinstance(workload, dict) else None
    if not isinstance(inputs, dict) or not isinstance(uuid, str):
        raise BankError("workload", "nothing", "present, with inputs and uuid", where)
    return _Workload(uuid, inputs, where)


def _wanted(workload: _Workload, reading: Reading) -> dict[str, str]:
    """What the definition calls the inputs of a bank that it has, by the bank's names."""
    found = {}
    for name in dict.fromkeys([*TENSOR_NAMES, *reading.names]):
        theirs = next((n for n in reading.candidates(name) if n in workload.inputs), None)
        if theirs is not None:
            found[name] = theirs
        elif name in reading.names:
            got = reading.names[name]
            expected = f"one of {', '.join(workload.inputs)}"
            raise BankError("input", got, expected, workload.where)
    return found


class _Blobs:
    """Safetensors files of a dataset, each opened once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._open: tuple[Path | None, Content | None] = (None, None)

    def _content(self, text: Any, workload: _Workload) -> Content:
        if not isinstance(text, str) or not text:
            raise BankError("path", text, "a file of the dataset", workload.where)
        path = self._root / text
        if not path.resolve().is_relative_to(self._root.resolve()):
            raise BankError("path", text, "inside the dataset", workload.where)
        check_regular(path)
        held, content = self._open
        if content is None or held != path:
            content = read_safetensors(path, Reading())
            self._open = (path, content)
        return content

    def tensor(self, workload: _Workload, name: str) -> Column:
        """Return an input's tensor."""
        entry = workload.inputs.get(name)
        kind = entry.get("type") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or kind != "safetensors":
            expected = "safetensors: only recorded values can be audited"
            raise BankError(f"input {name}", kind or "nothing", expected, workload.where)
        content = self._content(entry.get("path"), workload)
        key = entry.get("tensor_key")
        if not isinstance(key, str) or key not in content.columns:
            raise BankError(f"tensor {key}", "nothing", "present", content.where)
        found = content.columns[key]
        if not found.shape:
            raise BankError(f"tensor {key}", "a number", "at least one axis", content.where)
        return found

    def beside(self, workload: _Workload, names: Mapping[str, str]) -> dict[str, Column]:
        """Return what a bank's export keeps in the files of its inputs, beside them."""
        paths = dict.fromkeys(workload.inputs[theirs]["path"] for theirs in names.values())
        held: dict[str, Column] = {}
        for path in paths:
            held |= self._content(path, workload).columns
        return {name: found for name, found in held.items() if name not in names}


def _check_same(name: str, values: Array, found: Column, workload: _Workload) -> None:
    other = found.whole()
    if other.dtype != values.dtype or other.tobytes() != values.tobytes():
        expected = "that of the first workload: one layer a bank (pick workloads by uuid)"
        raise BankError(name, f"another in {workload.uuid}", expected, workload.where)


def _of_all(rows: dict[str, list[Column]], workloads: list[_Workload]) -> dict[str, list[Column]]:
    for name, parts in rows.items():
        kinds = {(part.dtype, part.shape[1:]) for part in parts}
        if len(parts) != len(workloads) or len(kinds) != 1:
            got = f"in {len(parts)} of {len(workloads)} workloads, {len(kinds)} kinds"
            raise BankError(f"tensor {name}", got, "in each, of one shape but for the rows",
                            workloads[0].where)  # fmt: skip
    return rows


def _keys(lengths: list[int]) -> dict[str, Column]:
    step = [np.full(n, index, np.int32) for index, n in enumerate(lengths)]
    row = [np.arange(n, dtype=np.int32) for n in lengths]
    return {"step": column(np.concatenate(step)), "row": column(np.concatenate(row))}


def _facts(file: Path, workloads: list[_Workload]) -> dict[str, Any]:
    uuids = [workload.uuid for workload in workloads]
    source = {"format": "flashinfer-bench", "definition": re.sub(r"\.jsonl$", "", file.name)}
    return {"source": {**source, "workloads": len(uuids), "first": uuids[0], "last": uuids[-1]}}
