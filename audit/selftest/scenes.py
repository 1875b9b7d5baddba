"""Where a fault is planted: a bank that provokes it, and the clean pair of paths."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...banks.bank import NO_UNIT, Bank, Header, RowBlock
from ...banks.generate import row_keys
from ...banks.geometry import Geometry, ScoringRule
from ...banks.open import open_bank
from ...kernels.contract import BFLOAT16
from ..policy import Policy

F32 = npt.NDArray[np.float32]

ROWS = 40
"""Two launches of the widest width; with fewer, no launch could repeat another."""
_FRONT = "geometry=128x64x128x8"
_FEWEST_FRONT_ROWS = 12
_LOGITS = f"geometry=16x0x128x8,rows={ROWS}"
_PARTIAL_SIZE = 64


@dataclass(frozen=True, eq=False)
class Scene:
    """A bank and two paths that agree on it.

    Attributes:
        name: unique; shown where the clean pair alarms.
        make: returns the bank for a width and a number of ranks.
        baseline, candidate: specs of the clean paths.
        policy: the limits that the audit judges by.
    """

    name: str
    make: Callable[[int, int], Bank]
    baseline: str = "general:select=standalone"
    candidate: str = "route:select=standalone"
    policy: Policy = field(default_factory=Policy)


class MadeBank(Bank):
    """A bank whose rows lie in memory."""

    def __init__(self, header: Header, weights: dict[str, Any], rows: RowBlock) -> None:
        super().__init__(header, weights)
        self._rows = rows

    def _read(self, start: int, stop: int) -> RowBlock:
        part, all_rows = slice(start, stop), self._rows

        def ranked(values: npt.NDArray[Any] | None) -> npt.NDArray[Any] | None:
            return None if values is None else values[:, part]

        return RowBlock(
            start,
            stop - start,
            {name: values[part] for name, values in all_rows.keys.items()},
            logits=None if all_rows.logits is None else all_rows.logits[part],
            latent_partials=ranked(all_rows.latent_partials),
            logits_shards=ranked(all_rows.logits_shards),
        )


def _opened(name: str, spec: str, **paths: Any) -> Scene:
    return Scene(name, lambda width, ranks: open_bank(spec), **paths)


def _front(name: str, **paths: Any) -> Scene:
    """Hidden rows through all stages: two launches, or a few more of narrow ones."""

    def make(width: int, ranks: int) -> Bank:
        rows = max(2 * width, _FEWEST_FRONT_ROWS)
        return open_bank(f"gaussian:{_FRONT},rows={rows},seed=3,bias=0.3")

    return Scene(name, make, **paths)


def _changed(
    name: str,
    spec: str,
    change: Callable[[F32], F32],
    scoring: ScoringRule | None = None,
    no_bias: bool = False,
    **paths: Any,
) -> Scene:
    """Logits rows of a generator with their values changed, and perhaps another scoring rule."""

    def make(width: int, ranks: int) -> Bank:
        base = open_bank(spec)
        rows = base.read(0, base.rows)
        assert rows.logits is not None
        digest = hashlib.sha256(f"{name} {base.digest}".encode()).hexdigest()
        header = replace(
            base.header,
            name=f"{base.name}+{name}",
            digest=digest,
            independence_unit=NO_UNIT,
            scoring=scoring or base.scoring,
        )
        weights = base.weights
        if no_bias:
            # Added to -0, a bias of +0 would make it +0.
            weights["correction_bias"] = np.full(base.geometry.experts, -0.0, np.float32)
        return MadeBank(header, weights, replace(rows, logits=change(rows.logits)))

    return Scene(name, make, **paths)


def _with_bias(name: str, spec: str, change: Callable[[F32], F32], **paths: Any) -> Scene:
    def make(width: int, ranks: int) -> Bank:
        base = open_bank(spec)
        return base.with_weights(correction_bias=change(base.weights["correction_bias"].copy()))

    return Scene(name, make, **paths)


def _few_allowed(bias: F32) -> F32:
    """All experts but three are switched off by an infinite negative bias."""
    off = np.ones(len(bias), np.bool_)
    off[[17, 50, 101]] = False
    bias[off] = -np.inf
    return bias


def _one_nan(logits: F32) -> F32:
    changed = logits.copy()
    rows = np.arange(len(logits))
    changed[rows, (7 * rows + 3) % logits.shape[1]] = np.nan
    return changed


def _some_normal(logits: F32) -> F32:
    """Four logits of a row rise to where the FP32 sigmoid is a normal number."""
    changed = logits.copy()
    highest = np.argsort(-logits, axis=1)[:, :4]
    raised = np.take_along_axis(logits, highest, axis=1) + np.float32(16.0)
    np.put_along_axis(changed, highest, raised, axis=1)
    return changed


def _mostly_zeros(logits: F32) -> F32:
    """Four logits of a row are its own; the others are zeros, -0 for every even expert."""
    zeros = np.where(np.arange(logits.shape[1]) % 2, np.float32(0.0), np.float32(-0.0))
    changed = np.tile(zeros, (len(logits), 1))
    highest = np.argsort(-logits, axis=1)[:, :4]
    np.put_along_axis(changed, highest, np.take_along_axis(logits, highest, axis=1), axis=1)
    return changed


def _cancelling_partials(width: int, ranks: int) -> Bank:
    """Partials whose FP32 sum depends on the order.

    Large values of ranks 0 and 1 cancel: exactly before the small ones are added, and with a
    rounding of the small ones after.
    """
    geometry = Geometry("selftest-partials", _PARTIAL_SIZE, _PARTIAL_SIZE, _PARTIAL_SIZE, 4)
    rng = np.random.default_rng(5)
    partials = rng.standard_normal((ranks, ROWS, _PARTIAL_SIZE))
    if ranks > 1:
        partials[0], partials[1] = 2.0**20, -(2.0**20)
    shards = rng.standard_normal((ranks, ROWS, _PARTIAL_SIZE // ranks)).astype(np.float32)
    rows = RowBlock(
        0,
        ROWS,
        row_keys(0, ROWS),
        latent_partials=partials.astype(BFLOAT16),
        logits_shards=shards,
    )
    name = f"cancelling-partials-{ranks}"
    header = Header(
        name=name,
        rows=ROWS,
        geometry=geometry,
        scoring=ScoringRule(),
        tie_contract="unspecified",
        independence_unit=NO_UNIT,
        stage="partials",
        digest=hashlib.sha256(name.encode()).hexdigest(),
        ranks=ranks,
    )
    return MadeBank(header, {"correction_bias": np.zeros(_PARTIAL_SIZE, np.float32)}, rows)


def biased_by(mean: float) -> Scene:
    """Logits far below 0 under a bias of this mean, which swallows most bits of the scores."""
    return _changed(
        f"bias of {mean:g}",
        f"large_bias:{_LOGITS},seed=3,bias={mean:g},spread=0.3",
        lambda logits: logits - 8,
    )


_GROUPED: Final[dict[str, Any]] = {
    "baseline": "general:select=grouped",
    "candidate": "route:select=grouped",
}
_EXACT_SCORES: Final[dict[str, Any]] = {
    "baseline": "general:select=hf",
    "candidate": "route:select=hf",
}

FRONT = _front("front", baseline="general", candidate="route")
"""Hidden rows through all stages, by the default pair."""
GENERAL_FRONT = _front("front with a general candidate", baseline="route", candidate="general")
"""The same, where the candidate is the path that reduces partials."""
SELECT = _opened("select", f"gaussian:{_LOGITS},seed=3,stage=logits,bias=0.3")
"""Logits with a bias that decides most selections."""
LARGE_BIAS = _opened("bias of 7", f"large_bias:{_LOGITS},seed=3,bias=7,spread=0.3")
"""A bias whose BF16 steps are 1/32 wide."""
MANY_ROWS = _opened(
    "many rows", "gaussian:geometry=16x0x128x8,rows=400,seed=3,stage=logits,bias=0.3"
)
"""Enough rows for every expert to be chosen several times."""
SCALED = _opened(
    "scaled", f"gaussian:geometry=k2,hidden=16,experts=128,rows={ROWS},seed=3,stage=logits"
)
"""A scoring rule whose scale is not 1."""
NEGATIVE_BIAS = _opened("negative bias", f"large_bias:{_LOGITS},seed=3,bias=-7,spread=0.3")
"""Every biased score is below -1."""
MINUS_INFINITY = _with_bias(
    "bias of minus infinity", f"gaussian:{_LOGITS},seed=3,stage=logits,bias=0.3", _few_allowed
)
"""Fewer experts than slots have a finite key."""
GROUPS = _opened(
    "groups",
    f"large_bias:geometry=deepseek-v3,hidden=64,rows={ROWS},seed=3,bias=-2,spread=0.3",
    **_GROUPED,
)
"""Eight expert groups, of which four, under a negative bias."""
NAN = _changed("one NaN a row", f"gaussian:{_LOGITS},seed=3,stage=logits,bias=0.3", _one_nan)
"""One logit of every row is NaN; enough finite ones remain."""
ZERO_SCORES = _changed(
    "scores of zero",
    f"gaussian:{_LOGITS},seed=3,stage=logits,bias=0.3",
    lambda x: x - 200,
    **_EXACT_SCORES,
)
"""Every FP32 sigmoid is exactly 0, and so is the rule's weight: the bias alone selects."""
SUBNORMAL = _changed(
    "subnormal scores",
    f"saturated:{_LOGITS},seed=3,side=low,bias=0",
    _some_normal,
    **_EXACT_SCORES,
)
"""Four FP32 sigmoids of a row are normal, and the others subnormal."""
SATURATED = _opened("saturated scores", f"saturated:{_LOGITS},seed=3,side=high,bias=0.3")
"""Every FP32 sigmoid is exactly 1; logits reach 90, where exp overflows."""
NARROW_GAPS = _opened("gaps of 25 ULP", f"near_tie:{_LOGITS},seed=3,gap=25")
"""The last slot and the next expert are 25 ULP apart."""
_LOWER_ID = Policy(tie_contract="lower_id")
EXACT_TIES = _opened("exact ties", f"near_tie:{_LOGITS},seed=3,gap=0", policy=_LOWER_ID)
"""The last slot and the next expert tie, and the lower id must win."""
SIGNED_ZEROS = _changed(
    "signed zeros",
    f"gaussian:{_LOGITS},seed=3,stage=logits",
    _mostly_zeros,
    ScoringRule("identity"),
    no_bias=True,
    policy=_LOWER_ID,
    **_EXACT_SCORES,
)
"""Zeros of both signs reach the keys, and the lower id must win."""
PARTIALS = Scene(
    "cancelling partials", _cancelling_partials, "general", "general:select=standalone"
)
"""Partial sums that tell in which order they are added."""
