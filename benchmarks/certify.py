"""Certify two forms on all 2^32 FP32 inputs and check the result against the shipped one.

    python benchmarks/certify.py [FORM FORM] [--threads N] [--out FILE]

Prints seconds and inputs per second, and writes them with machine and versions as JSON. Takes about
30 s of processor time (AMD EPYC, 2.6 GHz), 15 s on two cores that nothing else uses.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from neartie.audit.certify import certify_forms, load_certificate
from neartie.audit.environment import environment
from neartie.kernels.exhaustive.float_line import PLACES

RESULTS = Path(__file__).parent / "results"


def measure(form_a: str, form_b: str, threads: int) -> dict[str, Any]:
    """Return seconds, rate and memory of one full run; compilation is part of the first seconds."""
    shipped = load_certificate(form_a, form_b)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as cache:
        wall, cpu = time.perf_counter(), time.process_time()
        found = certify_forms(form_a, form_b, cache_dir=cache, fresh=True, threads=threads)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {
        "forms": [form_a, form_b],
        "inputs": PLACES,
        "threads": threads,
        "seconds": round(wall, 2),
        "cpu_seconds": round(cpu, 2),
        "inputs_per_second": round(PLACES / wall),
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "load_before": round(load, 2),
        "equals_shipped": None if shipped is None else found.record == shipped.record,
        "max_abs_hex": found.max_abs("all").hex(),
        "max_ulp_abs16": found.max_ulp("abs16"),
    }


def processor() -> str:
    """Return the processor's name where Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, "unknown")


def main() -> int:
    """Measure, print, write; 1 where the result is not the shipped one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("forms", nargs="*", default=["exp", "tanh"])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=RESULTS / "certify.json")
    options = parser.parse_args()
    if len(options.forms) != 2:
        parser.error("give two forms")
    form_a, form_b = options.forms
    result = measure(form_a, form_b, options.threads)
    document = {
        "benchmark": "certify",
        "date": datetime.now(UTC).date().isoformat(),
        "processor": processor(),
        "environment": environment(),
        **result,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(
        f"{', '.join(result['forms'])}: {result['seconds']} s on {result['threads']} threads "
        f"({result['cpu_seconds']} s of processor time), {result['inputs_per_second']:,} inputs/s, "
        f"peak {result['peak_memory_mb']} MB; shipped record reproduced: {result['equals_shipped']}"
    )
    return int(result["equals_shipped"] is False)


if __name__ == "__main__":
    sys.exit(main())
