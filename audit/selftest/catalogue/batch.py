"""Faults that only several rows, launches, runs, ranks or widths together show."""

from __future__ import annotations

from typing import Final

import numpy as np

from ....kernels.contract import Launch, Path, Routed
from ..fault import SEVERAL_RANKS, SEVERAL_ROWS, Fault, always
from ..loops import held, picked, scores_and_keys, select_again
from ..scenes import FRONT, LARGE_BIAS, SELECT
from .score import bf16, bias_in_bf16, with_bias


class _Replay:
    """A captured launch is replayed, and its inputs are never copied in again."""

    def __init__(self) -> None:
        self._captured: Launch | None = None

    def __call__(self, clean: Path, launch: Launch, out: Routed) -> None:
        if self._captured is None:
            self._captured = launch
        clean.run(self._captured, out)


class _TailOfTheLastLaunch:
    """The grid covers 7 of 8 rows; beyond it the outputs keep what the last launch left."""

    def __init__(self) -> None:
        self._last: Routed | None = None

    def __call__(self, clean: Path, launch: Launch, out: Routed) -> None:
        clean.run(launch, out)
        fresh = Routed(out.ids.copy(), out.weights.copy())
        first = launch.width - max(1, launch.width // 8)
        if self._last is not None:
            out.ids[:, first:] = self._last.ids[:, first:]
            out.weights[:, first:] = self._last.weights[:, first:]
        self._last = fresh


def _tail_unwritten(clean: Path, launch: Launch, out: Routed) -> None:
    """The grid covers 7 of 8 rows; beyond it nothing is written."""
    first = launch.width - max(1, launch.width // 8)
    ids, weights = out.ids[:, first:].copy(), out.weights[:, first:].copy()
    clean.run(launch, out)
    out.ids[:, first:], out.weights[:, first:] = ids, weights


class _ArrivalOrder:
    """Selected scores are added with atomics, in whatever order they arrive."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(11)

    def __call__(self, clean: Path, launch: Launch, out: Routed) -> None:
        clean.run(launch, out)
        scores, _ = scores_and_keys(launch, held(launch, out))
        chosen = picked(scores, out.ids[0])
        total = np.zeros(len(chosen), np.float32)
        for slot in self._rng.permutation(chosen.shape[1]):
            total = total + chosen[:, slot]
        out.weights[:] = chosen / total[:, None] * np.float32(launch.scoring.scale)


def _one_rank_with_an_older_bias(clean: Path, launch: Launch, out: Routed) -> None:
    """An update of the bias reached rank 0 and its neighbours, but not the last rank."""
    clean.run(launch, out)
    if launch.ranks == 1:
        return
    older = np.roll(launch.weights.bias, 1)
    mine = Routed(np.empty_like(out.ids), np.empty_like(out.weights))
    select_again(clean, with_bias(launch, older), mine, held(launch, out))
    out.ids[-1], out.weights[-1] = mine.ids[-1], mine.weights[-1]


def _one_rank_in_bf16(clean: Path, launch: Launch, out: Routed) -> None:
    """The last rank gets the others' logits in fewer bits, and selects from those."""
    clean.run(launch, out)
    if launch.ranks == 1:
        return
    assert out.logits is not None
    out.logits[-1] = bf16(out.logits[-1])
    mine = Routed(np.empty_like(out.ids), np.empty_like(out.weights))
    select_again(clean, launch, mine, out.logits[-1])
    out.ids[-1], out.weights[-1] = mine.ids[-1], mine.weights[-1]


def _ids_permuted(clean: Path, launch: Launch, out: Routed) -> None:
    """Physical ids come back where logical ones are asked for."""
    clean.run(launch, out)
    experts = launch.geometry.experts
    physical = np.random.default_rng(7).permutation(experts).astype(np.int32)
    out.ids[:] = physical[out.ids]


def _other_arithmetic_when_wide(clean: Path, launch: Launch, out: Routed) -> None:
    """A wider launch takes a kernel that adds the weights in another order."""
    clean.run(launch, out)
    scores, _ = scores_and_keys(launch, held(launch, out))
    chosen = picked(scores, out.ids[0])
    if launch.width > 1:
        total = chosen[:, ::-1].cumsum(axis=1, dtype=np.float32)[:, -1:]
        out.weights[:] = chosen / total * np.float32(launch.scoring.scale)


FAULTS: Final = (
    Fault(
        "stale_replay",
        "a captured launch is replayed on the inputs that it was captured with",
        "a CUDA graph whose input buffers moved",
        (FRONT,),
        _Replay,
        ("stale_output",),
    ),
    Fault(
        "unwritten_tail",
        "the last rows of a launch are not written",
        "mirage-project/mirage#764",
        (FRONT,),
        always(_tail_unwritten),
        ("unwritten_rows",),
    ),
    Fault(
        "tail_of_the_last_launch",
        "the last rows of a launch keep what the launch before left there",
        "kvcache-ai/sglang#68",
        (SELECT,),
        _TailOfTheLastLaunch,
        ("unwritten_rows", "stale_output"),
        implies=("nondeterministic",),
    ),
    Fault(
        "one_rank_with_an_older_bias",
        "one rank selects with a bias that the others no longer have",
        "vllm-project/vllm-ascend#15451",
        (SELECT,),
        always(_one_rank_with_an_older_bias),
        ("rank_disagreement",),
        (SEVERAL_RANKS,),
    ),
    Fault(
        "one_rank_in_bf16",
        "one rank selects from logits in BF16",
        "pytorch/torchtitan#2416",
        (FRONT,),
        always(_one_rank_in_bf16),
        ("rank_disagreement",),
        (SEVERAL_RANKS,),
        ("explained_by:bf16_logits",),
    ),
    Fault(
        "ids_permuted",
        "physical expert ids are returned for logical ones",
        "an expert map applied once too often",
        (SELECT,),
        always(_ids_permuted),
        ("id_permutation", "explained_by:id_permutation"),
    ),
    Fault(
        "nondeterministic_sum",
        "the weights' sum depends on the order in which threads arrive",
        "tt-metal#46449",
        (SELECT,),
        _ArrivalOrder,
        ("nondeterministic",),
    ),
    Fault(
        "width_changes_the_sum",
        "a row's weights depend on the width although the path declares that they do not",
        "two kernels behind one name",
        (SELECT,),
        always(_other_arithmetic_when_wide),
        ("width_dependent",),
        (SEVERAL_ROWS,),
        extra_width=lambda width: 1,
    ),
    Fault(
        "oracle_repeats_the_fault",
        "baseline and candidate share the mistake, so they agree with each other",
        "sgl-project/sglang#6946",
        (LARGE_BIAS,),
        always(bias_in_bf16),
        ("oracle_echo",),
        implies=("explained_by:bf16_bias",),
        in_both=True,
    ),
)
