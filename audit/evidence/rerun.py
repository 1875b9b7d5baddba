"""Repeat an audit or a gate from its banks in a new process, and compare bit for bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from ...banks.errors import InputError
from ...interrupts import shielded
from ..gate.auto import TURNED_OFF
from .check_figures import differences
from .load import Evidence, load_evidence
from .problems import Code, Problem

_MODULE: Final = "neartie.audit.evidence.rerun_process"
_NOT_COMPARED: Final = frozenset({"environment", "claims"})
"""What another machine or day may change, and answers to a file that the evidence does not hold."""
_MOST_SHOWN: Final = 5


def rerun_evidence(evidence: Evidence) -> tuple[list[Problem], list[str]]:
    """Return what a repeated run gives otherwise, or why it could not be repeated here.

    Every cell of every table must have the same bits, and every value of the record but for its
    environment. The process inherits stderr, where it shows its progress.
    """
    launch = evidence.record.get("launch")
    if launch is not None:
        again = f"neartie audit --launch {launch['ranks']} again, and neartie diff"
        return [], [f"the paths ran on {launch['ranks']} real ranks: {again} compares the two"]
    with tempfile.TemporaryDirectory(prefix="neartie-rerun-") as place:
        target = Path(place) / "again"
        job = json.dumps({"kind": evidence.kind, "out": str(target), **job_of(evidence)})
        # -P as for the command line: the folder that this runs in is no place to import from.
        command = [sys.executable, "-P", "-m", _MODULE]
        pipe = subprocess.PIPE
        with shielded():
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        with process:
            try:
                printed, _ = process.communicate(job)
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            told = printed.strip() or f"the process ended with status {process.returncode}"
            return [], [f"the repeated run: {told}"]
        return list(_compared(evidence, load_evidence(target))), []


def job_of(evidence: Evidence) -> dict[str, Any]:
    """Return all that decides the result, as the record has it."""
    record = evidence.record
    common = {
        "banks": [bank["spec"] for bank in record["banks"]],
        "device": record["device"],
        "policy": record["policy"],
    }
    widths = list(dict.fromkeys(item["width"] for item in record["coverage"]))
    if evidence.kind == "audit":
        # Without a spec (a path that was given as an object), the name may be known here.
        roles = ("baseline", "candidate")
        sides = {role: record[role].get("spec") or record[role]["name"] for role in roles}
        return {
            **common,
            **sides,
            "widths": widths,
            "ranks": record["ranks"],
            "command": record["command"],
            "gate": record["no_gate"] != TURNED_OFF,
        }
    plan, sample = record["plan"], record["sample"]
    return {
        **common,
        **{role: record[role]["spec"] for role in ("baseline", "candidate")},
        "widths": widths,
        "rows": sum(bank["rows"] for bank in record["banks"]),
        "seed": plan["seed"],
        "shard_rows": plan["shard_rows"],
        "sample_every": plan["sample_every"],
        "sample": None if sample is None else [sample["events"], sample["trials"]],
    }


def _compared(recorded: Evidence, again: Evidence) -> Iterator[Problem]:
    for name in sorted({*recorded.tables, *again.tables}):
        for where, text in _table(name, recorded.tables.get(name), again.tables.get(name)):
            yield Problem(Code.RERUN, where, text)
    other_code = recorded.manifest["code"] != again.manifest["code"]
    mine, theirs = (_comparable(evidence.record, other_code) for evidence in (recorded, again))
    wrong = list(differences(mine, theirs))
    for place, text in wrong[:_MOST_SHOWN]:
        where = f"{recorded.kind}.json: {place}"
        yield Problem(Code.RERUN, where, text.replace("the tables give", "the repeated run gives"))
    if len(wrong) > _MOST_SHOWN:
        more = len(wrong) - _MOST_SHOWN
        yield Problem(Code.RERUN, f"{recorded.kind}.json", f"and {more:,} more values")


def _comparable(record: Mapping[str, Any], other_code: bool) -> dict[str, Any]:
    """A record without what another machine, or another version of the code, has of its own."""
    kept = {key: value for key, value in record.items() if key not in _NOT_COMPARED}
    if other_code and "plan" in kept:
        own = ("code", "digest")
        kept["plan"] = {key: value for key, value in kept["plan"].items() if key not in own}
    if other_code:
        # Evidence of older code names no models.
        banks = kept["banks"]
        kept["banks"] = [{key: b[key] for key in b if key != "models"} for b in banks]
    return kept


def _table(name: str, mine: pa.Table | None, theirs: pa.Table | None) -> Iterator[tuple[str, str]]:
    file = f"{name}.parquet"
    if mine is None or theirs is None:
        yield file, "only one of the runs has it"
        return
    if not mine.schema.equals(theirs.schema, check_metadata=True):
        yield file, "its columns are others"
        return
    if mine.num_rows != theirs.num_rows:
        yield file, f"{mine.num_rows:,} rows, the repeated run gives {theirs.num_rows:,}"
        return
    differing = 0
    for number, (a, b) in enumerate(zip(mine.to_pylist(), theirs.to_pylist(), strict=True)):
        # repr of a float names its bits: -0.0 is not 0.0, and a NaN is itself.
        for column in (key for key in a if repr(a[key]) != repr(b[key])):
            differing += 1
            if differing <= _MOST_SHOWN:
                text = f"{a[column]!r}, the repeated run gives {b[column]!r}"
                yield f"{file}: row {number}, {column}", text
    if differing > _MOST_SHOWN:
        yield file, f"and {differing - _MOST_SHOWN:,} more cells"


def run_job(job: dict[str, Any]) -> None:
    """Run a job of ``job_of`` and write its evidence.

    Raises:
        InputError: a bank or a path cannot be opened here.
    """
    from ..gate.run import run_gate
    from ..policy import Policy
    from ..progress import progress_bar
    from ..run import run_audit

    policy = Policy.model_validate(job["policy"])
    with progress_bar("rerun") as advance:
        if job["kind"] == "audit":
            run_audit(
                job["banks"],
                baseline=job["baseline"],
                candidate=job["candidate"],
                rows=job["widths"],
                ranks=job["ranks"],
                device=job["device"],
                policy=policy,
                gate=job["gate"],
                # No number of processes changes a bit.
                workers=os.cpu_count() or 1,
                progress=advance,
                command=job["command"],
            ).write(job["out"])
            return
        run_gate(
            job["baseline"],
            job["candidate"],
            job["banks"],
            rows=job["rows"],
            widths=job["widths"],
            seed=job["seed"],
            policy=policy,
            sample=None if job["sample"] is None else (job["sample"][0], job["sample"][1]),
            device=job["device"],
            shard_rows=job["shard_rows"],
            sample_every=job["sample_every"],
            progress=advance,
        ).write(job["out"])


def main() -> int:
    """Run the job on stdin; a refusal is one line on stdout and status 2."""
    try:
        run_job(json.loads(sys.stdin.read()))
    except InputError as error:
        print(error)
        return 2
    return 0
