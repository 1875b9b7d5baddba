"""Audit clean pairs over random banks; whatever fails is a false alarm.

    python benchmarks/false_alarms.py [--banks 1000] [--seed 0] [--workers 2] [--out FILE]

Geometry, rows, bias, spread, ties, saturation, widths, ranks and the pair of paths are drawn from
the seed. A pair is clean where both paths do the same arithmetic, or differ by what the policy
allows: the order of a sum, the division, the order of the slots, row blocks, a declared reduction.
Prints every false alarm with the command that repeats it, and writes the figures as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from neartie.audit.environment import environment
from neartie.audit.selftest.clean import CleanResult, run_random

RESULTS = Path(__file__).parent / "results"


def measure(banks: int, seed: int, workers: int) -> list[CleanResult]:
    """Audit so many random clean banks; progress goes to stderr."""
    numbers = range(seed, seed + banks)
    found: list[CleanResult] = []
    with ProcessPoolExecutor(workers) as pool:
        for result in pool.map(run_random, numbers, chunksize=5):
            found.append(result)
            if len(found) % 50 == 0:
                print(f"{len(found):,} of {banks:,} banks", file=sys.stderr)
    return found


def figures(found: list[CleanResult], seed: int, seconds: float) -> dict[str, Any]:
    """What is stored."""
    alarms = [result for result in found if result.failing]
    return {
        "what": "benchmarks/false_alarms.py",
        "date": datetime.now(UTC).date().isoformat(),
        "banks": len(found),
        "seed": seed,
        "audits_by_generator": dict(Counter(r.pair.bank.partition(":")[0] for r in found)),
        "audits_by_state": dict(Counter(result.state for result in found)),
        "row_comparisons": sum(result.rows for result in found),
        "false_alarms": [asdict(result) for result in alarms],
        "seconds": round(seconds, 1),
        "environment": environment("cpu"),
    }


def main() -> int:
    """Run, print and store; 1 where a clean pair fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--banks", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS / "false_alarms.json")
    given = parser.parse_args()
    started = time.monotonic()
    found = measure(given.banks, given.seed, given.workers)
    record = figures(found, given.seed, time.monotonic() - started)
    for result in (r for r in found if r.failing):
        print(f"false alarm: {', '.join(result.failing)}: {result.pair.command()}")
    print(
        f"{len(record['false_alarms'])} false alarms on {len(found):,} clean random banks, "
        f"{record['row_comparisons']:,} row comparisons, {record['seconds']} s"
    )
    given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return int(bool(record["false_alarms"]))


if __name__ == "__main__":
    sys.exit(main())
