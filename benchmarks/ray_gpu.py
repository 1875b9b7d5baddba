"""A gate on a GPU by Ray: the bits of one process, whoever is lost, wherever the GPU is.

    python benchmarks/ray_gpu.py [--rows 16M] [--out FILE]

Needs a GPU with Triton and the extra ``ray``. Seconds are of the whole call, which on Ray starts a
cluster. The cluster of two nodes is on this machine: its head has CPUs alone, the other the GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from process_tree import descendants

from neartie.audit.environment import environment
from neartie.audit.gate.result import GateResult
from neartie.audit.gate.run import run_gate
from neartie.banks.spec import integer
from neartie.kernels.cuda.lang import unavailable

RESULTS = Path(__file__).parent / "results"
PAIR = ("standalone", "fused", "normal:geometry=k3")
KILLED_AFTER_S = 2.0
"""After the first call of a worker was seen: it has made some parts then, and has others."""


def gate(rows: int, **more: Any) -> GateResult:
    """The gate that all runs are of."""
    return run_gate(*PAIR, rows=rows, device="cuda", seed=3, **more)


def same(a: GateResult, b: GateResult) -> bool:
    """Whether records and tables have the same bits."""
    return a.record == b.record and a.swaps.equals(b.swaps) and a.histograms.equals(b.histograms)


def timed(rows: int, **more: Any) -> tuple[GateResult, float]:
    """A gate and its seconds."""
    began = time.perf_counter()
    result = gate(rows, **more)
    return result, round(time.perf_counter() - began, 2)


def workers() -> list[int]:
    """Processes below this one that run a call now."""
    found = []
    for pid in descendants(os.getpid()):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if words.startswith(b"ray::_run_parts"):
            found.append(pid)
    return found


def with_a_killed_worker(rows: int) -> tuple[GateResult, float, int]:
    """A gate whose first worker is killed while it works; how many were."""
    killed: list[int] = []
    over = threading.Event()

    def kill() -> None:
        while not killed and not over.is_set():
            if workers():
                time.sleep(KILLED_AFTER_S)
                for pid in workers()[:1]:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            time.sleep(0.02)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        result, seconds = timed(rows, engine="ray")
    finally:
        over.set()
        thread.join()
    return result, seconds, len(killed)


def resumed(rows: int) -> tuple[GateResult, float]:
    """A gate that one process began, which was killed, and Ray ends."""
    with tempfile.TemporaryDirectory() as work:
        words = [sys.executable, __file__, "--rows", str(rows), "--begin", work]
        process = subprocess.Popen(words)
        while process.poll() is None and len(list(Path(work).glob("*/shard-*.json"))) < 5:
            time.sleep(0.02)
        process.kill()
        process.wait()
        return timed(rows, engine="ray", work=work)


def on_two_nodes(rows: int) -> tuple[GateResult, float]:
    """A gate on a cluster of which one node alone has a GPU."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 2, "num_gpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        cluster.add_node(num_cpus=2, num_gpus=1)
        cluster.wait_for_nodes()
        return timed(rows, engine="ray", address=cluster.address)
    finally:
        cluster.shutdown()


def measured(rows: int) -> dict[str, Any]:
    """All runs, each held against the one of one process."""
    gate(min(rows, 1 << 20))
    plain, seconds = timed(rows)
    found: dict[str, Any] = {
        "rows": rows,
        "shards": plain.record["plan"]["shards"],
        "swaps": plain.record["pooled"]["swaps"],
        "local": {"seconds": seconds},
    }

    def keep(name: str, result: GateResult, seconds: float, **more: Any) -> None:
        found[name] = {"seconds": seconds, "same_bits": same(plain, result), **more}
        print(name, json.dumps(found[name]), flush=True)

    keep("ray", *timed(rows, engine="ray"))
    result, seconds, killed = with_a_killed_worker(rows)
    keep("ray_killed_worker", result, seconds, killed=killed)
    result, seconds = resumed(rows)
    keep("ray_resumed", result, seconds, reused_shards=result.reused_shards)
    keep("ray_two_nodes", *on_two_nodes(rows))
    return found


def main() -> int:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="16M")
    parser.add_argument("--out", type=Path, default=RESULTS / "ray_gpu.json")
    parser.add_argument("--begin", help=argparse.SUPPRESS)
    options = parser.parse_args()
    absent = unavailable()
    if absent is not None:
        print(f"NOT_RUN: {absent}", file=sys.stderr)
        return 3
    rows = integer(options.rows)
    if options.begin:
        gate(rows, work=options.begin)
        return 0
    record = measured(rows) | {"environment": environment("cuda")}
    record["date"] = datetime.now(UTC).isoformat(timespec="seconds")
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
