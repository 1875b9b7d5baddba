"""How often the width of a launch changes the expert set, through cuBLAS's router product alone.

Each row is multiplied at several widths with the same weights, shard by shard as P ranks do, and
selected by the route path's standalone top-k; logits and sets are held against those at width 20.
The rows are Gaussian, hidden BF16 of unit variance, router weights BF16 of variance 1 / hidden.

    PYTHONPATH=src python benchmarks/router_width.py --rows 72000 --out router_width.json

Needs torch with CUDA and Triton.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

import torch

from neartie.audit.environment import environment
from neartie.banks.geometry import PRESETS
from neartie.kernels.cuda.products import product_flags, router_product
from neartie.kernels.cuda.selects import DEVICE_SELECTS
from neartie.kernels.cuda.topk_triton import select_rows

WIDTHS: Final = (20, 1, 2, 4, 8, 9, 10, 12, 16)
"""The first is what the others are held against; each row is in a full launch at every width."""
GEOMETRY: Final = PRESETS["k3"][0]


def logits_at(hidden: Any, router: list[Any], width: int) -> Any:
    """Logits [row, expert] float32 of rows multiplied ``width`` at a time, shard by shard."""
    columns = len(router[0])
    out = torch.empty((len(hidden), columns * len(router)), device="cuda")
    piece = torch.empty((width, columns), device="cuda")
    for start in range(0, len(hidden), width):
        x = hidden[start : start + width]
        for rank, weight in enumerate(router):
            mine = piece[: len(x)]
            router_product(x, weight, mine)
            out[start : start + width, rank * columns : (rank + 1) * columns] = mine
    return out


def sets_of(logits: Any, bias: Any) -> Any:
    """The sorted ids [row, slot] that the standalone select takes."""
    ids = torch.empty((len(logits), GEOMETRY.top_k), dtype=torch.int32, device="cuda")
    weights = torch.empty(ids.shape, device="cuda")
    select_rows(logits, bias, DEVICE_SELECTS["standalone"], GEOMETRY.top_k, 1.0, ids, weights)
    return ids.sort(dim=1).values


def measure(rows: int, ranks: int, seed: int, wide: bool, reduced: bool) -> list[dict[str, Any]]:
    """Count what changes at each width, in chunks of rows that every width divides."""
    random = torch.Generator("cuda").manual_seed(seed)
    router = torch.randn((GEOMETRY.experts, GEOMETRY.hidden), device="cuda", generator=random)
    router = (router * GEOMETRY.hidden**-0.5).to(torch.bfloat16)
    bias = 0.02 * torch.randn(GEOMETRY.experts, device="cuda", generator=random)
    shards = [part.contiguous() for part in (router.float() if wide else router).chunk(ranks)]
    counts = {width: [0, 0, 0.0, 0.0, 0.0, 0, 0] for width in WIDTHS}
    for _ in range(rows // 7200):
        hidden = torch.randn((7200, GEOMETRY.hidden), device="cuda", generator=random)
        hidden = hidden.to(torch.bfloat16)
        x = hidden.float() if wide else hidden
        first: Any = None
        with product_flags(reduced):
            exact = torch.matmul(hidden.double(), router.double().t())
            for width in WIDTHS:
                logits = logits_at(x, shards, width)
                sets = sets_of(logits, bias)
                if first is None:
                    first = (logits, sets)
                count, step = counts[width], logits - first[0]
                changed = (sets != first[1]).any(1)
                count[0] += len(hidden)
                count[1] += int((step != 0).any(1).sum())
                count[2] += float(step.double().square().sum())
                count[3] += float(first[0].double().square().sum())
                count[4] += float((logits.double() - exact).square().sum())
                count[5] += int(changed.sum())
                count[6] += int((_missing(first[1][changed], sets[changed]) == 1).sum())
    return [_line(width, counts[width]) for width in WIDTHS]


def _missing(a: Any, b: Any) -> Any:
    """How many ids of each row of ``a`` are not in that of ``b``."""
    return (~(a[:, :, None] == b[:, None, :]).any(2)).sum(1)


def _line(width: int, count: list[Any]) -> dict[str, Any]:
    rows, differing, step, norm, error, changed, single = count
    return {
        "width": width,
        "against": WIDTHS[0],
        "rows": rows,
        "rows_with_other_logits": differing,
        "relative_rms_to_first": (step / norm) ** 0.5,
        "relative_rms_to_fp64": (error / norm) ** 0.5,
        "sets_changed": changed,
        "sets_changed_one_for_one": single,
    }


def main() -> None:
    """Measure three ways to multiply and write one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=72_000)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    result = {
        "environment": environment("cuda"),
        "ranks": given.ranks,
        "seed": given.seed,
        "products": {
            name: measure(given.rows, given.ranks, given.seed, wide, reduced)
            for name, wide, reduced in (
                ("bf16 operands, fp32 output", False, False),
                ("bf16 operands, split-k may add in bf16", False, True),
                ("fp32 operands, tf32 off", True, False),
            )
        },
    }
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["products"], indent=1))


if __name__ == "__main__":
    main()
