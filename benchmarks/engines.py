"""The gate's engines beside each other: speed, overhead, memory, a cluster of 8 nodes, the model.

    python benchmarks/engines.py [--rows 3.2M] [--workers 2] [--out FILE]

Every run is a process of its own. ``rows_per_second`` is of the rows between the first and the last
finished shard, so that starts do not count; ``seconds`` is the whole call. Memory is the largest
resident size of the driver, of one worker, and of Ray's own processes, where each counts the pages
that it shares.
The 8 nodes are raylets of one CPU each on this machine; how many shards each ran is counted there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from process_tree import Sampler, descendants, memory

from neartie.audit.engine.contract import Part, RunPart
from neartie.audit.engine.ray_cluster import connected
from neartie.audit.engine.ray_engine import RayEngine
from neartie.audit.environment import environment
from neartie.audit.gate.plan import GatePlan, make_plan
from neartie.audit.gate.run import plan_gate, run_gate
from neartie.audit.gate.shard_file import shard_path
from neartie.audit.gate.work import GateWork
from neartie.audit.policy import Policy
from neartie.banks.spec import integer

RESULTS = Path(__file__).parent / "results"
SIDES = ("standalone", "fused")
SOURCE = "normal:geometry=k3"
NODES = 8
SHARDS_PER_NODE = 12


def one_run(engine: str, workers: int, rows: int) -> dict[str, Any]:
    """One gate here: the whole call, the rate between first and last shard, a digest of counts."""
    seen: list[tuple[float, int]] = []

    def told(done: int, total: int, text: str) -> None:
        seen.append((time.perf_counter(), done))

    began = time.perf_counter()
    result = run_gate(*SIDES, SOURCE, rows=rows, engine=engine, workers=workers, progress=told)
    seconds = time.perf_counter() - began
    (first, few), (last, many) = seen[0], seen[-1]
    expected = plan_gate(*SIDES, SOURCE, rows=rows, engine=engine, workers=workers)
    return {
        "engine": engine,
        "workers": workers,
        "rows": rows,
        "shards": result.record["plan"]["shards"],
        "seconds": round(seconds, 2),
        "rows_per_second": round((many - few) / (last - first)),
        "expected_seconds": round(expected.asked.seconds, 2),
        "swaps": result.record["pooled"]["swaps"],
    }


@dataclass(frozen=True)
class NodeWork:
    """A gate's work that notes on which node each shard ran."""

    gate: GateWork
    folder: Path

    @property
    def key(self) -> str:
        """The gate's, in this folder."""
        return f"{self.gate.key} {self.folder}"

    @property
    def gpus(self) -> int:
        """None."""
        return 0

    def open(self) -> RunPart:
        """The gate's runner, with a note a shard."""
        import ray

        run_part, node = self.gate.open(), ray.get_runtime_context().get_node_id()

        def noted(number: int) -> bytes:
            document = run_part(number)
            (self.folder / f"{number}.node").write_text(node, encoding="utf-8")
            return document

        return noted


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
    parts = [Part(s.number, s.stop - s.start, shard_path(folder, s)) for s in plan.shards()]
    began = time.perf_counter()
    RayEngine(None, address).run(NodeWork(GateWork(plan), folder), parts, lambda part: None)
    seconds = time.perf_counter() - began
    nodes = Counter(path.read_text(encoding="utf-8") for path in folder.glob("*.node"))
    return {
        "nodes": len(nodes),
        "shards": len(parts),
        "finished": sum(part.path.is_file() for part in parts),
        "shards_by_node": sorted(nodes.values()),
        "seconds": round(seconds, 2),
    }


class Memory(Sampler):
    """Samples who holds how much below a process, while the ``with`` block runs."""

    def __init__(self, root: int) -> None:
        super().__init__(every=0.2)
        self.peak = {"driver": 0, "worker": 0, "ray": 0}
        self._root = root

    def sample(self) -> None:
        """The largest driver and worker, and all of Ray's own together."""
        own = 0
        for pid in descendants(self._root):
            kind, size = self._kind(pid), memory(pid).get("rss", 0)
            if kind == "ray":
                own += size
            else:
                self.peak[kind] = max(self.peak[kind], size)
        self.peak["ray"] = max(self.peak["ray"], own)

    def _kind(self, pid: int) -> str:
        if pid == self._root:
            return "driver"
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return "ray"
        return "worker" if words.startswith(b"ray::_run") or b"spawn_main" in words else "ray"


def apart(call: str, *arguments: object) -> dict[str, Any]:
    """Call a function of this file in a process of its own; its result, with peaks of memory."""
    words = [sys.executable, __file__, "--call", json.dumps([call, *arguments])]
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(words, stdout=out)
        with Memory(process.pid) as held:
            status = process.wait()
        out.seek(0)
        text = out.read().decode()
    if status:
        raise RuntimeError(f"{call} ended with status {status}")
    found: dict[str, Any] = json.loads(text)
    found["peak_rss_mb"] = {kind: round(size / 1e6) for kind, size in held.peak.items()}
    print(json.dumps(found), flush=True)
    return found


def measured(rows: int, workers: int) -> dict[str, Any]:
    """All runs, and the ratios that they are for."""
    apart("one_run", "local", 1, 65536)
    runs = [
        apart("one_run", engine, count, rows)
        for engine, count in (("ray", 1), ("ray", workers), ("local", workers), ("local", 1))
    ]
    speed = {(run["engine"], run["workers"]): run["rows_per_second"] for run in runs}
    less = [apart("one_run", "ray", workers, rows // part) for part in (16, 4)]
    swaps = {json.dumps(run["swaps"]) for run in runs}
    if len(swaps) != 1:
        raise RuntimeError(f"engines counted differently: {swaps}")
    return {
        "runs": runs,
        "fewer_rows": less,
        "ray_speedup": round(speed["ray", workers] / speed["ray", 1], 2),
        "ray_overhead": round(speed["local", workers] / speed["ray", workers] - 1, 3),
        "seconds_over_expected": {
            f"{run['engine']} {run['workers']}": round(run["seconds"] / run["expected_seconds"], 2)
            for run in runs
        },
        "eight_nodes": apart("eight_nodes"),
    }


def main() -> int:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="3.2M")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS / "engines.json")
    parser.add_argument("--call", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.call:
        name, *arguments = json.loads(options.call)
        print(json.dumps({"one_run": one_run, "eight_nodes": eight_nodes}[name](*arguments)))
        return 0
    load = os.getloadavg()[0]
    record = measured(integer(options.rows), options.workers)
    print(f"{options.workers} Ray workers over 1: {record['ray_speedup']}")
    print(f"Ray over local at {options.workers} workers: {record['ray_overhead']:+.1%} time a row")
    print(f"shards by node: {record['eight_nodes']['shards_by_node']}")
    record |= {"load_before": round(load, 2), "environment": environment()}
    record["date"] = datetime.now(UTC).isoformat(timespec="seconds")
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
