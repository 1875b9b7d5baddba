"""Near ties of resampled k3-mini rows by layer, beside Gaussian rows: the table of the README.

    python -P benchmarks/near_ties.py [--rows 3.2M] [--default-rows 700k] [--workers N] [--out FILE]

``neartie gate k3-mini normal:geometry=k3`` twice: the exp form against the tanh form, and the
selects that an audit compares by default (both the exp form above 8 rows, so no set can differ).
Rows are split evenly over the six layers and the Gaussian bank.

A near tie is a row whose 16th and 17th key are at most 2 FP32 steps apart, on A's own keys (biased
scores as the select rounds them), so 0, 1 and 2 steps. With density p0 of the margin at 0 and keys
whose ULP is u, that is a share of p0 * 2.5 u: FP32 gaps of 2 steps come from margins up to 2.5 u.
The same formula with the density of the recorded rows (share of margins below a quarter of their
median) says what recorded rows would show; there are too few of them to count.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from neartie.audit.environment import environment
from neartie.audit.gate.run import run_gate
from neartie.banks.bank import Bank
from neartie.banks.exact_product import exact_product
from neartie.banks.open import open_bank
from neartie.banks.resample import ResampledBank
from neartie.banks.spec import integer

RESULTS = Path(__file__).parent / "results"
SOURCES = ("k3-mini", "normal:geometry=k3")
PAIRS = {"exp against tanh": ("standalone", "fused"), "default selects": ("topk_sigmoid", "auto")}
STEPS = 2.5


def boundary_ulp(bank: Bank) -> float:
    """FP32 ULP of the 16th key, geometric mean over the bank's first rows."""
    block = bank.read(0, min(bank.rows, 1024))
    logits = block.logits
    if logits is None:
        assert block.hidden is not None
        logits = exact_product(block.hidden, bank.weights["router_weight"])
    scores = 1 / (1 + np.exp(-logits.astype(np.float64)))
    keys = np.sort(scores + bank.weights["correction_bias"], axis=1)[:, -bank.geometry.top_k]
    return float(np.exp(np.log(np.spacing(keys.astype(np.float32)).astype(np.float64)).mean()))


def line(found: dict[str, Any]) -> dict[str, Any]:
    """The figures of one bank."""
    bank = open_bank(found["name"])
    ulp, predicted = boundary_ulp(bank), found["prediction"]
    recorded = None
    if isinstance(bank, ResampledBank):
        margins = bank.margin_density()
        recorded = None if margins is None else margins.recorded
    return {
        "bank": found["name"],
        "rows": found["observed"]["units"],
        "within_2_ulp": found["near_tie_rate"],
        "density_at_0": predicted["density"],
        "boundary_ulp": ulp,
        "within_2_ulp_from_density": predicted["density"] * STEPS * ulp,
        "recorded_density": recorded,
        "recorded_within_2_ulp_from_density": None if recorded is None else recorded * STEPS * ulp,
        "predicted_rate": predicted["rate"],
        "predicted_rate_error": predicted["rate_error"],
        "agreement": predicted["agreement"],
        "differing": found["observed"]["differing"],
        "set_rate": found["observed"]["rate"],
        "set_rate_upper": found["observed"]["upper"],
        "violations": found["violations"],
        "max_weight_ulp": found["worst_weight"]["value"],
        "worst_weight_row": found["worst_weight"]["row"],
    }


def table(lines: list[dict[str, Any]]) -> str:
    """A Markdown table of one pair."""
    head = (
        "| bank | rows | within 2 ULP | the same for recorded rows | predicted set rate "
        "| set rate | at most (95%) | max weight ULP |\n|---|---|---|---|---|---|---|---|\n"
    )
    rows = []
    for item in lines:
        name = item["bank"].split(",")[0].removeprefix("resample:bank=")
        recorded = item["recorded_within_2_ulp_from_density"]
        rows.append(
            f"| {name} | {item['rows']:,} | {item['within_2_ulp']:.2e} "
            f"| {'-' if recorded is None else format(recorded, '.1e')} "
            f"| {item['predicted_rate']:.1e} +- {item['predicted_rate_error']:.0e} "
            f"| {item['set_rate']:.2e} | {item['set_rate_upper']:.2e} "
            f"| {item['max_weight_ulp']:,} |\n"
        )
    return head + "".join(rows)


def main() -> int:
    """Run both gates, print the tables, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="3.2M", help="of exp against tanh, over seven banks")
    parser.add_argument("--default-rows", default="700k", help="of the default selects")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=RESULTS / "near_ties.json")
    options = parser.parse_args()
    record: dict[str, Any] = {"workers": options.workers, "pairs": {}}
    counts = (integer(options.rows), integer(options.default_rows))
    for (name, pair), rows in zip(PAIRS.items(), counts, strict=True):
        result = run_gate(*pair, SOURCES, rows=rows, workers=options.workers)
        lines = [line(bank) for bank in result.record["banks"]]
        record["pairs"][name] = {
            "command": result.record["command"],
            "plan": result.record["plan"]["digest"],
            "seconds": round(result.seconds, 1),
            "banks": lines,
        }
        print(f"{name}: {rows:,} rows in {result.seconds:.0f} s\n\n{table(lines)}", flush=True)
    record["environment"] = environment()
    record["date"] = datetime.now(UTC).isoformat(timespec="seconds")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
