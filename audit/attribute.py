"""Whether the latent errors of two paths fit the schedules that the paths declare."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ..kernels.contract import BFLOAT16, Bf16
from ..kernels.project import latent_partials, latent_shards
from ..kernels.reduce import SCHEDULES, reduce_partials
from .observed import ScheduleFit

SAMPLE_ROWS = 64
DEFAULT_ISLANDS = 2
GATHER = "gather"
"""What a path declares that rounds the full sum once and copies it."""

Triangle = tuple[float, float, float]


def fit_schedule(
    hidden: Bf16,
    weight: Bf16,
    exact: npt.NDArray[np.float64],
    observed: tuple[Bf16, Bf16],
    declared: tuple[str | None, str | None],
    ranks: int,
    width: int,
) -> ScheduleFit:
    """Return how the observed triangle compares with those of all schedules, on the same rows.

    Every schedule is run on the bank's own partials, so no law of their distribution is assumed.
    The declared schedule fits when no other is nearer, or when it is off by no more than four
    standard errors of a relative RMS over the sampled elements, 4 / sqrt(2 n).

    Args:
        hidden: [row, hidden] BF16.
        weight: [latent, hidden] BF16.
        exact: [row, latent] float64 reference.
        observed: latent [row, latent] of baseline and candidate, one rank's.
        declared: ``latent_schedule`` of baseline and candidate.
        ranks: tensor-parallel ranks.
        width: rows per launch, which a ring's slices depend on.
    """
    names = f"{declared[0] or 'nothing'} against {declared[1] or 'nothing'}"
    simulated = {name for name in (GATHER, *SCHEDULES) if _available(name, ranks)}
    if any(name is None or name.partition(":")[0] not in simulated for name in declared):
        return ScheduleFit(names, "none", math.inf, None)
    rows = max(1, min(SAMPLE_ROWS, len(hidden)) // width) * width
    if rows > len(hidden):
        rows = width = len(hidden)
    partials = latent_partials(hidden[:rows], weight, ranks)
    whole = np.concatenate(list(latent_shards(hidden[:rows], weight, ranks)), axis=1)
    results = {
        name: whole if name == GATHER else _reduced(name, partials, width)
        for name in sorted(simulated | {str(name) for name in declared})
    }
    target = _triangle(observed[0][:rows], observed[1][:rows], exact[:rows])
    distances = {
        (a, b): _distance(target, _triangle(results[a], results[b], exact[:rows]))
        for a in results
        for b in results
        if a == declared[0] or b == declared[1]
    }
    nearest = min(distances, key=lambda pair: (distances[pair], pair != declared))
    off = distances[str(declared[0]), str(declared[1])]
    tolerance = 4 / math.sqrt(2 * whole.size)
    fits = off <= max(tolerance, distances[nearest])
    return ScheduleFit(names, f"{nearest[0]} against {nearest[1]}", off, fits)


def _available(name: str, ranks: int) -> bool:
    if name == "two_level" and ranks % DEFAULT_ISLANDS:
        return False
    return name == GATHER or SCHEDULES[name].unavailable is None


def _reduced(name: str, partials: Bf16, width: int) -> Bf16:
    """Rank 0's result; a name may carry the number of islands, such as ``two_level:4``."""
    schedule, _, islands = name.partition(":")
    out = np.empty(partials.shape, BFLOAT16)
    reduce_partials(schedule, partials, out, width, int(islands or DEFAULT_ISLANDS))
    result: Bf16 = out[0]
    return result


def _triangle(a: Bf16, b: Bf16, exact: npt.NDArray[np.float64]) -> Triangle:
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    size = _norm(exact)
    return _norm(wide_a - exact) / size, _norm(wide_b - exact) / size, _norm(wide_a - wide_b) / size


def _norm(values: npt.NDArray[Any]) -> float:
    return math.sqrt(math.fsum(np.square(values).ravel().tolist()))


def _distance(a: Triangle, b: Triangle) -> float:
    """Largest relative difference of a side; a side that is 0 must be 0 on both."""
    return max(_relative(x, y) for x, y in zip(a, b, strict=True))


def _relative(x: float, y: float) -> float:
    if x == y:
        return 0.0
    return math.inf if not (x and y) else abs(math.log(x / y))
