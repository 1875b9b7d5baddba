"""Train a k3-mini and record its routers: ``python -P -m neartie.banks.recipes.train_k3_mini OUT``.

Made for one GPU: 1,500 steps of 32,768 bytes at the sizes of the shipped banks. ``--tiny`` is a toy
of seconds on a CPU. The text is ``--text FOLDER``, by default the sources of Python's standard
library, split by document: training never sees the recorded ones. OUT gets a bank a layer: one row
of each held-out document (its own draw of positions in each layer), recorded in launches of 20
rows; the independence unit is the document. The shipped banks were made from more text, with a
tokenizer of 8,192 entries instead of bytes; the front is the same otherwise.

Not the same bits twice on a GPU, where sums of gradients have no fixed order.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from ..bank import Array
from ..errors import InputError
from ..geometry import MAX_WIDTH
from ..recording.record import record
from ..recording.report import RecordingReport
from .k3_mini_corpus import Corpus, default_paths, read_corpus
from .k3_mini_model import SPEC, TINY, K3Mini, Sizes

_WARM_UP: Final = 0.06
"""Share of the steps in which the learning rate rises."""
_CHUNK: Final = 16
"""Held-out windows in one forward pass."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how fast to train.

    Attributes:
        steps: optimiser steps.
        batch: windows a step.
        rate: highest learning rate; warm-up, then cosine to a twentieth.
        bias_step: how far the load moves a bias; constant to 60% of the steps, 0 from 90%.
        rows: most rows a layer that are recorded.
        seed: of weights, order and positions.
    """

    steps: int = 1500
    batch: int = 64
    rate: float = 2e-3
    bias_step: float = 1e-3
    rows: int = 1000
    seed: int = 0


def train(model: K3Mini, corpus: Corpus, plan: Plan, device: str) -> list[float]:
    """Train a model in place and return the loss of each step, in nats a byte."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=plan.rate, betas=(0.9, 0.95))
    stream = torch.from_numpy(corpus.training).to(device)
    generator = torch.Generator().manual_seed(plan.seed)
    window = torch.arange(model.sizes.window + 1, device=device)
    rising = max(1.0, _WARM_UP * plan.steps)
    losses = []
    model.train()
    for step in range(plan.steps):
        part = step / plan.steps
        cosine = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * part))
        for group in optimizer.param_groups:
            group["lr"] = plan.rate * min(1.0, (step + 1) / rising) * cosine
        starts = torch.randint(len(stream) - len(window), (plan.batch, 1), generator=generator)
        loss = model.loss(stream[starts.to(device) + window].long())
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        for gate in model.gates():
            gate.move_bias(plan.bias_step * min(1.0, max(0.0, (0.9 - part) / 0.3)))
        losses.append(loss.detach())
    return [float(loss) for loss in losses]


@dataclass(frozen=True, eq=False)
class _Rows:
    """Router inputs of one layer: hidden [row, width] BF16, and integer keys [row]."""

    hidden: torch.Tensor
    keys: dict[str, Array]


@torch.no_grad()
def collect(model: K3Mini, corpus: Corpus, plan: Plan, device: str) -> tuple[list[_Rows], float]:
    """Return one row a held-out document for each layer, and the mean loss on those documents.

    Raises:
        InputError: fewer held-out documents than one launch has rows.
    """
    window, rng = model.sizes.window, np.random.default_rng(plan.seed)
    count = min(plan.rows, len(corpus.held_out)) // MAX_WIDTH * MAX_WIDTH
    if not count:
        got = f"{len(corpus.held_out)} held out, {plan.rows} wanted"
        raise InputError("rows", got, f"at least {MAX_WIDTH}", "k3-mini recipe")
    docs = np.sort(rng.permutation(len(corpus.held_out))[:count])
    starts = np.array([rng.integers(len(corpus.held_out[doc]) - window) for doc in docs])
    parts = [corpus.held_out[d][s : s + window + 1] for d, s in zip(docs, starts, strict=True)]
    text = np.stack(parts).astype(np.int64)
    model.eval()
    seen: list[list[torch.Tensor]] = [[] for _ in model.gates()]
    places = [rng.integers(window // 8, window, count) for _ in seen]
    losses = []
    for first in range(0, count, _CHUNK):
        tokens = torch.from_numpy(text[first : first + _CHUNK]).to(device)
        inputs, loss = _gate_inputs(model, tokens)
        losses.append(loss * len(tokens))
        for layer, rows in enumerate(inputs):
            place = torch.from_numpy(places[layer][first : first + _CHUNK]).to(device)
            inside = torch.arange(len(place), device=device)
            seen[layer].append(rows.view(len(tokens), window, -1)[inside, place])
    found = []
    for hidden, position in zip(seen, places, strict=True):
        token = text[np.arange(count), position]
        columns = {"doc": docs, "position": position, "window_start": starts, "token_ids": token}
        # Neighbours of one launch come from anywhere in the corpus.
        order = rng.permutation(count)
        keys = {name: values[order].astype(np.int32) for name, values in columns.items()}
        found.append(_Rows(torch.cat(hidden)[torch.from_numpy(order).to(device)], keys))
    return found, sum(losses) / count


def _gate_inputs(model: K3Mini, tokens: torch.Tensor) -> tuple[list[torch.Tensor], float]:
    """The router inputs [row, width] of each layer, and the loss, of windows [window, token]."""
    inputs: list[torch.Tensor] = []
    handles = [
        gate.register_forward_pre_hook(lambda module, args: inputs.append(args[0]))
        for gate in model.gates()
    ]
    loss = float(model.loss(tokens))
    for handle in handles:
        handle.remove()
    return inputs, loss


@torch.no_grad()
def record_rows(
    model: K3Mini, rows: Sequence[_Rows], out: Path, provenance: dict[str, Any]
) -> RecordingReport:
    """Record launches of 20 rows of each layer's gate into a bank a layer."""
    recording = record(
        model, out=out, specs=[SPEC], name="k3-mini", path="model", unit="doc",
        provenance=provenance,
    )  # fmt: skip
    with recording:
        for gate, layer in zip(model.gates(), rows, strict=True):
            for first in range(0, len(layer.hidden), MAX_WIDTH):
                part = slice(first, first + MAX_WIDTH)
                recording.mark(**{name: values[part] for name, values in layer.keys.items()})
                gate(layer.hidden[part])
    assert recording.report is not None
    return recording.report


def make(out: Path, paths: Sequence[Path], sizes: Sizes, plan: Plan, device: str) -> dict[str, Any]:
    """Train, record, and return the figures of the run.

    Raises:
        InputError: too little text, or a directory that is taken.
    """
    corpus = read_corpus(paths, sizes.window + 1)
    torch.manual_seed(plan.seed)
    # Products of FP32 stay FP32.
    torch.backends.cuda.matmul.allow_tf32 = False
    with torch.device(device):
        model = K3Mini(sizes)
    started = time.perf_counter()
    losses = train(model, corpus, plan, device)
    seconds = time.perf_counter() - started
    rows, held_out_loss = collect(model, corpus, plan, device)
    last = losses[-max(1, len(losses) // 20) :]
    figures = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "tokens": plan.steps * plan.batch * sizes.window,
        "seconds": round(seconds, 1),
        "first_loss": round(losses[0], 4),
        "final_loss": round(sum(last) / len(last), 4),
        "held_out_loss": round(held_out_loss, 4),
        "bias": [[round(float(e), 4) for e in g.bias.aminmax()] for g in model.gates()],
    }
    provenance = {
        "model": f"k3-mini recipe: {figures['parameters']:,} parameters, {sizes.experts} experts, "
        f"top {sizes.top_k}; K3's routing rule, toy sizes, no Kimi weights",
        "sizes": asdict(sizes),
        "training": {**asdict(plan), **figures},
        "seeds": {"training": plan.seed},
        "corpus": {"source": corpus.source, "sha256": corpus.digest},
        "router_weight": "trained in FP32, rounded to BF16 before every product; the BF16 value",
    }
    report = record_rows(model, rows, out, provenance)
    return {**figures, "rows": dict(report.rows), "digests": dict(report.digests)}


def main(arguments: list[str]) -> int:
    """Run the recipe and return its exit status."""
    parser = argparse.ArgumentParser(prog="train_k3_mini", description=__doc__)
    parser.add_argument("out", type=Path, help="a new or empty directory")
    parser.add_argument("--text", type=Path, nargs="+", help="files or folders of text")
    parser.add_argument("--tiny", action="store_true", help="a toy of seconds, for a CPU")
    parser.add_argument("--steps", type=int, help="optimiser steps")
    parser.add_argument("--rows", type=int, default=1000, help="most rows a layer")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes, batch, steps = (TINY, 4, 30) if given.tiny else (Sizes(), 64, 1500)
    plan = Plan(given.steps or steps, batch, rows=given.rows, seed=given.seed)
    try:
        figures = make(given.out, given.text or default_paths(), sizes, plan, device)
    except (InputError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    for name, value in figures.items():
        print(f"{name}: {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
