"""What ``gpu_gate`` checks before it times: the kernels against plain torch, on fresh odd rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch

from neartie.kernels.cuda.gate_triton import DeviceGate, GateResult
from neartie.kernels.cuda.lang import device
from neartie.kernels.cuda.plain import plain_gate
from neartie.kernels.cuda.scores_triton import device_score
from neartie.kernels.cuda.selects import DEVICE_SELECTS, DeviceSelect
from neartie.kernels.exhaustive.float_line import bits_at, place_of_bits
from neartie.kernels.exhaustive.record import ScanRecord

DEVICE: Final = device()
POISON: Final = -77
_CHUNK: Final = 1 << 26


def odd_rows(kind: str, rows: int, experts: int, seed: int) -> torch.Tensor:
    """[row, expert] float32 logits of one kind on the device."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    x = torch.randn((rows, experts), generator=generator, device=DEVICE)
    if kind == "bf16":
        return x.to(torch.bfloat16).float()
    if kind == "saturated":
        return x * 30.0
    if kind == "few_values":
        return (x * 2.0).round() / 2.0
    if kind == "all_equal":
        return x[:, :1].expand(-1, experts).contiguous()
    if kind == "one_lane":
        x[:, :4] += 4.0
        x[:, 128:132] += 4.0
        return x
    if kind == "not_finite":
        chance = torch.rand(x.shape, generator=generator, device=DEVICE)
        x[chance < 0.01] = torch.nan
        x[(chance > 0.01) & (chance < 0.02)] = torch.inf
        x[(chance > 0.02) & (chance < 0.03)] = -torch.inf
        x[0], x[1], x[2, 5:] = torch.nan, -torch.inf, torch.nan
        x[1000:] = torch.where(x[1000:].isfinite(), x[1000:], 0.0)
    return x


KINDS: Final = (
    "normal", "bf16", "saturated", "few_values", "all_equal", "one_lane", "not_finite",
)  # fmt: skip


def differences(result: GateResult, truth: GateResult, weights: bool) -> list[str]:
    """In which fields a result is not the true one."""
    found = []
    for name in ("rows", "differing", "ids") + (("histogram", "worst") if weights else ()):
        if not np.array_equal(getattr(result, name), getattr(truth, name)):
            found.append(name)
    return found


def _poison(one: DeviceGate) -> None:
    for buffer in (one._listed, one._rows_out, one._ids_out, one._histogram, one._worst):
        buffer.fill_(POISON)


def gate_failures(
    bound_of: Callable[[tuple[DeviceSelect, DeviceSelect]], float],
    rows: int,
) -> dict[str, Any]:
    """Per geometry and pair of selects: failures, and rows that differed or were undecided."""
    named = DEVICE_SELECTS
    pairs = {
        "standalone, fused": (named["standalone"], named["fused"]),
        "topk_sigmoid, grouped_topk": (named["topk_sigmoid"], named["grouped_topk"]),
        "approx, precise": (
            DeviceSelect(
                "tanh.approx", weight_sum="butterfly", normalise="divide_eps", epsilon=1e-20
            ),
            DeviceSelect("tanh.cuda", nan_key="highest", normalise="none"),
        ),
    }  # fmt: skip
    found: dict[str, Any] = {}
    seed = int(torch.seed()) % (1 << 31)
    geometries = {
        (896, 16): tuple(pairs),
        (256, 8): ("standalone, fused",),
        (384, 6): tuple(pairs)[2:],
    }
    for (experts, top_k), names in geometries.items():
        for name in names:
            selects, failures, differing, undecided, cases = pairs[name], [], 0, 0, 0
            for kind in KINDS:
                seed += 1
                spread = 0.0 if kind in ("bf16", "all_equal") else 0.02
                drawn = np.random.default_rng(seed).standard_normal(experts)
                bias = (spread * drawn).astype(np.float32)
                x = odd_rows(kind, rows, experts, seed)
                truth = plain_gate(x, torch.from_numpy(bias).to(DEVICE), selects, top_k, 2.5)
                differing += len(truth.differing)
                for packed, weights, programs in (
                    (False, False, 0), (True, False, 0), (True, True, 500),
                ):  # fmt: skip
                    one = DeviceGate(
                        experts, top_k, bias, selects, bound_of(selects), capacity=rows,
                        packed=packed, weights=weights, programs=programs, scale=2.5,
                    )  # fmt: skip
                    _poison(one)
                    one.launch(x)
                    result = one.result()
                    undecided += result.undecided
                    cases += 1
                    wrong = differences(result, truth, weights)
                    if wrong:
                        failures.append([kind, packed, weights, seed, wrong])
            found[f"{experts} top {top_k} {name}"] = {
                "failures": failures, "cases": cases, "differing": differing,
                "undecided": undecided, "last_seed": seed,
            }  # fmt: skip
    return found


def _steps(scores: torch.Tensor) -> torch.Tensor:
    bits = scores.view(torch.int32).to(torch.int64)
    return torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def _patterns(start: int) -> torch.Tensor:
    """``_CHUNK`` consecutive bit patterns as float32."""
    bits = torch.arange(start, start + _CHUNK, dtype=torch.int64, device=DEVICE)
    return torch.where(bits >= 1 << 31, bits - (1 << 32), bits).to(torch.int32).view(torch.float32)


def certificate_problems(record: ScanRecord, form_a: str, form_b: str) -> list[str]:
    """Where a record is not what plain torch counts over all bit patterns of the same scores."""
    differ, most, far, inputs = 0, 0, 0.0, 0
    for start in range(0, 1 << 32, _CHUNK):
        x = _patterns(start)
        finite = x.isfinite()
        a, b = (torch.where(finite, device_score(form, x), 0.0) for form in (form_a, form_b))
        apart = (_steps(a) - _steps(b)).abs()
        inputs += int(finite.sum())
        differ += int((apart != 0).sum())
        most = max(most, int(apart.max()))
        far = max(far, float((a.double() - b.double()).abs().max()))
    pair = record.range("all").pair
    largest = float(np.int64(pair.max_abs_bits).view(np.float64))
    found = {
        "inputs": pair.inputs == inputs,
        "differ": pair.differ == differ,
        "max_ulp": pair.max_ulp == most,
        # The record rounds up where FP64 cannot hold the difference.
        "max_abs": 0.0 <= largest - far <= np.spacing(far),
        "histogram": sum(record.range("all").histogram) == inputs,
        "witness": _distance_at(form_a, form_b, pair.max_ulp_at) == most,
    }
    return [name for name, right in found.items() if not right]


def _distance_at(form_a: str, form_b: str, place: int) -> int:
    if place < 0:
        return 0
    assert place_of_bits(bits_at(place)) == place
    bits = np.array([bits_at(place)], np.uint32)
    x = torch.from_numpy(bits.view(np.float32)).to(DEVICE)
    a, b = (_steps(device_score(form, x)) for form in (form_a, form_b))
    return abs(int(a) - int(b))


def torch_sigmoid_differences() -> dict[str, Any]:
    """On how many of all finite inputs torch's own functions give other bits than our forms."""
    counts = {"exp.cuda": 0, "exp.cuda_fma": 0, "tanh.cuda": 0}
    for start in range(0, 1 << 32, _CHUNK):
        x = _patterns(start)
        finite = x.isfinite()
        theirs = {"exp.cuda": torch.sigmoid(x), "tanh.cuda": 0.5 * torch.tanh(0.5 * x) + 0.5}
        theirs["exp.cuda_fma"] = theirs["exp.cuda"]
        for form, other in theirs.items():
            counts[form] += int((finite & (device_score(form, x) != other)).sum())
    return counts


def classes_of(logits: torch.Tensor, bias: Any, result: GateResult) -> dict[str, int]:
    """How many differing rows are of which kind, by keys derived in FP64 and rounded once each."""
    found: dict[str, int] = {}
    rows = result.differing[:2000]
    values = logits[torch.from_numpy(rows).to(logits.device).long()].cpu().numpy()
    scores = (1.0 / (1.0 + np.exp(-values.astype(np.float64)))).astype(np.float32)
    keys = scores + bias
    for row, (first, second) in enumerate(result.ids):
        if row == len(rows):
            found["not classed"] = len(result.ids) - row
            break
        dropped, added = set(first) - set(second), set(second) - set(first)
        if len(dropped) > 1:
            kind = f"{len(dropped)}-for-{len(dropped)}"
        else:
            both = keys[row, [dropped.pop(), added.pop()]].view(np.int32).astype(np.int64)
            gap = abs(int(both[0]) - int(both[1]))
            kind = f"{gap} ulp" if gap <= 8 else "beyond 8 ulp"
        found[kind] = found.get(kind, 0) + 1
    return found
