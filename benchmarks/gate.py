"""The near-tie gate on the CPU beside plain torch and one read of the logits, in one run.

    python benchmarks/gate.py [--rows 3.2M] [--repeats 5] [--workers N] [--out FILE]

First four loops on the same logits in memory, taking turns: plain torch (sigmoid, bias and topk for
each side, sets compared), the gate (both sides' sets decided), the gate with weights (ids, weights,
margins, ULP counted: what ``neartie gate`` runs), and a sum of the logits' bits. Then the gate on
1/32, 1/8, 1/2 and all of the rows, generated on the way: seconds with a straight line through them,
peak memory of the whole process tree, what the gate says; and on 1/8 of them resampled from a
recorded bank, and with torch's own functions as a path on one side. Where there is a GPU,
``gpu_gate.py`` measures there. Ratios are of figures of this run; a
machine that others use shows in the load and in the spread.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numba
import numpy as np
import torch
from process_tree import TreeMemory

from neartie.audit.environment import environment
from neartie.audit.gate.sides import proven_window
from neartie.banks.normal import normal_rows
from neartie.banks.open import open_bank
from neartie.banks.spec import integer
from neartie.kernels.fast.gate import PairedSelect
from neartie.kernels.select import SELECTS

RESULTS = Path(__file__).parent / "results"
BANK = open_bank("normal:geometry=k3")
BIAS = BANK.weights["correction_bias"]
A, B = SELECTS["standalone"], SELECTS["fused"]


def plain_torch(logits: torch.Tensor, bias: torch.Tensor) -> int:
    """Rows whose sets differ, by the library's own functions."""
    differing = 0
    for part in logits.split(16384):
        first = torch.topk(torch.sigmoid(part) + bias, 16, dim=-1).indices
        second = torch.topk(0.5 * torch.tanh(0.5 * part) + 0.5 + bias, 16, dim=-1).indices
        other = first.sort(-1).values != second.sort(-1).values
        differing += int(other.any(-1).sum())
    return differing


@numba.njit(nogil=True, cache=False)
def _sum(bits: Any) -> Any:
    total = np.uint64(0)
    for i in range(len(bits)):
        total += bits[i]
    return total


def one_read(logits: Any, pool: ThreadPoolExecutor, threads: int) -> int:
    """A sum over the logits' bits: one pass of memory with every core."""
    words = logits.reshape(-1).view(np.uint64)
    return sum(int(x) for x in pool.map(_sum, np.array_split(words, threads)))


def timed(work: Callable[[], object]) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def loops(rows: int, repeats: int, threads: int) -> dict[str, Any]:
    """Rows per second of the three loops, taking turns on the same logits."""
    torch.set_num_threads(threads)
    logits = normal_rows(0, 0, rows, 896)
    tensor, bias = torch.from_numpy(logits), torch.from_numpy(BIAS)
    window = proven_window(A, B, BIAS, BANK.scoring)
    pair = PairedSelect(A, B, BIAS, BANK.geometry, BANK.scoring, window)
    with ThreadPoolExecutor(threads) as pool:
        works: dict[str, Callable[[], object]] = {
            "plain_torch": lambda: plain_torch(tensor, bias),
            "gate": lambda: pair.differing(logits, threads),
            "gate_with_weights": lambda: pair.run(logits, threads),
            "one_read": lambda: one_read(logits, pool, threads),
        }
        seconds: dict[str, list[float]] = {name: [] for name in works}
        for work in works.values():
            work()
        for _ in range(repeats):
            for name, work in works.items():
                seconds[name].append(timed(work))
    found: dict[str, Any] = {
        name: {
            "rows_per_second_best": round(rows / min(values)),
            "rows_per_second_median": round(rows / median(values)),
        }
        for name, values in seconds.items()
    }
    for kind in ("best", "median"):
        key = f"rows_per_second_{kind}"
        found[f"gate_over_torch_{kind}"] = round(found["gate"][key] / found["plain_torch"][key], 1)
        weights = found["gate_with_weights"][key] / found["plain_torch"][key]
        found[f"gate_with_weights_over_torch_{kind}"] = round(weights, 1)
        found[f"gate_over_read_{kind}"] = round(found["one_read"][key] / found["gate"][key], 1)
    turns = zip(seconds["plain_torch"], seconds["gate"], strict=True)
    found["gate_over_torch_each_turn"] = [round(a / b, 1) for a, b in turns]
    return {"rows": rows, "threads": threads, "window": window, **found}


def whole_run(
    rows: int, workers: int, source: str = BANK.name, candidate: str = B.name
) -> dict[str, Any]:
    """One ``neartie gate`` in processes of its own: time, memory of the tree, what it says."""
    words = [sys.executable, "-P", "-m", "neartie", "gate", "--json", "--sample", "1/960"]
    words += [source.partition(",")[0], "--baseline", A.name, "--candidate", candidate]
    words += ["--rows", str(rows), "--workers", str(workers)]
    began = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(words, stdout=out)
        with TreeMemory(process.pid) as tree:
            status = process.wait()
        seconds = time.perf_counter() - began
        out.seek(0)
        record = json.loads(out.read())
    # 1: the pair fails by its rows, as exp against tanh does on those of deep layers.
    if status not in (0, 1, 3):
        raise RuntimeError(f"neartie gate ended with status {status}")
    pooled = record["pooled"]
    return {
        "rows": rows,
        "workers": workers,
        "seconds": round(seconds, 2),
        "rows_per_second": round(rows / seconds),
        "peak_pss_mb": round(tree.peak["pss"] / 1e6),
        "peak_rss_sum_mb": round(tree.peak["rss"] / 1e6),
        "processes": tree.processes,
        "memory_samples": tree.samples,
        "verdict": record["verdict"]["state"],
        "numerics_class": record["numerics_class"],
        "swaps": pooled["swaps"],
        "violations": pooled["violations"],
        "observed": pooled["observed"],
        "prediction": pooled["prediction"],
        "near_tie_rate": pooled["near_tie_rate"],
        "swaps_per_near_tie_row": pooled["swaps_per_near_tie_row"],
        "max_weight_ulp": pooled["worst_weight"]["value"],
        "sample": record["sample"],
    }


def straight_line(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Least squares of seconds over rows, and how far the worst run is off."""
    rows = np.array([run["rows"] for run in runs]) / 1e6
    seconds = np.array([run["seconds"] for run in runs])
    slope, start = np.polyfit(rows, seconds, 1)
    worst = np.abs(start + slope * rows - seconds).max()
    return {
        "start_seconds": round(float(start), 2),
        "seconds_per_million_rows": round(float(slope), 2),
        "worst_residual_seconds": round(float(worst), 2),
    }


def gpu(folder: Path) -> str:
    """Run the same on a GPU where there is one; return its file, or why there is none."""
    if not torch.cuda.is_available():
        print("no CUDA device: benchmarks/gpu_gate.py was not run")
        return "NOT_RUN: no CUDA device"
    script, file = Path(__file__).with_name("gpu_gate.py"), folder / "gpu_gate.json"
    subprocess.run([sys.executable, str(script), "--out", str(file)], check=True)
    return file.name


def main() -> int:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="3.2M", help="rows of the largest whole run")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--loop-rows", default="65536")
    parser.add_argument("--out", type=Path, default=RESULTS / "gate_cpu.json")
    options = parser.parse_args()
    threads, rows = os.cpu_count() or 1, integer(options.rows)
    load = os.getloadavg()[0]
    record: dict[str, Any] = {"loops": loops(integer(options.loop_rows), options.repeats, threads)}
    for name in ("plain_torch", "gate", "gate_with_weights", "one_read"):
        print(f"{name:<12} {record['loops'][name]['rows_per_second_best']:>12,} rows/s")
    print(f"gate / torch {record['loops']['gate_over_torch_best']} (best), "
          f"{record['loops']['gate_over_torch_median']} (median), with weights "
          f"{record['loops']['gate_with_weights_over_torch_median']} (median)")  # fmt: skip
    whole_run(rows // 32, options.workers)
    record["whole_runs"] = []
    for count in (rows // 32, rows // 8, rows // 2, rows):
        found = whole_run(count, options.workers)
        record["whole_runs"].append(found)
        shown = ("rows", "seconds", "rows_per_second", "peak_pss_mb", "peak_rss_sum_mb")
        print({name: found[name] for name in shown}, flush=True)
    record["straight_line"] = straight_line(record["whole_runs"])
    print(record["straight_line"])
    record["resampled"] = whole_run(rows // 8, options.workers, "resample:bank=k3-mini/layer0")
    record["path"] = whole_run(rows // 8, options.workers, candidate="torch_topk")
    for name in ("resampled", "path"):
        print(name, {key: record[name][key] for key in shown}, flush=True)
    record["gpu"] = gpu(options.out.parent)
    record["load_before"] = round(load, 2)
    record["environment"] = environment()
    record["date"] = datetime.now(UTC).isoformat(timespec="seconds")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
