"""Check, then time, the near-tie gate on a GPU beside plain torch and one read of the logits.

    PYTHONPATH=src python benchmarks/gpu_gate.py --out gpu_gate.json

Needs torch with CUDA, Triton and numpy. Sections run in order and fail alone: an error is printed
and kept in the JSON, and the exit status is 1. The table is printed last. With TRITON_INTERPRET=1,
``--rows 6 --check-rows 6 --only checks timings rates`` walks through the same code on a CPU.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import gpu_gate_checks as checks
import numpy as np
import torch
import triton

from neartie.kernels.cuda.certify_triton import device_scan, screen_bound
from neartie.kernels.cuda.gate_triton import DeviceGate
from neartie.kernels.cuda.lang import device
from neartie.kernels.cuda.plain import plain_select
from neartie.kernels.cuda.scores_triton import device_score
from neartie.kernels.cuda.selects import DEVICE_SELECTS, SCREEN, DeviceSelect

DEVICE: Final = device()
PROCESSORS: Final = (
    1 if DEVICE == "cpu" else torch.cuda.get_device_properties(0).multi_processor_count
)
EXPERTS: Final = 896
TOP_K: Final = 16
BIAS_SPREAD: Final = 0.02
ASSUMED_BOUNDS: Final = {"exp.cuda": 3e-7, "tanh.cuda": 3e-7, "tanh.approx": 1e-3}
"""Used only where ``certify`` did not run; the report then says so."""
FORM_PAIRS: Final = (
    (SCREEN, "exp.cuda"),
    (SCREEN, "tanh.cuda"),
    (SCREEN, "tanh.approx"),
    ("exp.cuda", "tanh.cuda"),
    ("exp.cuda", "exp.cuda_fma"),
    ("tanh.approx", "tanh.cuda"),
)
STANDALONE_FUSED: Final = (DEVICE_SELECTS["standalone"], DEVICE_SELECTS["fused"])
APPROX_PRECISE: Final = (
    DEVICE_SELECTS["fused"]._replace(form="tanh.approx"),
    DEVICE_SELECTS["fused"],
)


def median_ms(work: Callable[[], Any], repeats: int = 30, warmup: int = 3) -> dict[str, float]:
    """Median, least and largest milliseconds of calls timed one by one with CUDA events."""
    for _ in range(warmup):
        work()
    if DEVICE == "cpu":
        return {"ms": float("nan"), "least": float("nan"), "largest": float("nan")}
    events = []
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        stop.record()
        events.append((start, stop))
    torch.cuda.synchronize()
    times = sorted(start.elapsed_time(stop) for start, stop in events)
    return {"ms": times[len(times) // 2], "least": times[0], "largest": times[-1]}


def replayed_ms(work: Callable[[], Any]) -> dict[str, float]:
    """As ``median_ms``, of a captured graph: without the gaps between launches."""
    work()
    if DEVICE == "cpu":
        return median_ms(work)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return median_ms(graph.replay)


def normal_logits(rows: int, seed: int) -> torch.Tensor:
    """[row, expert] float32 N(0, 1) logits on the device."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    return torch.randn((rows, EXPERTS), generator=generator, device=DEVICE)


def the_bias() -> Any:
    """[expert] float32 of normal biases."""
    return (BIAS_SPREAD * np.random.default_rng(7).standard_normal(EXPERTS)).astype(np.float32)


def environment() -> dict[str, Any]:
    """What the numbers were measured on."""
    name = "interpreter" if DEVICE == "cpu" else torch.cuda.get_device_name(0)
    return {
        "device": name,
        "multiprocessors": PROCESSORS,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
        "command": " ".join(sys.argv),
    }


def certify(state: dict[str, Any]) -> dict[str, Any]:
    """Records of all form pairs: the first (compiling) and second time, and what they found."""
    found: dict[str, Any] = {}
    bounds: dict[str, float] = {}
    for pair in FORM_PAIRS:
        started = time.perf_counter()
        device_scan(*pair)
        first = time.perf_counter() - started
        started = time.perf_counter()
        record = device_scan(*pair)
        seconds = time.perf_counter() - started
        whole = record.range("all")
        if pair[0] == SCREEN:
            bounds[pair[1]] = screen_bound(record)
        found[" ".join(pair)] = {
            "seconds": seconds,
            "first_seconds": first,
            "max_ulp": whole.pair.max_ulp,
            "max_ulp_abs16": record.range("abs16").pair.max_ulp,
            "max_abs": float(np.int64(whole.pair.max_abs_bits).view(np.float64)),
            "differ": whole.pair.differ,
            "drops": [form.drops for form in whole.forms],
            "problems": checks.certificate_problems(record, *pair),
            "record": record.as_dict(),
        }
    state["bounds"] = bounds
    found["torch"] = checks.torch_sigmoid_differences()
    return found


def bound_of(state: dict[str, Any], selects: tuple[DeviceSelect, DeviceSelect]) -> float:
    """The proven distance of the screen from both selects' forms."""
    bounds: dict[str, float] = state.get("bounds", ASSUMED_BOUNDS)
    return max(bounds[select.form] for select in selects)


def gate(
    state: dict[str, Any],
    selects: tuple[DeviceSelect, DeviceSelect] = STANDALONE_FUSED,
    exact: bool = False,
    **options: Any,
) -> DeviceGate:
    """A gate for the rows of this benchmark."""
    bound = None if exact else bound_of(state, selects)
    return DeviceGate(EXPERTS, TOP_K, the_bias(), selects, bound, capacity=state["rows"], **options)


def check_gates(state: dict[str, Any]) -> dict[str, Any]:
    """Failures of both screens, with and without weights, against plain torch on odd rows."""
    return checks.gate_failures(lambda selects: bound_of(state, selects), state["check_rows"])


def plain_torch(logits: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """What people run today: two score forms, two topk, and which rows' sets differ."""
    first = (torch.sigmoid(logits) + bias).topk(TOP_K).indices
    second = (0.5 * torch.tanh(0.5 * logits) + 0.5 + bias).topk(TOP_K).indices
    return (first.sort(1).values != second.sort(1).values).any(1).nonzero()


def time_gates(state: dict[str, Any]) -> dict[str, Any]:
    """Milliseconds of the floor, plain torch and every variant over the same rows."""
    rows = state["rows"]
    logits, bias = normal_logits(rows, 1), torch.from_numpy(the_bias()).to(DEVICE)
    state["logits"] = logits
    found: dict[str, Any] = {"floor": median_ms(logits.sum)}
    expected = gate(state, exact=True, weights=True)
    found["exact weights"] = median_ms(lambda: expected.launch(logits), 3, 1)
    truth = expected.result()
    variants: dict[str, dict[str, Any]] = {}
    for programs in (0, 16, 24, 32, 64, 256):
        count = programs * PROCESSORS
        many = programs or "rows"
        variants[f"set packed {many}"] = {"packed": True, "programs": count}
        variants[f"set float {many}"] = {"packed": False, "programs": count}
        if programs:
            variants[f"weights {programs}"] = {"weights": True, "programs": count}
    for name, options in variants.items():
        one = gate(state, **options)
        found[name] = median_ms(lambda one=one: one.launch(logits))
        result = one.result()
        found[name]["undecided"] = result.undecided
        found[name]["problems"] = checks.differences(result, truth, one.weights)
        if "packed 32" in name or name == "weights 24":
            found[name + " graph"] = replayed_ms(lambda one=one: one.launch(logits))
    found["floor again"] = median_ms(logits.sum)
    found["plain torch"] = median_ms(lambda: plain_torch(logits, bias), 5, 2)
    return found


def set_rates(state: dict[str, Any]) -> dict[str, Any]:
    """How many rows differ, and how, over several seeds; then approximate tanh against precise."""
    rows = state["rows"]
    found: dict[str, Any] = {}
    for name, selects, seeds in (
        ("exp.cuda, tanh.cuda", STANDALONE_FUSED, range(10, 14)),
        ("tanh.approx, tanh.cuda", APPROX_PRECISE, range(10, 11)),
    ):
        one = gate(state, selects, weights=True, programs=24 * PROCESSORS)
        differing, classes, histogram, undecided = 0, {}, np.zeros(256, np.int64), 0
        worst = 0
        for seed in seeds:
            logits = state["logits"].normal_(generator=torch.Generator(DEVICE).manual_seed(seed))
            one.launch(logits)
            result = one.result()
            differing += len(result.differing)
            undecided += result.undecided
            histogram += result.histogram
            worst = max(worst, result.worst[0] if result.worst else 0)
            for kind, count in checks.classes_of(logits, the_bias(), result).items():
                classes[kind] = classes.get(kind, 0) + count
        total = rows * len(seeds)
        found[name] = {
            "rows": total, "differing": differing, "rate": differing / total,
            "undecided": undecided, "classes": classes, "worst_weight_ulp": worst,
            "weight_ulp": {str(n): int(c) for n, c in enumerate(histogram) if c},
            "ms": median_ms(lambda one=one: one.launch(state["logits"]), 5, 1)["ms"],
        }  # fmt: skip
    return found


SECTIONS: Final = {
    "certify": certify,
    "checks": check_gates,
    "timings": time_gates,
    "rates": set_rates,
}


def table(report: dict[str, Any]) -> str:
    """The few numbers that matter, one a line."""
    lines = []
    for name, one in report.get("certify", {}).items():
        if "seconds" in one:
            lines.append(
                f"certify {name:28} {one['seconds']:7.3f} s (first {one['first_seconds']:.1f})"
                f"  max {one['max_ulp']} ulp, {one['max_abs']:.3e}"
                f"  differ {one['differ']:,}  drops {one['drops']}  problems {one['problems']}"
            )
        else:
            lines.append(f"torch.sigmoid against: {one}")
    for name, failures in report.get("checks", {}).items():
        lines.append(f"check {name:50} {failures}")
    timings = report.get("timings", {})
    floor = timings.get("floor", {}).get("ms", float("nan"))
    for name, one in timings.items():
        rest = {k: v for k, v in one.items() if k not in ("ms", "least", "largest")}
        lines.append(
            f"{name:24} {one['ms']:8.3f} ms  {one['ms'] / floor:6.2f} x floor"
            f"  ({one['least']:.3f}..{one['largest']:.3f})  {rest or ''}"
        )
    for name, one in report.get("rates", {}).items():
        short = {k: v for k, v in one.items() if k != "weight_ulp"}
        most = sorted(one["weight_ulp"].items(), key=lambda item: -item[1])[:10]
        lines.append(f"rate {name}: {short} weight_ulp {dict(most)}")
    return "\n".join(lines)


def main() -> int:
    """Run the sections, write the report, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="JSON report")
    parser.add_argument("--rows", type=int, default=800_000)
    parser.add_argument("--check-rows", type=int, default=20_000)
    parser.add_argument("--only", nargs="*", default=list(SECTIONS), choices=list(SECTIONS))
    args = parser.parse_args()
    report: dict[str, Any] = {"environment": environment(), "rows": args.rows, "errors": {}}
    state: dict[str, Any] = {"rows": args.rows, "check_rows": args.check_rows}
    # Wake the clocks and the allocator before anything is timed.
    device_score("exp.cuda", normal_logits(10_000, 0))
    plain_select(DEVICE_SELECTS["fused"], normal_logits(64, 0), normal_logits(1, 0)[0], TOP_K)
    for name in SECTIONS:
        if name not in args.only:
            continue
        started = time.perf_counter()
        try:
            report[name] = SECTIONS[name](state)
        except Exception:
            report["errors"][name] = traceback.format_exc()
            print(f"{name} failed:\n{report['errors'][name][-3000:]}", flush=True)
        print(f"{name}: {time.perf_counter() - started:.1f} s", flush=True)
        if args.out:
            args.out.write_text(json.dumps(report, indent=1, default=str) + "\n")
    report["bounds"] = state.get("bounds", {"assumed": ASSUMED_BOUNDS})
    print(json.dumps(report["environment"]), report["bounds"])
    print(table(report))
    return 1 if report["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
