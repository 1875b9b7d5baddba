"""The gate on recorded outputs of two paths: 3.2M rows from disk, the logits left where they are.

    python -P benchmarks/recorded_gate.py [--rows 3.2M] [--folder DIR] [--out FILE]

Writes a whole bank first (E=896, K=16: 3,584 bytes of logits and 256 of outputs a row, so 12.3 GB
for 3.2M rows; nothing is sparse or shared), with a far swap planted in every millionth row. Then it
runs the gate twice in a fresh process each: the second time is the warm one. A third process keeps
mapped pages, to see how much of the file was touched. The bank is deleted at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from neartie.audit.environment import environment
from neartie.banks.bank import RowBlock
from neartie.banks.open import open_bank
from neartie.banks.spec import integer
from neartie.banks.write import write_bank
from neartie.kernels.fast.gate import PairedSelect
from neartie.kernels.select import SELECTS

RESULTS = Path(__file__).parent / "results"
PLANTED_EVERY = 1_000_000
BLOCK = 16384
SIDES = ("standalone", "fused")


def blocks(rows: int) -> Iterator[RowBlock]:
    """Rows with the outputs of both selects, and the planted swaps."""
    bank = open_bank(f"normal:geometry=k3,rows={rows}")
    bias = bank.weights["correction_bias"]
    rules = SELECTS[SIDES[0]], SELECTS[SIDES[1]]
    pair = PairedSelect(*rules, bias, bank.geometry, bank.scoring)
    for start in range(0, rows, BLOCK):
        block = bank.read(start, min(start + BLOCK, rows))
        assert block.logits is not None
        found = pair.run(block.logits)
        for row in range(PLANTED_EVERY // 2, rows, PLANTED_EVERY):
            if start <= row < start + block.rows:
                found.ids_b[row - start, 15] = np.argsort(block.logits[row - start])[400]
        recorded: dict[str, Any] = {
            SIDES[0]: (found.ids_a, found.weights_a),
            SIDES[1]: (found.ids_b, found.weights_b),
        }
        yield replace(block, recorded=recorded)


def make(folder: Path, rows: int) -> None:
    """Write the bank."""
    source = open_bank(f"normal:geometry=k3,rows={rows}")
    header = replace(source.header, recorded_widths=dict.fromkeys(SIDES, 16))
    write_bank(folder, header, source.weights, blocks(rows))


def run(folder: Path, workers: int, keep_pages: bool) -> dict[str, Any]:
    """One gate in this process: seconds, memory, what it read and what it found."""
    from neartie.audit.gate.run import run_gate
    from neartie.banks.store import StoredBank

    touched: list[int] = []
    read_rows = StoredBank.read_rows

    def counted(self: StoredBank, rows: Any) -> Any:
        touched.extend(rows.tolist())
        return read_rows(self, rows)

    StoredBank.read_rows = counted  # type: ignore[method-assign]
    resident = [0]
    if keep_pages:
        watch = lambda self, start, stop: resident.append(mapped(folder))  # noqa: E731
        StoredBank.forget = watch  # type: ignore[method-assign]
    sides = (f"recorded:name={name}" for name in SIDES)
    began = time.perf_counter()
    result = run_gate(*sides, str(folder), rows=None, workers=workers)
    seconds = time.perf_counter() - began
    pooled = result.record["pooled"]
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return {
        "workers": workers,
        "seconds": round(seconds, 2),
        "peak_memory_mb": max(resource.getrusage(kind).ru_maxrss for kind in kinds) // 1024,
        "mapped_resident_mb_if_kept": round(max(resident) / 1e6, 1),
        "rows": pooled["observed"]["units"],
        "swaps": pooled["swaps"],
        "violations": pooled["violations"],
        "far_swap_rows": sorted(
            c["row"] for c in result.swaps.to_pylist() if c["set_class"] == "far_swap"
        ),
        "logits_rows_read": len(touched),
        "verdict": str(result.verdict.state),
    }


def mapped(folder: Path) -> int:
    """Bytes of the rows file that are mapped and resident in this process."""
    total, inside = 0, False
    try:
        lines = Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    for line in lines:
        if "-" in line.split(" ", 1)[0] and not line[0].isupper():
            inside = line.endswith(str(folder / "rows.arrow"))
        elif inside and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


def in_fresh_process(folder: Path, workers: int, keep_pages: bool) -> dict[str, Any]:
    """``run`` in a process of its own."""
    words = [sys.executable, "-P", __file__, "--run", str(folder), "--workers", str(workers)]
    words += ["--keep-pages"] if keep_pages else []
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> int:
    """Make, measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="3.2M")
    parser.add_argument("--folder", type=Path, default=None, help="where the bank is made")
    parser.add_argument("--out", type=Path, default=RESULTS / "gate_recorded.json")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--keep-pages", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(run(options.run, options.workers, options.keep_pages)))
        return 0
    rows = integer(options.rows)
    place = Path(tempfile.mkdtemp(prefix="recorded-gate-", dir=options.folder))
    try:
        began = time.perf_counter()
        make(place / "bank", rows)
        size = (place / "bank" / "rows.arrow").stat().st_size
        print(f"{size / 1e9:.1f} GB written in {time.perf_counter() - began:.0f} s")
        load = os.getloadavg()[0]
        runs = [in_fresh_process(place / "bank", workers, False) for workers in (1, 1, 2)]
        kept = in_fresh_process(place / "bank", 1, True)
    finally:
        shutil.rmtree(place)
    outputs = rows * 4 * (16 * 4 + 5)
    record = {
        "rows": rows,
        "file_bytes": size,
        "logits_bytes": rows * 896 * 4,
        "first_run": runs[0],
        "warm_run": runs[1],
        "warm_run_two_workers": runs[2],
        "logits_share_of_rows_read": kept["logits_rows_read"] / rows,
        "mapped_resident_bytes_beyond_outputs_share": max(
            0.0, (kept["mapped_resident_mb_if_kept"] * 1e6 - outputs) / (rows * 896 * 4)
        ),
        "kept_pages_run": kept,
        "load_before": round(load, 2),
        "environment": environment(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    for name in ("first_run", "warm_run", "warm_run_two_workers", "kept_pages_run"):
        print(name, json.dumps(record[name]))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
