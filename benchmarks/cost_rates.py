"""What the stages of a gate and an audit cost: the constants of ``audit/cost/rates.py``.

    python benchmarks/cost_rates.py [--repeats 3] [--write] [--out FILE]

Each stage is run in one thread on K3 geometry; the least CPU time of the repeats is kept, which a
busy machine moves less than time on the clock. Starts, of a process and of Ray, are time on the
clock, so run it with nothing else on the machine. It prints each constant as ``rates.py`` has it,
beside the value there; ``--write`` puts the measured ones in, to three digits. Constants that it
does not measure, of a GPU and of memory, are left. Afterwards ``benchmarks/engines.py`` says how
long gates took over what is then expected.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from neartie.audit.bank_run import BankRun
from neartie.audit.cost.rows import front_products, row_bytes
from neartie.audit.environment import environment
from neartie.audit.gate.plan import GatePlan, make_plan
from neartie.audit.gate.runner import make_runner
from neartie.audit.gate.shard_file import read_shard, write_shard
from neartie.audit.pairing import Pairing
from neartie.audit.policy import Policy
from neartie.banks.bank import Bank
from neartie.banks.open import open_bank
from neartie.banks.write import write_bank
from neartie.kernels.reference import reference_product
from neartie.kernels.registry import as_path

RESULTS = Path(__file__).parent / "results"
RATES = Path(__file__).parent.parent / "audit" / "cost" / "rates.py"
ROWS = 4096


def cpu_seconds(work: Callable[[], object], repeats: int) -> float:
    """Least CPU time of one call, in seconds; the first call, which may compile, is left out."""
    work()
    found = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def shard_seconds_of(plan: GatePlan, repeats: int) -> float:
    """CPU time of the plan's first shard."""
    runner, shard = make_runner(plan), plan.shards()[0]
    return cpu_seconds(lambda: runner.run(shard), repeats)


def gating(make_ns: float, repeats: int) -> dict[str, float]:
    """Selects, counting and the reference, from shards that differ in one of them."""
    options: dict[str, Any] = {"rows": ROWS, "widths": (9,), "seed": 0, "policy": Policy()}

    def plan(every: int, geometry: str) -> tuple[GatePlan, int]:
        source = f"normal:geometry={geometry}"
        made, banks = make_plan("standalone", "fused", source, sample_every=every, **options)
        return made, banks[0].geometry.experts

    seconds, experts = {}, {}
    for every, geometry in ((2, "k3"), (ROWS, "k3"), (ROWS, "k2")):
        made, experts[geometry] = plan(every, geometry)
        seconds[every, geometry] = shard_seconds_of(made, repeats)
    few = {g: seconds[ROWS, g] / ROWS * 1e9 for g in ("k3", "k2")}
    slope = (few["k3"] - few["k2"]) / (experts["k3"] - experts["k2"])
    sampled = (seconds[2, "k3"] - seconds[ROWS, "k3"]) / (ROWS // 2 - 1)
    return {
        "select_ns_per_logit": slope - make_ns,
        "count_ns_per_row": few["k3"] - slope * experts["k3"],
        "reference_ns_per_logit": sampled / experts["k3"] * 1e9,
    }


def stored(repeats: int) -> dict[str, float]:
    """A stored bank: logits read, and recorded outputs of both sides read and compared."""
    rows = 32768
    bank = open_bank(f"normal:geometry=mini,rows={rows}")
    ids = np.tile(np.arange(bank.geometry.top_k, dtype=np.int32), (rows, 1))
    weights = np.full(ids.shape, 0.125, np.float32)
    block = replace(bank.read(0, rows), recorded={"a": (ids, weights), "b": (ids, weights)})
    with tempfile.TemporaryDirectory() as folder:
        header = replace(bank.header, recorded_widths=dict.fromkeys("ab", 9))
        write_bank(Path(folder) / "bank", header, bank.weights, [block])
        plan, (opened,) = make_plan(
            "recorded:name=a", "recorded:name=b", str(Path(folder) / "bank"),
            rows=None, widths=(9,), seed=0, policy=Policy(), sample_every=rows, shard_rows=rows,
        )  # fmt: skip
        read = cpu_seconds(lambda: opened.read(0, rows), repeats)
        return {
            "read_ns_per_byte": read / row_bytes(opened.read(0, 1)) / rows * 1e9,
            "recorded_ns_per_slot": shard_seconds_of(plan, repeats) / ids.size * 1e9,
        }


def shard_seconds(repeats: int) -> float:
    """Seconds of a shard besides its rows: written, read twice."""
    plan, _ = make_plan(
        "standalone", "fused", "normal:geometry=k3", rows=16384, widths=(9,), seed=0,
        policy=Policy(),
    )  # fmt: skip
    shard = plan.shards()[0]
    result = make_runner(plan).run(shard)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write = cpu_seconds(lambda: write_shard(place, plan, shard, result), repeats)
        return write + 2 * cpu_seconds(lambda: read_shard(place, plan, shard), repeats)


def starting(repeats: int, *, engine: str) -> float:
    """Seconds until a process has run its first rows and has ended, on the clock."""
    code = (
        "from neartie.audit.gate.run import run_gate;"
        "run_gate('standalone', 'fused', 'normal:geometry=k3', rows=2048, widths=(9,),"
        f" workers=1, engine={engine!r})"
    )
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-P", "-c", code], check=True)
        found.append(time.perf_counter() - began)
    return min(found)


def auditing(spec: str, rows: int, repeats: int) -> tuple[float, float, Bank]:
    """CPU seconds of one row: of one more width through both paths, and of what is done once."""
    bank = open_bank(f"{spec},rows={rows}")
    baseline, candidate = (as_path(name, "path", "cpu") for name in ("general", "route"))

    def seconds(*widths: int) -> float:
        pairing = Pairing(baseline, candidate, widths, 8, Policy())
        return cpu_seconds(lambda: BankRun(bank, 0, pairing).run(lambda rows: None), repeats)

    one, two = seconds(12), seconds(12, 16)
    return (two - one) / rows, (2 * one - two) / rows, bank


def audits(repeats: int) -> dict[str, float]:
    """An audit's rows: per logit at the select alone, else by a line through mini and K3."""
    small = auditing("gaussian:geometry=mini", 960, repeats)
    large = auditing("gaussian:geometry=k3", 96, repeats)
    selects = auditing("normal:geometry=k3", 960, repeats)
    first, last = (front_products(bank.geometry) for bank in (small[2], large[2]))
    rates = {}
    for place, name in ((0, "width"), (1, "judge")):
        slope = (large[place] - small[place]) / (last - first)
        rates[f"audit_{name}_ns_per_logit"] = selects[place] / selects[2].geometry.experts * 1e9
        rates[f"audit_{name}_ns_per_product"] = slope * 1e9
        rates[f"audit_{name}_ns_per_row"] = (small[place] - slope * first) * 1e9
    return rates


def measured(repeats: int) -> dict[str, float]:
    """Every constant, in the units that its name ends with."""
    normal = open_bank(f"normal:geometry=k3,rows={ROWS}")
    mixed = open_bank("resample:bank=k3-mini/layer0,rows=4096,seed=0,stage=logits")
    hidden = open_bank(f"gaussian:geometry=mini,rows={ROWS}")
    products = ROWS * mixed.geometry.experts * mixed.geometry.hidden
    make = cpu_seconds(lambda: normal.read(0, ROWS), repeats) / ROWS / normal.geometry.experts
    start = starting(repeats, engine="local")
    return {
        "normal_ns_per_logit": make * 1e9,
        "resample_ns_per_product": cpu_seconds(lambda: mixed.read(0, ROWS), repeats)
        / products
        * 1e9,
        "hidden_ns_per_product": product_ns(hidden, repeats),
        "generated_ns_per_hidden": cpu_seconds(lambda: hidden.read(0, ROWS), repeats)
        / (ROWS * hidden.geometry.hidden)
        * 1e9,
        **gating(make * 1e9, repeats),
        **stored(repeats),
        "shard_seconds": shard_seconds(repeats),
        "start_seconds": start,
        "ray_start_seconds": starting(repeats, engine="ray") - start,
        **audits(repeats),
    }


def product_ns(bank: Bank, repeats: int) -> float:
    """Nanoseconds per product of the exact logits that the gate makes of hidden rows."""
    block = bank.read(0, 1024)
    assert block.hidden is not None
    hidden, router = block.hidden, bank.weights["router_weight"]
    seconds = cpu_seconds(lambda: reference_product(hidden, router), repeats)
    return seconds / (hidden.shape[0] * hidden.shape[1] * bank.geometry.experts) * 1e9


def constant(name: str) -> str:
    """The line of ``rates.py`` with a constant's value, as a pattern: what is before it, it."""
    return rf"(?m)^({name.upper()}: Final = )([0-9._e+-]+)$"


def print_beside(rates: Mapping[str, float]) -> None:
    """Print measured values, and those that ``rates.py`` has."""
    text = RATES.read_text("utf-8")
    for name, value in rates.items():
        found = re.search(constant(name), text)
        there = f"{float(found[2]):>12.4g}" if found else "  no constant: not used"
        print(f"{name.upper() + ': Final =':<44}{value:>12.4g}{there}")


def with_rates(text: str, rates: Mapping[str, float]) -> str:
    """The text of ``rates.py`` with measured values, to three digits, where it has such a line.

    Raises:
        RuntimeError: a constant came out as nothing, as a difference of two disturbed times may.
    """
    for name, value in rates.items():
        if value <= 0 and re.search(constant(name), text):
            raise RuntimeError(
                f"{name} was measured as {value:.3g}: run it again, on a quiet machine"
            )
        text = re.sub(constant(name), rf"\g<1>{float(f'{value:.3g}'):_}", text)
    return text


def in_one_thread() -> None:
    """Start this program again where its libraries would start threads: they read this once."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    if any(os.environ.get(name) != "1" for name in names):
        words = [sys.executable, *sys.orig_argv[1:]]
        os.execve(words[0], words, os.environ | dict.fromkeys(names, "1"))


def main() -> int:
    """Measure, print, and write JSON."""
    in_one_thread()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="put the constants into rates.py")
    parser.add_argument("--out", type=Path, default=RESULTS / "cost_rates.json")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    rates = measured(options.repeats)
    print_beside(rates)
    if options.write:
        RATES.write_text(with_rates(RATES.read_text("utf-8"), rates), encoding="utf-8")
        print(f"written to {RATES}")
    record = {
        "rates": rates,
        "load_before": round(load, 2),
        "environment": environment(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
