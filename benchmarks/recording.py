"""Time the forward pass of a small MoE model of transformers with and without a recording.

    python benchmarks/recording.py [--out FILE]

DeepSeek-V3's architecture, randomly initialised, on one thread of a CPU: 4 layers, 32 experts of
half the hidden size, top 4, batches of 4 x 128 tokens; every row of every layer is recorded. Arms
of 12 passes alternate A B B A; a recorded arm is a whole recording, from entering the context to
leaving it with the bank written. The figures are ratios of sums in one run: of processor time (all
threads, the writing one too; what other programs take from the machine is not in it) and of wall
time. The logits of each pass are held against unrecorded ones bit for bit, and the bytes held by
the recording against its limit. One thread, since threads that wait for each other spin: on a busy
machine their processor time says nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

import neartie
from neartie.audit.environment import environment

RESULTS: Final = Path(__file__).parent / "results"
LIMIT: Final = 4 << 20
PASSES: Final = 12
RUNS: Final = ((256, torch.float32), (512, torch.float32), (512, torch.bfloat16))


def make_model(hidden: int, dtype: torch.dtype) -> Any:
    """Return the model that is timed."""
    torch.manual_seed(0)
    config = DeepseekV3Config(
        vocab_size=4096, hidden_size=hidden, intermediate_size=2 * hidden,
        moe_intermediate_size=hidden // 2,
        num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4, n_routed_experts=32,
        num_experts_per_tok=4, n_group=4, topk_group=2, n_shared_experts=1, first_k_dense_replace=0,
        q_lora_rank=None, kv_lora_rank=64, qk_rope_head_dim=16, qk_nope_head_dim=32, v_head_dim=64,
    )  # fmt: skip
    return DeepseekV3ForCausalLM(config).to(dtype).eval()


@dataclass
class Arm:
    """Seconds of the passes alone, and of everything, in wall and processor time."""

    passes: list[float] = field(default_factory=list)
    passes_cpu: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    whole_cpu: list[float] = field(default_factory=list)


def run(model: Any, inputs: list[torch.Tensor], arm: Arm) -> list[torch.Tensor]:
    """Return the logits of each pass; its seconds go to the arm."""
    outputs = []
    for tokens in inputs:
        wall, cpu = time.perf_counter(), time.process_time()
        outputs.append(model(tokens).logits)
        arm.passes.append(time.perf_counter() - wall)
        arm.passes_cpu.append(time.process_time() - cpu)
    return outputs


@torch.no_grad()
def measure(rounds: int, hidden: int, dtype: torch.dtype) -> dict[str, Any]:
    """Return the figures of ``rounds`` rounds of A B B A."""
    model = make_model(hidden, dtype)
    inputs = [torch.randint(4096, (4, 128)) for _ in range(PASSES)]
    expected = run(model, inputs, Arm())
    arms = {"plain": Arm(), "recorded": Arm()}
    reports = []
    for name in ("plain", "recorded", "recorded", "plain") * rounds:
        arm = arms[name]
        with tempfile.TemporaryDirectory() as place:
            wall, cpu = time.perf_counter(), time.process_time()
            if name == "plain":
                outputs = run(model, inputs, arm)
            else:
                out = Path(place) / "bank"
                with neartie.record(model, out=out, memory=LIMIT, quiet=True) as recording:
                    outputs = run(model, inputs, arm)
                reports.append(recording.report)
            arm.whole.append(time.perf_counter() - wall)
            arm.whole_cpu.append(time.process_time() - cpu)
        assert all(torch.equal(a, b) for a, b in zip(outputs, expected, strict=True))
    plain, recorded = arms["plain"], arms["recorded"]

    def over(figure: str) -> float:
        return round(sum(getattr(recorded, figure)) / sum(getattr(plain, figure)) - 1, 5)

    medians = {name: statistics.median(arm.passes) for name, arm in arms.items()}
    return {
        "hidden": hidden,
        "dtype": str(dtype).removeprefix("torch."),
        "parameters": sum(p.numel() for p in model.parameters()),
        "tokens_per_pass": inputs[0].numel(),
        "passes_per_arm": len(plain.passes),
        "overhead_processor_time": over("passes_cpu"),
        "overhead_wall_time": over("passes"),
        "overhead_wall_time_of_medians": round(medians["recorded"] / medians["plain"] - 1, 5),
        "overhead_with_the_bank_processor_time": over("whole_cpu"),
        "hooks_over_forward": round(statistics.median(r.overhead for r in reports), 5),
        "seconds_per_pass": {name: round(seconds, 4) for name, seconds in medians.items()},
        "outputs_bit_equal": True,
        "recorded_bytes": reports[0].bytes,
        "peak_bytes_held": max(report.peak_bytes for report in reports),
        "limit_bytes": LIMIT,
    }


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS / "recording.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    load = round(os.getloadavg()[0], 2)
    document = {
        "model": "DeepSeek-V3 architecture, 4 layers, 32 experts, top 4, CPU, one thread",
        "runs": [measure(arguments.rounds, hidden, dtype) for hidden, dtype in RUNS],
        "load_before": load,
        "threads": torch.get_num_threads(),
        "environment": environment(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    print(json.dumps(document, indent=1))
    arguments.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
