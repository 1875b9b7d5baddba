"""Measure the cheap sigmoid of the fast gate against each exact form on all 2^32 FP32 patterns.

    python -P benchmarks/fast_score.py [--out FILE]

Some 25 s a form on one core. The bound that the gate relies on is ``fast.score.SCORE_ERROR``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from neartie.audit.environment import environment
from neartie.kernels.fast.score import FAST_FORMS, SCORE_ERROR, largest_error

RESULTS = Path(__file__).parent / "results"


def main() -> int:
    """Measure, print, and write JSON; status 1 where an error exceeds the bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "fast_score.json")
    options = parser.parse_args()
    forms = {}
    for form in FAST_FORMS:
        began = time.perf_counter()
        error, pattern = largest_error(form)
        forms[form] = {
            "largest_error_hex": error.hex(),
            "largest_error": error,
            "logit_bits": f"0x{pattern:08x}",
            "seconds": round(time.perf_counter() - began, 1),
        }
        print(f"{form:<8} {error:.3g} at 0x{pattern:08x}, bound {SCORE_ERROR:.3g}")
    record = {
        "patterns": 1 << 32,
        "bound_hex": SCORE_ERROR.hex(),
        "forms": forms,
        "environment": environment(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return int(any(entry["largest_error"] > SCORE_ERROR for entry in forms.values()))


if __name__ == "__main__":
    sys.exit(main())
