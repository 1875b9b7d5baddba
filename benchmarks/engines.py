"""The gate's engines beside each other: speed, overhead, memory, a cluster of 8 nodes, the model.

    python benchmarks/engines.py [--rows 3.2M] [--workers 2] [--rounds 3] [--out FILE]

Every run is a process of its own. A round is Ray and local, each with one worker and with all;
ratios are made within a round, and their median over the rounds is what counts, with the least and
the largest beside it. ``rows_per_second`` is of the time in which every worker works: from when the
last one has its first shard behind it, so that starts do not count, until the driver has the last
document. ``seconds`` is from the start of the process to its end, as a command takes; it is what
``--plan-only`` tells.
Memory is the largest resident size of the driver, of one worker, and of Ray's own processes, where
each counts the pages that it shares. CPU seconds are sums over the processes of a kind.
The 8 nodes are raylets of one CPU each on this machine; how many shards each ran is counted there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from process_tree import Sampler, descendants, memory

from neartie.audit.engine.choose import make_engine
from neartie.audit.engine.contract import Engine, Part, RunPart, Work
from neartie.audit.engine.ray_cluster import connected
from neartie.audit.engine.ray_engine import RayEngine
from neartie.audit.environment import environment
from neartie.audit.gate.plan import GatePlan, make_plan
from neartie.audit.gate.run import plan_gate, run_plan
from neartie.audit.gate.shard_file import shard_path
from neartie.audit.gate.work import GateWork
from neartie.audit.policy import Policy
from neartie.banks.spec import integer

RESULTS = Path(__file__).parent / "results"
SIDES = ("standalone", "fused")
SOURCE = "normal:geometry=k3"
NODES = 8
SHARDS_PER_NODE = 12
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class NotedWork:
    """A work whose workers note each part: who ran it, from when to when on this machine's clock.

    Attributes:
        work: what is run.
        folder: of the notes, one file for each worker.
        on_ray: whether workers have a node to name.
    """

    work: Work
    folder: Path
    on_ray: bool

    @property
    def key(self) -> str:
        """The work's, in this folder."""
        return f"{self.work.key} {self.folder}"

    @property
    def gpus(self) -> int:
        """As many as the work."""
        return self.work.gpus

    def open(self) -> RunPart:
        """The work's parts, each with a note when it is made."""
        run_part, node = self.work.open(), "here"
        if self.on_ray:
            import ray

            node = ray.get_runtime_context().get_node_id()
        notes = self.folder / f"{os.getpid()}"

        def noted(number: int) -> bytes:
            began = time.monotonic()
            document = run_part(number)
            with notes.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps([node, os.getpid(), number, began, time.monotonic()])}\n")
            return document

        return noted


@dataclass(frozen=True)
class Note:
    """One part as a worker ran it; times in seconds of the machine's monotonic clock."""

    node: str
    process: int
    number: int
    began: float
    ended: float


def notes_in(folder: Path) -> list[Note]:
    """All notes, each part's first."""
    lines = [line for path in folder.iterdir() for line in path.read_text("utf-8").splitlines()]
    notes = sorted((Note(*json.loads(line)) for line in lines), key=lambda note: note.ended)
    return list({note.number: note for note in reversed(notes)}.values())


@dataclass
class NotedEngine:
    """An engine whose work is noted; ``last`` is when the driver had the last document."""

    engine: Engine
    folder: Path
    last: float = 0.0

    @property
    def name(self) -> str:
        """The engine's."""
        return self.engine.name

    def slots(self, work: Work) -> int:
        """The engine's."""
        return self.engine.slots(work)

    def run(self, work: Work, parts: Sequence[Part], done: Callable[[Part], None]) -> None:
        """Run the parts on the engine."""

        def seen(part: Part) -> None:
            self.last = time.monotonic()
            done(part)

        self.engine.run(NotedWork(work, self.folder, self.name == "ray"), parts, seen)


def rows_per_second(notes: Sequence[Note], rows: Mapping[int, int], last: float) -> float:
    """Rows by the second from when every worker has a part behind it until ``last``."""
    firsts: dict[int, float] = {}
    for note in notes:
        firsts[note.process] = min(note.ended, firsts.get(note.process, note.ended))
    start = max(firsts.values())
    # Of a part that ran at the start, the share that came after it.
    shares = [
        rows[note.number] * min(1.0, (note.ended - start) / (note.ended - note.began))
        for note in notes
        if note.ended > start
    ]
    return sum(shares) / (last - start)


def one_run(engine: str, workers: int, rows: int) -> dict[str, Any]:
    """One gate here: the rate while all work, a digest of the documents."""
    with tempfile.TemporaryDirectory() as name:
        notes, work = Path(name) / "notes", Path(name) / "work"
        notes.mkdir()
        runs_on = NotedEngine(make_engine(engine, workers), notes)
        plan, _ = make_plan(
            *SIDES, SOURCE, rows=rows, widths=(9, 12, 16, 20), seed=0, policy=Policy()
        )
        run_plan(plan, runs_on, work)
        shards = plan.shards()
        sizes = {shard.number: shard.stop - shard.start for shard in shards}
        found = notes_in(notes)
        speed = rows_per_second(found, sizes, runs_on.last)
        digest = hashlib.sha256()
        for path in sorted(work.glob("*/shard-*.json")):
            digest.update(path.read_bytes())
    return {
        "engine": engine,
        "workers": workers,
        "rows": rows,
        "shards": len(shards),
        "shards_by_worker": sorted(Counter(note.process for note in found).values()),
        "rows_per_second": round(speed),
        "documents": digest.hexdigest()[:16],
    }


def eight_nodes() -> dict[str, Any]:
    """A gate on a simulated cluster, its workers started before; shards by node."""
    from ray.cluster_utils import Cluster

    shard_rows = 4096
    plan, _ = make_plan(
        *SIDES, SOURCE, rows=NODES * SHARDS_PER_NODE * shard_rows, widths=(9,), seed=0,
        policy=Policy(), shard_rows=shard_rows,
    )  # fmt: skip
    cluster = Cluster(initialize_head=True, head_node_args=_node())
    try:
        for _ in range(NODES - 1):
            cluster.add_node(**_node())
        cluster.wait_for_nodes()
        with connected(cluster.address, None):
            # The first run starts the workers, which takes as long as many shards.
            for _ in range(2):
                with tempfile.TemporaryDirectory() as folder:
                    found = _counted(plan, cluster.address, Path(folder))
            return found
    finally:
        cluster.shutdown()


def _node() -> dict[str, Any]:
    return {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}


def _counted(plan: GatePlan, address: str, folder: Path) -> dict[str, Any]:
    notes = folder / "notes"
    notes.mkdir()
    parts = [Part(s.number, s.stop - s.start, shard_path(folder, s)) for s in plan.shards()]
    began = time.perf_counter()
    NotedEngine(RayEngine(None, address), notes).run(GateWork(plan), parts, lambda part: None)
    seconds = time.perf_counter() - began
    nodes = Counter(note.node for note in notes_in(notes))
    return {
        "nodes": len(nodes),
        "shards": len(parts),
        "finished": sum(part.path.is_file() for part in parts),
        "shards_by_node": sorted(nodes.values()),
        "seconds": round(seconds, 2),
    }


class Use(Sampler):
    """Samples memory and CPU time below a process, while the ``with`` block runs."""

    def __init__(self, root: int) -> None:
        super().__init__(every=0.2)
        self.peak = {"driver": 0, "worker": 0, "ray": 0}
        self._root = root
        self._workers: set[int] = set()
        self._cpu: dict[int, tuple[str, float]] = {}

    def sample(self) -> None:
        """The largest driver and worker, and all of Ray's own together."""
        own = 0
        for pid in descendants(self._root):
            kind, size = self._kind(pid), memory(pid).get("rss", 0)
            seconds = cpu_seconds(pid)
            if seconds is not None:
                self._cpu[pid] = kind, seconds
            if kind == "ray":
                own += size
            else:
                self.peak[kind] = max(self.peak[kind], size)
        self.peak["ray"] = max(self.peak["ray"], own)

    def cpu(self, kind: str) -> list[float]:
        """CPU seconds of each process of a kind, the largest first."""
        return sorted((round(s, 2) for k, s in self._cpu.values() if k == kind), reverse=True)

    def _kind(self, pid: int) -> str:
        if pid == self._root:
            return "driver"
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            words = b""
        # Between two calls a worker of Ray has another name.
        if words.startswith(b"ray::_run") or b"spawn_main" in words:
            self._workers.add(pid)
        return "worker" if pid in self._workers else "ray"


def cpu_seconds(pid: int) -> float | None:
    """CPU time of a process so far, its threads' together; None where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / TICKS


def apart(call: str, *arguments: object) -> dict[str, Any]:
    """Call a function of this file in a process of its own; its result, with peaks of memory."""
    words = [sys.executable, __file__, "--call", json.dumps([call, *arguments])]
    began = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(words, stdout=out)
        with Use(process.pid) as used:
            status = process.wait()
        seconds = time.perf_counter() - began
        out.seek(0)
        text = out.read().decode()
    if status:
        raise RuntimeError(f"{call} ended with status {status}")
    found: dict[str, Any] = json.loads(text)
    found.setdefault("seconds", round(seconds, 2))
    found["peak_rss_mb"] = {kind: round(size / 1e6) for kind, size in used.peak.items()}
    found["cpu_seconds"] = {
        "driver": sum(used.cpu("driver")),
        "workers": used.cpu("worker"),
        "ray": round(sum(used.cpu("ray")), 2),
    }
    print(json.dumps(found), flush=True)
    return found


def one_round(rows: int, workers: int) -> list[dict[str, Any]]:
    """Ray and local, with one worker and with all."""
    pairs = (("ray", 1), ("ray", workers), ("local", workers), ("local", 1))
    return [apart("one_run", engine, count, rows) for engine, count in pairs]


def ratios(runs: Sequence[Mapping[str, Any]], workers: int) -> dict[str, float]:
    """What one round says."""
    speed = {(run["engine"], run["workers"]): run["rows_per_second"] for run in runs}
    over = {
        f"seconds_over_expected {run['engine']} {run['workers']}": run["seconds"] / expected(run)
        for run in runs
    }
    return {
        "ray_speedup": speed["ray", workers] / speed["ray", 1],
        "local_speedup": speed["local", workers] / speed["local", 1],
        "ray_overhead": speed["local", workers] / speed["ray", workers] - 1,
        "ray_overhead_of_one": speed["local", 1] / speed["ray", 1] - 1,
        **over,
    }


def expected(run: Mapping[str, Any]) -> float:
    """What ``--plan-only`` tells of a run, in seconds."""
    options = {name: run[name] for name in ("rows", "engine", "workers")}
    return plan_gate(*SIDES, SOURCE, **options).asked.seconds


def over_rounds(rounds: Sequence[Mapping[str, float]]) -> Iterator[tuple[str, dict[str, float]]]:
    """Each ratio's median, least and largest."""
    for name in rounds[0]:
        values = [one[name] for one in rounds]
        spread = {"median": statistics.median(values), "least": min(values), "most": max(values)}
        yield name, {kind: round(value, 3) for kind, value in spread.items()}


def measured(rows: int, workers: int, rounds: int) -> dict[str, Any]:
    """All runs, and the ratios that they are for."""
    apart("one_run", "local", 1, 65536)
    runs = [one_round(rows, workers) for _ in range(rounds)]
    documents = {run["documents"] for one in runs for run in one}
    if len(documents) != 1:
        raise RuntimeError(f"engines made different documents: {documents}")
    return {
        "ratios": dict(over_rounds([ratios(one, workers) for one in runs])),
        "rounds": runs,
        "fewer_rows": [apart("one_run", "ray", workers, rows // part) for part in (16, 4)],
        "eight_nodes": apart("eight_nodes"),
    }


def main() -> int:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="3.2M")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS / "engines.json")
    parser.add_argument("--call", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.call:
        name, *arguments = json.loads(options.call)
        print(json.dumps({"one_run": one_run, "eight_nodes": eight_nodes}[name](*arguments)))
        return 0
    load = os.getloadavg()[0]
    record = measured(integer(options.rows), options.workers, options.rounds)
    for name, found in record["ratios"].items():
        print(f"{name:<32}{found['median']:>8.3f}  ({found['least']:.3f} to {found['most']:.3f})")
    print(f"shards by node: {record['eight_nodes']['shards_by_node']}")
    record |= {"load_before": round(load, 2), "environment": environment()}
    record["date"] = datetime.now(UTC).isoformat(timespec="seconds")
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
