"""How often "closer to the reference" is said of two paths that are alike, and of two that are not.

    python -P benchmarks/closer.py [--pairs 1000] [--rows 240] [--out FILE]

Null pairs: one schedule over the same partials with the ranks in another, random order. Errors of
the two have one distribution, so each ``closer`` or ``farther`` is false; at 95% no more than 5% of
the answers may be. ``one_shot_fp32`` hardly ever differs from itself: FP32 holds the sum of eight
BF16 numbers exactly, unless their exponents are far apart. ``running_bf16`` and ``tree_bf16``
differ on almost all rows, which is the harder case. Each pair has a Gaussian bank of its own. Then
``route`` (one rounding of the whole sum) against ``general``, both ways round, on the same banks.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from neartie.audit.environment import environment
from neartie.audit.error_groups import group_of_units
from neartie.audit.metrics.closeness import Evidence, closer, decide, ratio_interval
from neartie.audit.metrics.rates import upper_bound
from neartie.audit.metrics.values import measure_rows
from neartie.banks.open import open_bank
from neartie.banks.spec import integer
from neartie.kernels.contract import BFLOAT16
from neartie.kernels.project import latent_partials, latent_shards
from neartie.kernels.reduce import reduce_partials
from neartie.kernels.reference_product import reference_product

RESULTS = Path(__file__).parent / "results"
GEOMETRY = "256x128x16x2"
RANKS = 8
NULLS = ("one_shot_fp32", "running_bf16", "tree_bf16")
Array = npt.NDArray[Any]


def judged(candidate: Array, baseline: Array, exact: Array) -> Evidence:
    """What an audit measures of two latents [row, latent] BF16 against exact ones."""
    mine, other = measure_rows(candidate, exact), measure_rows(baseline, exact)
    rows = np.arange(len(exact), dtype=np.int64)
    groups = group_of_units(rows)
    sums = [np.bincount(groups, side.error_square) for side in (mine, other)]
    rms = [float(np.sqrt(s.error_square.sum() / s.reference_square.sum())) for s in (mine, other)]
    worst = [float(side.relative_rms().max()) for side in (mine, other)]
    return Evidence(
        closer(mine.error_square, other.error_square),
        ratio_interval(*sums),
        (rms[0], rms[1]),
        (worst[0], worst[1]),
    )


def reduced(schedule: str, partials: Array) -> Array:
    """The latent [row, latent] of rank 0."""
    out = np.empty(partials.shape, BFLOAT16)
    reduce_partials(schedule, np.ascontiguousarray(partials), out, partials.shape[1])
    return out[0]


def pairs(count: int, rows: int) -> Iterator[tuple[str, Evidence]]:
    """Yield every pair's kind and what is measured of it."""
    for seed in range(count):
        bank = open_bank(f"gaussian:geometry={GEOMETRY},rows={rows},seed={seed}")
        hidden, weight = bank.read(0, rows).hidden, bank.weights["latent_down_weight"]
        assert hidden is not None
        exact = reference_product(hidden, weight)
        partials = latent_partials(hidden, weight, RANKS)
        order = np.random.default_rng(seed).permutation(RANKS)
        for schedule in NULLS:
            first, second = reduced(schedule, partials), reduced(schedule, partials[order])
            yield schedule, judged(second, first, exact)
        route = np.concatenate(list(latent_shards(hidden, weight, RANKS)), axis=1)
        general = reduced("one_shot_fp32", partials)
        yield "route against general", judged(route, general, exact)
        yield "general against route", judged(general, route, exact)


def figures(kind: str, found: list[Evidence]) -> dict[str, Any]:
    """Counts of answers, of both tests together and of each alone."""
    count = len(found)
    answers = Counter(decide(one).answer for one in found)
    told = count - answers["not distinguishable"]
    alone = {
        "sign_test": sum(one.sign.answer != "not distinguishable" for one in found),
        "ratio_interval": sum(one.interval.answer != "not distinguishable" for one in found),
    }
    record: dict[str, Any] = {"pairs": count, "answers": dict(answers)}
    if kind in NULLS:
        record |= {
            "false": told,
            "false_rate": told / count,
            "false_rate_upper": upper_bound(told, count),
            "false_by_one_test_alone": {name: n / count for name, n in alone.items()},
            "rows_that_differ": sum(one.sign.wins + one.sign.losses for one in found)
            / sum(one.sign.wins + one.sign.losses + one.sign.ties for one in found),
        }
    else:
        ratios = [one.interval.ratio for one in found if one.interval.ratio is not None]
        record |= {"ratio": [min(ratios), max(ratios)]}
    return record


def main() -> int:
    """Run the pairs, print a table, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", default="1000")
    parser.add_argument("--rows", default="240", help="of each pair's bank")
    parser.add_argument("--out", type=Path, default=RESULTS / "closer.json")
    options = parser.parse_args()
    count, rows = integer(options.pairs), integer(options.rows)
    found: dict[str, list[Evidence]] = {}
    for kind, evidence in pairs(count, rows):
        found.setdefault(kind, []).append(evidence)
    record: dict[str, Any] = {
        "geometry": GEOMETRY, "ranks": RANKS, "rows": rows, "confidence": 0.95, "kinds": {},
    }  # fmt: skip
    for kind, evidences in found.items():
        made = record["kinds"][kind] = figures(kind, evidences)
        told = ", ".join(f"{n} {answer}" for answer, n in made["answers"].items())
        rate = (
            f"; false {made['false_rate']:.1%}, at most {made['false_rate_upper']:.1%} (95%)"
            if "false" in made
            else f"; ratio {made['ratio'][0]:.3f} to {made['ratio'][1]:.3f}"
        )
        print(f"{kind}: {told}{rate}")
    record["environment"] = environment()
    record["date"] = datetime.now(UTC).isoformat(timespec="seconds")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
