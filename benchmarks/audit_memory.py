"""What an audit holds, by the rows of its bank: the largest resident size of its one process.

    python benchmarks/audit_memory.py [--out FILE]

Each audit is a process of its own. The banks have no differing row: a certificate of one is kept.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from neartie.audit.environment import environment
from neartie.audit.run import run_audit

RESULTS = Path(__file__).parent / "results"
BANKS = (
    "normal:geometry=mini,rows=20k",
    "normal:geometry=mini,rows=100k",
    "normal:geometry=mini,rows=400k",
    "gaussian:geometry=256x64x64x6,rows=8k",
    "gaussian:geometry=256x64x64x6,rows=40k",
)


def one_audit(spec: str) -> dict[str, Any]:
    """Audit a bank here at one width on two ranks; rows that differ and the peak in MB."""
    result = run_audit(spec, rows=(9,), ranks=2, gate=False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "bank": spec,
        "certificates": len(result.swaps),
        "peak_rss_mb": round(peak * 1024 / 1e6),
    }


def main() -> int:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "audit_memory.json")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one_audit(options.one)))
        return 0
    runs = []
    for spec in BANKS:
        words = [sys.executable, __file__, "--one", spec]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        runs.append(json.loads(done.stdout))
        print(done.stdout, end="", flush=True)
    record = {
        "runs": runs,
        "environment": environment(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
