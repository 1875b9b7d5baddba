"""Whether a few swaps that are no ties stand out among millions of rows with noisy logits.

    python -P benchmarks/noise.py [--rows 3.2M] [--repeats 100] [--out FILE]

Rows like those of a gate: two runs of one select on the same logits, each with a perturbation of
its own, a normal one of a standard deviation that differs from row to row. It is larger than what
another order of an FP32 sum gives, so that near ties are many and a few more swaps drown in them.
A third and a fourth run (A against A) measure each row's sigma; neither is judged. Then one row in
100,000 swaps its experts whatever its margin. The test of the design (``margins.predict``: more
swaps than margins predict) stands beside ``noise.judge_swaps``.

The repeats draw margins, sigmas and swaps directly, so that there can be many.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from neartie.audit.environment import environment
from neartie.audit.metrics.margins import MarginTally, predict, predicted_interval
from neartie.audit.metrics.noise import NoiseTest, RowNoise, judge_swaps, near_boundary, row_noise
from neartie.audit.metrics.ulp import ordered
from neartie.banks.geometry import Geometry, ScoringRule
from neartie.banks.spec import integer
from neartie.kernels.scores import score
from neartie.kernels.select import SELECTS, select

RESULTS = Path(__file__).parent / "results"
GEOMETRY = Geometry("noise", 0, 0, 64, 6)
RULE = SELECTS["standalone"]
INJECTED = 1e-5
CHUNK = 1 << 16
NOISE = 2e-5
"""Median standard deviation of a logit's perturbation, and of its logarithm a half."""
F64 = npt.NDArray[np.float64]
Array = npt.NDArray[Any]


def runs(rng: np.random.Generator, rows: int, count: int) -> tuple[list[Array], F64]:
    """Logits [row, expert] float32 of several runs on the same rows."""
    shape = (rows, GEOMETRY.experts)
    exact = rng.standard_normal(shape)
    deviation = NOISE * rng.lognormal(0.0, 0.5, rows)
    found = [
        (exact + deviation[:, None] * rng.standard_normal(shape)).astype(np.float32)
        for _ in range(count)
    ]
    return found, deviation


def chunk(seed: int, rows: int, tally: MarginTally) -> tuple[F64, RowNoise, Array]:
    """Margins, noise and swaps [row] of one chunk; ``tally`` counts it for ``predict``."""
    rng = np.random.default_rng(seed)
    logits, _ = runs(rng, rows, 4)
    bias = np.zeros(GEOMETRY.experts, np.float32)
    ids = [select(RULE, each, bias, GEOMETRY, ScoringRule())[0] for each in logits[:2]]
    keys = [score(RULE.score, each) for each in logits]
    near = near_boundary(keys[2], GEOMETRY.top_k)
    noise = row_noise((keys[3].astype(np.float64) - keys[2])[None], near)
    place = np.argpartition(-keys[0], GEOMETRY.top_k, axis=1)
    top = np.take_along_axis(keys[0], place[:, : GEOMETRY.top_k], axis=1)
    last = place[np.arange(rows), top.argmin(axis=1)]
    following = place[:, GEOMETRY.top_k]
    two = [np.stack([k[np.arange(rows), e] for e in (last, following)]) for k in keys[:2]]
    margin = two[0][0].astype(np.float64) - two[0][1]
    after = two[1][0].astype(np.float64) - two[1][1]
    steps = ordered(two[0][0]).astype(np.int64) - ordered(two[0][1])
    tally.add(steps, margin, margin - after)
    swapped = (np.sort(ids[0], axis=1) != np.sort(ids[1], axis=1)).any(axis=1)
    return margin, noise, swapped


def injected(rng: np.random.Generator, swapped: Array) -> Array:
    """The same swaps and, of all rows, as many more as the rate says."""
    found = swapped.copy()
    count = round(INJECTED * len(swapped))
    found[rng.choice(len(swapped), count, replace=False)] = True
    return found


def shown(name: str, found: NoiseTest, plain: str) -> str:
    """One line of the table."""
    last = found.bands[-1]
    return (
        f"{name}: {found.observed:,} swaps, {found.expected:,.1f} predicted ({found.low:,} to "
        f"{found.high:,}); beyond {last.low:.2f} sigma {last.observed} of {last.rows:,} rows, "
        f"{last.expected:.1e} predicted, p {last.p_surplus:.1e}: {found.answer} "
        f"(by the total alone: {plain})"
    )


def repeated(repeats: int, rows: int) -> dict[str, dict[str, int]]:
    """Answers of drawn margins, clean and with injected swaps."""
    answers: dict[str, Counter[str]] = {"clean": Counter(), "injected": Counter()}
    for seed in range(repeats):
        rng = np.random.default_rng([77, seed])
        margin, sigma = rng.exponential(0.02, rows), 3e-6 * rng.lognormal(0.0, 0.5, rows)
        swapped = rng.standard_normal(rows) * sigma > margin
        answers["clean"][judge_swaps(margin, RowNoise(sigma), swapped).answer] += 1
        wrong = injected(rng, swapped)
        answers["injected"][judge_swaps(margin, RowNoise(sigma), wrong).answer] += 1
    return {name: dict(found) for name, found in answers.items()}


def main() -> int:
    """Run the rows, print both answers, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="3.2M")
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--out", type=Path, default=RESULTS / "noise.json")
    options = parser.parse_args()
    rows, began, tally = integer(options.rows), time.perf_counter(), MarginTally()
    parts = [chunk(start, min(CHUNK, rows - start), tally) for start in range(0, rows, CHUNK)]
    margin, swapped = (np.concatenate([part[i] for part in parts]) for i in (0, 2))
    degrees = parts[0][1].degrees
    noise = RowNoise(np.concatenate([part[1].sigma for part in parts]), degrees)
    wrong = injected(np.random.default_rng(5), swapped)
    record: dict[str, Any] = {
        "rows": rows, "injected_rate": INJECTED, "injected_rows": round(INJECTED * rows),
        "sigma_median": float(np.median(noise.sigma)), "degrees": degrees, "tests": {},
    }  # fmt: skip
    for name, swaps in (("clean", swapped), ("injected", wrong)):
        found, plain = judge_swaps(margin, noise, swaps), predict(tally, int(swaps.sum()), rows)
        record["tests"][name] = asdict(found) | {"by_the_total_alone": asdict(plain)}
        print(shown(name, found, plain.agreement), flush=True)
    record["predicted_rate_interval"] = predicted_interval(tally)
    record["seconds"] = round(time.perf_counter() - began, 1)
    record["repeats"] = {"count": options.repeats, **repeated(options.repeats, rows)}
    print(f"{options.repeats} repeats of {rows:,} drawn rows: {record['repeats']}")
    record["environment"] = environment()
    record["date"] = datetime.now(UTC).isoformat(timespec="seconds")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
