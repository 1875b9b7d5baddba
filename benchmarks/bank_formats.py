"""Throughput and memory of exporting and importing a bank in every format: the table of docs/banks.

    python -P benchmarks/bank_formats.py [--rows 100k] [--out FILE]

A bank of the mini geometry (hidden 512 in BF16, ids and weights of one path, five keys) is exported
and imported again, each in a process of its own; the digest must be that of the bank. CSV takes a
tenth of the rows: it is for small things. A dump of ids has ids alone, so its figures are of those.

Memory is the most that a process held of its own (RssAnon, sampled every 5 ms), less what it held
before: mapped pages of a file are the system's, which takes them back.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from neartie.audit.environment import environment
from neartie.banks.bank import Header, RowBlock
from neartie.banks.formats import FORMATS, export_bank, import_files
from neartie.banks.geometry import PRESETS, ScoringRule
from neartie.banks.importers.reading import Reading
from neartie.banks.open import open_bank
from neartie.banks.spec import integer
from neartie.banks.write import write_bank

RESULTS = Path(__file__).parent / "results" / "bank_formats.json"
SUFFIX = {"safetensors": ".safetensors", "npz": ".npz", "torch": ".pt", "replay": ".jsonl"}
STEP = 2048
WIDTH = 512


def make(directory: Path, rows: int) -> None:
    """Write the bank; the values are random and mean nothing."""
    geometry = PRESETS["mini"][0]
    rng = np.random.default_rng(0)
    source = open_bank("gaussian:geometry=mini,rows=960,seed=0")

    def blocks() -> Any:
        for start in range(0, rows, STEP):
            count = min(STEP, rows - start)
            row = np.arange(start, start + count, dtype=np.int32)
            keys = {"layer": np.zeros_like(row), "step": row // WIDTH, "row": row % WIDTH}
            keys |= {"rank": np.full_like(row, -1), "doc": row // 100}
            bits = rng.integers(0, 1 << 15, (count, geometry.hidden), dtype=np.uint16)
            # The exponents of a bank's values, not infinities.
            hidden = ((bits & 0x7F) | 0x3F00).view(source.weights["router_weight"].dtype)
            order = rng.random((count, geometry.experts)).argpartition(geometry.top_k, axis=1)
            ids = order[:, : geometry.top_k].astype(np.int32)
            weights = rng.random((count, geometry.top_k)).astype(np.float32)
            yield RowBlock(start, count, keys, hidden, recorded={"gpu": (ids, weights)})

    header = Header(
        name="measured",
        rows=rows,
        geometry=geometry,
        scoring=ScoringRule(),
        tie_contract="unspecified",
        independence_unit="doc",
        stage="hidden",
        digest="",
        recorded_widths={"gpu": None},
    )
    write_bank(directory, header, source.weights, blocks())


def anonymous() -> int:
    """Bytes of memory of this process that is no file's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def measured(work: Callable[[], Any]) -> dict[str, Any]:
    """Seconds and most own memory of some work, and what it returned."""
    before, peak, stop = anonymous(), [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.005):
            peak[0] = max(peak[0], anonymous())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    start, used = time.perf_counter(), time.process_time()
    result = work()
    wall, cpu = time.perf_counter() - start, time.process_time() - used
    stop.set()
    thread.join()
    grown = max(0, peak[0] - before)
    return {"wall_s": wall, "cpu_s": cpu, "peak_bytes": grown, "result": result}


def one(verb: str, name: str, source: str, target: str) -> dict[str, Any]:
    """Export or import once, in this process."""
    found = FORMATS[name]
    reading = Reading(geometry=PRESETS["mini"][0], path="gpu")
    # What is imported on the first use of a format is no part of its work.
    found.reader(), found.writer(), __import__("torch")
    if verb == "export":
        return measured(lambda: export_bank(source, target, format=name).name)
    geometry = reading if name == "replay" else None
    return measured(lambda: import_files([source], target, format=name, reading=geometry))


def child(*words: str) -> dict[str, Any]:
    """``one`` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-P", __file__, "--one", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def size(path: Path) -> int:
    """Bytes of a file, or of a directory's files."""
    return sum(p.stat().st_size for p in ([path] if path.is_file() else path.rglob("*.*")))


def line(name: str, bank: Path, rows: int, place: Path) -> dict[str, Any]:
    """Both ways of one format."""
    target = place / f"file{SUFFIX.get(name, '')}"
    back = place / f"{name}-back"
    out = child("export", name, str(bank), str(target))
    into = child("import", name, str(target), str(back))
    if FORMATS[name].bits:
        assert into["result"] == open_bank(bank).digest, name
    record = {
        "format": name,
        "rows": rows,
        "file_bytes": size(target),
        "export_rows_per_cpu_s": round(rows / out["cpu_s"]),
        "import_rows_per_cpu_s": round(rows / into["cpu_s"]),
        **{f"export_{key}": value for key, value in out.items() if key != "result"},
        **{f"import_{key}": value for key, value in into.items() if key != "result"},
    }
    print(
        f"{name:17} {rows:>8,} rows  {record['file_bytes'] / 1e6:7.1f} MB"
        f"  export {record['export_rows_per_cpu_s']:>9,} rows/s {out['peak_bytes'] / 1e6:5.1f} MB"
        f"  import {record['import_rows_per_cpu_s']:>9,} rows/s {into['peak_bytes'] / 1e6:5.1f} MB",
        flush=True,
    )
    return record


def main() -> None:
    """Measure all formats and store the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=integer, default=100_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--one", nargs=4)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one(*arguments.one)))
        return
    records = []
    with tempfile.TemporaryDirectory(prefix="bank-formats-") as place:
        root = Path(place)
        few = max(1, arguments.rows // 10)
        make(root / "many", arguments.rows)
        make(root / "few", few)
        bank_bytes = size(root / "many")
        for name in FORMATS:
            small = name == "csv"
            bank, rows = (root / "few", few) if small else (root / "many", arguments.rows)
            (root / name).mkdir()
            records.append(line(name, bank, rows, root / name))
    document = {
        "what": __doc__.splitlines()[0] if __doc__ else "",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "load_average": os.getloadavg(),
        "bank_bytes": bank_bytes,
        "environment": environment("cpu"),
        "formats": records,
    }
    arguments.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
