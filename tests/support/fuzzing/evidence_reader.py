"""The evidence verifier: what is changed must be found, whoever made the hashes again."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from neartie.audit.evidence.manifest import MANIFEST_FILE
from neartie.audit.evidence.verify import verify_evidence
from neartie.audit.gate.run import run_gate
from neartie.audit.report import html
from neartie.audit.run import run_audit

from .mutate import mutate_bytes, mutate_json, near, several, values
from .outcome import WrongPass
from .readers import Files, Reader

DERIVED: Final = (
    "verdict", "numerics_class", "provisional_class", "structural_tag", "widths", "gate", "pooled",
)  # fmt: skip
"""Sections of a record that its tables must give: whoever changes one has to change both."""
_TABLES: Final = ("swaps.parquet", "values.parquet", "histograms.parquet")


@contextmanager
def _without_charts() -> Iterator[None]:
    """Reports without charts, seeds and verifier alike.

    Charts are drawn last, from figures that hold, and take a hundred times as long as the rest.
    """
    drawn = html._svg
    html._svg = lambda *_: None
    try:
        yield
    finally:
        html._svg = drawn


@cache
def evidence_seeds() -> tuple[Files, ...]:
    """Three tiny evidence directories: a failing audit, one that does not, and a gate."""
    bank = "gaussian:geometry=mini,hidden=64,latent=32,rows=60,bias=0.3"
    with tempfile.TemporaryDirectory() as name, _without_charts():
        place = Path(name)
        run_audit(bank, candidate="route:bias=bf16", rows=[9], ranks=2, gate=False).write(
            place / "failing"
        )
        run_audit(bank, rows=[9], ranks=2, gate=False).write(place / "right")
        run_gate("standalone", "fused", ["normal:geometry=mini"], rows=600, widths=[9]).write(
            place / "gate"
        )
        return tuple(
            {file.name: file.read_bytes() for file in sorted((place / kind).iterdir())}
            for kind in ("failing", "right", "gate")
        )


class EvidenceReader(Reader):
    """``neartie verify DIR``.

    A change without new hashes must be found. With new hashes a forger made consistent evidence of
    what no table backs; then the sections of ``DERIVED`` must still be what they were.
    """

    name = "evidence"

    def seeds(self) -> list[Files]:
        return list(evidence_seeds())

    def mutate(self, files: Files, rng: random.Random) -> Files:
        changed = dict(files)
        record = "audit.json" if "audit.json" in files else "gate.json"
        kind = rng.random()
        if kind < 0.15:
            changed[MANIFEST_FILE] = mutate_json(files[MANIFEST_FILE], rng)
            if rng.random() < 0.5:
                changed[MANIFEST_FILE] = _with_digest(changed[MANIFEST_FILE])
            return changed
        if kind < 0.5:
            name = record
            changed[name] = _record(files[name], rng)
        elif kind < 0.85:
            name = rng.choice([table for table in _TABLES if table in files])
            if rng.random() < 0.5:
                changed[name] = _table(files[name], rng)
            else:
                changed[name] = several(files[name], mutate_bytes, rng)
        else:
            name = rng.choice(sorted(files))
            changed[name] = several(files[name], mutate_bytes, rng)
        if name != MANIFEST_FILE and rng.random() < 0.8:
            changed[MANIFEST_FILE] = rehashed(changed)
        return changed

    def read(self, files: Files, place: Path) -> str:
        for name, content in files.items():
            (place / name).write_bytes(content)
        with _without_charts():
            answer = verify_evidence(place)
        # What is told of it must be JSON and text, whatever was read.
        json.loads(answer.to_json())
        answer.text().encode("utf-8", "surrogatepass")
        if answer.state != "PASS":
            codes = sorted({str(problem.code) for problem in answer.problems})
            return f"{answer.state}: {', '.join(codes)}"
        return _passed(files)

    def rehash(self, files: Files) -> dict[str, bytes]:
        return {**files, MANIFEST_FILE: rehashed(files)}


def _passed(files: Files) -> str:
    """What may pass: the seeds, and forgeries that tell nothing else.

    Raises:
        WrongPass: something else passed.
    """
    known = evidence_seeds()
    if any(dict(files) == dict(seed) for seed in known):
        return "PASS"
    record = "audit.json" if "audit.json" in files else "gate.json"
    hashes = json.loads(files[MANIFEST_FILE])["files"]
    for name, recorded in hashes.items():
        if hashlib.sha256(files[name]).hexdigest() != recorded:
            raise WrongPass(f"{name} is not the file of the manifest")
    told = json.loads(files[record])
    for seed in known:
        if record in seed:
            first = json.loads(seed[record])
            # The order of an object's names tells nothing.
            if all(_in_order(told.get(key)) == _in_order(first.get(key)) for key in DERIVED):
                return "PASS: forged, and tells the same"
    raise WrongPass(f"{record} tells other figures")


def _in_order(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def rehashed(files: Mapping[str, bytes]) -> bytes:
    """``manifest.json`` with the digests that the files have now, and its own made again."""
    try:
        document = json.loads(files[MANIFEST_FILE])
        document["files"] = {
            name: hashlib.sha256(files[name]).hexdigest() for name in document["files"]
        }
    except (ValueError, TypeError, KeyError, RecursionError):
        return files[MANIFEST_FILE]
    return _with_digest(json.dumps(document).encode())


def _with_digest(data: bytes) -> bytes:
    try:
        document = json.loads(data)
        rest = {key: value for key, value in document.items() if key != "digest"}
        text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
        document["digest"] = hashlib.sha256(text.encode()).hexdigest()
        return (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()
    except (ValueError, AttributeError, RecursionError):
        return data


def _record(data: bytes, rng: random.Random) -> bytes:
    """A record with a value changed, laid out as it was written."""
    changed = mutate_json(data, rng)
    if rng.random() < 0.8:
        try:
            text = json.dumps(json.loads(changed), indent=1, allow_nan=False) + "\n"
            return text.encode("utf-8", "surrogatepass")
        except (ValueError, RecursionError):
            return changed
    return changed


def _table(data: bytes, rng: random.Random) -> bytes:
    """A Parquet table with a cell, a row or a column changed."""
    try:
        table = pq.read_table(io.BytesIO(data))
        rows = table.to_pylist()
    # An earlier change has broken it: whatever the library raises for that.
    except (pa.ArrowException, OSError, ValueError):
        return mutate_bytes(data, rng)
    schema = table.schema
    kind = rng.randrange(6)
    if kind < 3 and rows:
        row, column = rng.choice(rows), rng.choice(schema.names)
        row[column] = near(row[column], rng) if rng.random() < 0.7 else values(rng)
    elif kind == 3 and rows:
        rows.insert(rng.randrange(len(rows)), dict(rng.choice(rows)))
    elif kind == 4 and rows:
        del rows[rng.randrange(len(rows))]
    elif kind == 5:
        return _written(table.drop_columns([rng.choice(schema.names)]))
    try:
        return _written(pa.Table.from_pylist(rows, schema=schema))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return mutate_bytes(data, rng)


def _written(table: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()
