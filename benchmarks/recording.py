"""Time the forward pass of a small MoE model of transformers with and without a recording.

    python benchmarks/recording.py [--out FILE]

DeepSeek-V3's architecture, randomly initialised, BF16, on the CPU: 4 layers, hidden 512, 64 experts of
256, top 8, batches of 4 x 128 tokens; every row of every layer is recorded. Whole recordings (from
entering the context to leaving it, so with the bank written and checked) alternate A B B A with the
same passes unrecorded; the figure is the ratio of sums in one run, and of the forward passes alone.
Also holds the logits of each pass against the unrecorded ones, bit for bit, and the memory held by the
recording against its limit. Takes about two minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

import neartie
from neartie.audit.environment import environment

RESULTS: Final = Path(__file__).parent / "results"
LIMIT: Final = 8 << 20
PASSES: Final = 6


def make_model() -> Any:
    """Return the model that is timed."""
    torch.manual_seed(0)
    config = DeepseekV3Config(
        vocab_size=4096, hidden_size=512, intermediate_size=1024, moe_intermediate_size=256,
        num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=8, n_routed_experts=64,
        num_experts_per_tok=8, n_group=4, topk_group=2, n_shared_experts=1, first_k_dense_replace=0,
        q_lora_rank=None, kv_lora_rank=64, qk_rope_head_dim=16, qk_nope_head_dim=32, v_head_dim=64,
    )  # fmt: skip
    return DeepseekV3ForCausalLM(config).to(torch.bfloat16).eval()


def passes(model: Any, inputs: list[torch.Tensor]) -> tuple[list[float], list[torch.Tensor]]:
    """Return seconds and logits of each pass."""
    seconds, outputs = [], []
    for tokens in inputs:
        started = time.perf_counter()
        outputs.append(model(tokens).logits)
        seconds.append(time.perf_counter() - started)
    return seconds, outputs


@torch.no_grad()
def measure(rounds: int) -> dict[str, Any]:
    """Return the figures of ``rounds`` rounds of A B B A."""
    model = make_model()
    inputs = [torch.randint(4096, (4, 128)) for _ in range(PASSES)]
    _, expected = passes(model, inputs)
    whole: dict[str, list[float]] = {"plain": [], "recorded": []}
    forward: dict[str, list[float]] = {"plain": [], "recorded": []}
    peaks, hooks, sizes, equal = [], [], [], True
    for number in range(rounds * 4):
        arm = ("plain", "recorded", "recorded", "plain")[number % 4]
        with tempfile.TemporaryDirectory() as place:
            started = time.perf_counter()
            if arm == "plain":
                seconds, outputs = passes(model, inputs)
            else:
                recording = neartie.record(
                    model, out=Path(place) / "bank", memory=LIMIT, quiet=True
                )
                with recording:
                    seconds, outputs = passes(model, inputs)
                assert recording.report is not None
                peaks.append(recording.report.peak_bytes)
                hooks.append(recording.report.overhead or 0.0)
                sizes.append(recording.report.bytes)
            whole[arm].append(time.perf_counter() - started)
        forward[arm] += seconds
        equal &= all(torch.equal(a, b) for a, b in zip(outputs, expected, strict=True))
    ratio = {name: sum(t["recorded"]) / sum(t["plain"]) - 1 for name, t in
             (("forward", forward), ("whole", whole))}  # fmt: skip
    medians = {arm: statistics.median(times) for arm, times in forward.items()}
    return {
        "model": "DeepSeek-V3 architecture, 4 layers, hidden 512, 64 experts, top 8, BF16, CPU",
        "parameters": sum(p.numel() for p in model.parameters()),
        "tokens_per_pass": inputs[0].numel(),
        "passes_per_arm": rounds * 2 * PASSES,
        "forward_overhead": round(ratio["forward"], 5),
        "forward_overhead_by_medians": round(medians["recorded"] / medians["plain"] - 1, 5),
        "overhead_with_the_bank_written": round(ratio["whole"], 5),
        "hooks_over_forward": round(statistics.median(hooks), 5),
        "seconds_per_pass": {arm: round(seconds, 4) for arm, seconds in medians.items()},
        "outputs_bit_equal": equal,
        "recorded_bytes": sizes[0],
        "peak_bytes_held": max(peaks),
        "limit_bytes": LIMIT,
    }


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--out", type=Path, default=RESULTS / "recording.json")
    arguments = parser.parse_args()
    load = round(os.getloadavg()[0], 2)
    figures = measure(arguments.rounds)
    document = {
        **figures,
        "load_before": load,
        "threads": torch.get_num_threads(),
        "environment": environment(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    print(json.dumps(document, indent=1))
    arguments.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
