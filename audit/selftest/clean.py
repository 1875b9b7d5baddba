"""Random banks with a clean pair of paths: an audit that fails there raises a false alarm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ..run import run_audit
from ..verdict import State

_AXES: Final = (32, 64, 128, 256)
_RANKS: Final = (1, 2, 4, 8)
_ORDERS: Final = ("left_to_right", "fold", "butterfly", "ascending")
_SAME_SCORES: Final = {
    "exp": ("standalone", "topk_sigmoid", "ascending", "standalone,score=exp"),
    "tanh": ("fused", "grouped_topk", "noaux_tc"),
    "rule": ("hf", "grouped", "fp64"),
    "rule in FP32": ("hf", "grouped"),
}
"""Selects with one score form: they differ in sum, division, slot order and non-finite values."""
_SCHEDULES: Final = (
    "one_shot_fp32",
    "running_bf16",
    "ring_bf16",
    "tree_bf16",
)


@dataclass(frozen=True)
class CleanPair:
    """One audit of two paths that the policy must not tell apart.

    Attributes:
        bank: spec of a generator.
        baseline, candidate: specs of paths.
        widths: rows per launch.
        ranks: tensor-parallel ranks.
    """

    bank: str
    baseline: str
    candidate: str
    widths: tuple[int, ...]
    ranks: int

    def command(self) -> str:
        """The command that repeats the audit."""
        widths = ",".join(map(str, self.widths))
        return (
            f"neartie audit {self.bank} --baseline {self.baseline} --candidate {self.candidate} "
            f"--rows {widths} --ranks {self.ranks} --no-gate"
        )


@dataclass(frozen=True)
class CleanResult:
    """What the audit of a clean pair said.

    Attributes:
        pair: what was audited.
        state: the verdict's.
        failing: codes of the reasons that fail: a false alarm where there is one.
        rows: rows compared, over all widths and ranks.
    """

    pair: CleanPair
    state: str
    failing: tuple[str, ...]
    rows: int


def random_pair(number: int) -> CleanPair:
    """Draw the clean pair of a number: the same number, the same pair."""
    rng = np.random.default_rng((20_261_130, number))

    def one(values: tuple[str, ...]) -> str:
        return values[int(rng.integers(len(values)))]

    ranks = _RANKS[int(rng.integers(len(_RANKS)))]
    widths = np.sort(rng.choice(np.arange(1, 21), size=int(rng.integers(1, 4)), replace=False))
    bank, scores = _bank(rng, number)
    selects = _SAME_SCORES[scores]
    first, second = one(selects), one(selects)
    # Two sums of one select may end a rounding apart; that is an order, not a fault.
    order = f",sum={one(_ORDERS)}" if rng.random() < 0.3 else ""
    baseline = f"general:select={first}{order}"
    if bank.startswith("gaussian") and "stage=logits" not in bank and rng.random() < 0.5:
        baseline += f",reduce={one(_SCHEDULES)}"
    blocks = ",row_blocks=2" if rng.random() < 0.3 else ""
    return CleanPair(
        bank, baseline, f"route:select={second}{blocks}", tuple(widths.tolist()), ranks
    )


def _bank(rng: np.random.Generator, number: int) -> tuple[str, str]:
    """A generator's spec, and the score forms that are clean on it."""
    hidden, latent, experts = (_AXES[int(i)] for i in rng.integers(len(_AXES), size=3))
    top_k = int(rng.choice([k for k in (1, 2, 4, 6, 8, 16) if k < experts]))
    rows = int(rng.integers(1, 65))
    size = f"geometry={hidden}x{latent}x{experts}x{top_k},rows={rows},seed={number}"
    any_form = str(rng.choice(list(_SAME_SCORES)))
    bias, std = round(float(rng.uniform(0, 0.5)), 3), round(float(rng.uniform(0.5, 3)), 3)
    kind = int(rng.integers(10))
    if kind < 4:
        return f"gaussian:{size},std={std},bias={bias}", any_form
    if kind == 4:
        return f"gaussian:{size},std={std},bias={bias},stage=logits", any_form
    if kind == 5:
        gap = int(rng.integers(0, 5))
        return f"near_tie:{size},gap={gap},std={std}", any_form
    if kind == 6:
        # A subnormal score has a few bits: another form, or FP64, gives other weights there.
        side = str(rng.choice(["high", "low", "mixed"]))
        form = any_form if side == "high" else "rule in FP32"
        return f"saturated:{size},side={side},bias={bias}", form
    if kind == 7:
        mean = round(float(rng.uniform(-12, 12)), 2)
        return f"large_bias:{size},bias={mean},spread={bias + 0.01:.3f},std={std}", any_form
    if kind == 8:
        return f"bf16_logits:{size},std={std},bias={0 if rng.random() < 0.5 else bias}", any_form
    return str(rng.choice([f"all_equal:{size},std={std}", f"signed_zeros:{size}"])), any_form


def run_random(number: int) -> CleanResult:
    """Audit the clean pair of a number."""
    pair = random_pair(number)
    result = run_audit(
        pair.bank,
        baseline=pair.baseline,
        candidate=pair.candidate,
        rows=pair.widths,
        ranks=pair.ranks,
        gate=False,
        command=pair.command(),
    )
    failing = dict.fromkeys(
        str(reason.code) for reason in result.verdict.reasons if reason.state is State.FAIL
    )
    rows = sum(width["rows"] for width in result.record["widths"])
    return CleanResult(pair, str(result.verdict.state), tuple(failing), rows)
