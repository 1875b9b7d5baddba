"""The error triangle that a declared reduction schedule must show on Gaussian data."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from .contract import BFLOAT16, F64
from .reduce import reduce_partials
from .rounding import narrow, rounded, widen

_LAUNCHES, _WIDTH, _LATENT = 8, 8, 4096


class PredictedTriangle(NamedTuple):
    """Relative RMS of each pair, and the correlation of the two errors.

    The candidate is the route path (one rounding of the exact sum); the baseline is the general
    path with the named schedule.
    """

    candidate_reference: float
    baseline_reference: float
    candidate_baseline: float
    rho: float


def _norm(values: F64) -> float:
    return math.sqrt(math.fsum(np.square(values).ravel().tolist()))


@lru_cache(maxsize=64)
def predicted_triangle(
    schedule: str, ranks: int, seed: int = 0, islands: int = 2
) -> PredictedTriangle:
    """The triangle of a schedule, computed with the real reduction on Gaussian partials.

    Partials are independent and of equal variance, 2^18 elements in 8 launches; the truth is their
    FP64 sum. The columns' scales spread evenly over one binade, because the place in it moves the
    figures by up to 1%. Where ranks disagree, rank 0 is taken.

    Args:
        schedule: a name of ``reduce.SCHEDULES`` that runs here.
        ranks: number of partials.
        seed: seed of the partials.
        islands: for ``two_level``.

    Raises:
        EnvelopeError: the schedule cannot run here, or ``islands`` does not divide ``ranks``.
    """
    random = np.random.default_rng(seed)
    exact = random.standard_normal((ranks, _LAUNCHES * _WIDTH, _LATENT))
    exact *= 1.0 + np.arange(_LATENT) / _LATENT
    truth = exact[0]
    for piece in exact[1:]:
        truth = truth + piece
    partials = narrow(exact.astype(np.float32))
    reduced = np.empty(partials.shape, BFLOAT16)
    reduce_partials(schedule, partials, reduced, _WIDTH, islands)
    baseline = widen(reduced[0]).astype(np.float64)
    candidate = rounded(truth.astype(np.float32)).astype(np.float64)
    size = _norm(truth)
    c, b = _norm(candidate - truth) / size, _norm(baseline - truth) / size
    apart = _norm(candidate - baseline)
    rho = (c * c + b * b - (apart / size) ** 2) / (2.0 * c * b)
    return PredictedTriangle(c, b, apart / _norm(baseline), rho)
