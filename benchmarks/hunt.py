"""What a hunt finds that random rows miss: planted faults of one row in 100,000 or rarer.

    python -P benchmarks/hunt.py [--rows 100k] [--rate-rows 1M] [--seconds 60] [--out FILE]

For each fault of ``tests/support/rare_faults.py``: ``--rows`` rows of the strategy ``random`` alone
(N(0, 1) logits, N(0, 0.02) bias, 896 experts, top 16; DeepSeek-V3's geometry for groups), which
should show nothing; the share of rows on which its condition holds, over ``--rate-rows`` rows; then
a hunt of ``--seconds`` with every strategy, from generated rows of the same kind, so that no
recorded row helps it. Last, clean pairs: nothing may be found in as many rows.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

import rare_faults

import neartie
from neartie.audit.environment import environment
from neartie.audit.hunt.run import hunt
from neartie.audit.launching import front_weights, make_launch
from neartie.audit.policy import Policy
from neartie.banks.open import open_bank
from neartie.banks.spec import integer

RESULTS = Path(__file__).parent / "results"
FAULTS = (*rare_faults.K3_FAULTS, rare_faults.HigherGroupAtTies)
CLEAN = (
    ("general", "route:select=standalone", "mini"),
    ("general:select=grouped", "route:select=grouped", "deepseek-v3"),
)
CHUNK = 12_000


def conditions(fault: type[rare_faults.RareFault]) -> dict[str, Any]:
    """Paths, geometry and policy that a fault is run under."""
    grouped = fault is rare_faults.HigherGroupAtTies
    return {
        "baseline": "general:select=grouped" if grouped else "general",
        "candidate": f"rare_faults:{fault.__name__}",
        "geometry": "deepseek-v3" if grouped else "mini",
        "policy": Policy(tie_contract="lower_id") if "Higher" in fault.__name__ else None,
    }


def rates(geometry: str, faults: list[type[rare_faults.RareFault]], rows: int) -> dict[str, int]:
    """Rows of ``rows`` on which each fault's condition holds."""
    bank = open_bank(f"gaussian:geometry={geometry},stage=logits,rows={rows},seed=1")
    weights, made = front_weights(bank), [fault({}) for fault in faults]
    counts = dict.fromkeys((fault.__name__ for fault in faults), 0)
    for start in range(0, rows, CHUNK):
        block = bank.read(start, min(start + CHUNK, rows))
        launch = make_launch(bank, weights, block, 12, 1)
        logits = rare_faults.logits_of(launch)
        found = rare_faults.boundary(logits, weights.bias, bank.geometry.top_k)
        for fault in made:
            counts[fault.name] += int(fault.fires(launch, logits, found)[: block.rows].sum())
    return counts


def measured(
    fault: type[rare_faults.RareFault], rows: int, seconds: float, rate: float
) -> dict[str, Any]:
    """One line of the table."""
    given = conditions(fault)
    plain = hunt(**given, rows=rows, only=["random"], keep_going=True)
    began = time.perf_counter()
    found = hunt(**given, seconds=seconds)
    total = time.perf_counter() - began
    first = found.found[0] if found.found else None
    return {
        "fault": fault.__name__,
        "what": str(fault.__doc__).split("\n")[0],
        "rate": rate,
        "random_rows": plain.rows,
        "random_differing": sum(one.differing for one in plain.tried),
        "random_expected": rate * plain.rows,
        "random_seconds": round(plain.seconds, 2),
        "found": first is not None,
        "strategy": None if first is None else first.strategy,
        "after_rows": None if first is None else first.found_after_rows,
        "after_seconds": None if first is None else round(first.found_after_seconds, 2),
        "with_witness_seconds": round(total, 2),
        "kind": None if first is None else first.difference.kind,
        "faulty": None if first is None else first.difference.faulty,
        "witness": None if first is None else first.difference.text(),
        "witness_rows": None if first is None else first.scene.rows,
        "witness_logits": None if first is None else len(np.unique(first.scene.logits)),
        "explain": None if first is None else first.explained["set_class"],
    }


def table(lines: list[dict[str, Any]]) -> str:
    """A Markdown table."""
    head = (
        "| fault | rate | random rows | differ (expected) | hunt: by | after rows | after s "
        "| with witness, s | witness |\n|---|---|---|---|---|---|---|---|---|\n"
    )
    return head + "".join(
        f"| {x['fault']} | {x['rate']:.1e} | {x['random_rows']:,} "
        f"| {x['random_differing']} ({x['random_expected']:.2g}) | {x['strategy']} "
        f"| {x['after_rows'] or 0:,} | {x['after_seconds']} | {x['with_witness_seconds']} "
        f"| {x['witness']} |\n"
        for x in lines
    )


def main() -> int:
    """Measure, print the table, write JSON; 1 where a fault was missed or a clean pair was not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="100k", help="random rows of each fault")
    parser.add_argument("--rate-rows", default="1M", help="rows to count conditions on")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each hunt")
    parser.add_argument("--out", type=Path, default=RESULTS / "hunt.json")
    options = parser.parse_args()
    rows, rate_rows = integer(options.rows), integer(options.rate_rows)
    k3, grouped = list(rare_faults.K3_FAULTS), [rare_faults.HigherGroupAtTies]
    counted = rates("mini", k3, rate_rows) | rates("deepseek-v3", grouped, rate_rows)
    # What a numba loop takes to compile is no part of a search.
    neartie.hunt(geometry="mini", rows=1000)
    lines = [
        measured(fault, rows, options.seconds, counted[fault.__name__] / rate_rows)
        for fault in FAULTS
    ]
    print(f"{os.cpu_count()} cores; rates over {rate_rows:,} rows\n\n{table(lines)}", flush=True)
    clean = []
    for baseline, candidate, geometry in CLEAN:
        result = hunt(baseline, candidate, geometry=geometry, rows=rows, seconds=options.seconds)
        clean.append(
            {
                "baseline": baseline, "candidate": candidate, "geometry": geometry,
                "rows": result.rows, "seconds": round(result.seconds, 1),
                "found": [witness.difference.text() for witness in result.found],
            }
        )  # fmt: skip
        print(f"clean: {candidate} against {baseline}, {geometry}: {result.rows:,} rows in "
              f"{result.seconds:.1f} s, {len(result.found)} found")  # fmt: skip
    record = {
        "rate_rows": rate_rows, "faults": lines, "clean": clean, "environment": environment(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }  # fmt: skip
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"written to {options.out}")
    bad = [x for x in lines if not x["found"]] + [x for x in clean if x["found"]]
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
