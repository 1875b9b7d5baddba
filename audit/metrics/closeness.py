"""Whether one path is closer to the reference than the other, told row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from ...banks.errors import InputError

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Closeness:
    """Answer of the paired sign test; ``p_value`` is exact and two-sided.

    ``undefined`` pairs (a NaN on either side) and ``ties`` are no evidence for either answer.
    """

    answer: Literal["closer", "not distinguishable", "farther"]
    wins: int
    losses: int
    ties: int
    undefined: int
    p_value: float


@dataclass(frozen=True, slots=True)
class PairedErrors:
    """Rows by which of two squared errors is smaller; adds up over parts."""

    wins: int
    losses: int
    ties: int
    undefined: int


def paired_errors(err_sq_candidate: F64, err_sq_baseline: F64) -> PairedErrors:
    """Count rows [row] by the path with the smaller squared error; wins are the candidate's.

    Raises:
        InputError: lengths differ.
    """
    if err_sq_candidate.shape != err_sq_baseline.shape:
        shapes = (err_sq_baseline.shape, err_sq_candidate.shape)
        raise InputError("err_sq_baseline.shape", *shapes, "closer")
    wins = int(np.count_nonzero(err_sq_candidate < err_sq_baseline))
    losses = int(np.count_nonzero(err_sq_candidate > err_sq_baseline))
    ties = int(np.count_nonzero(err_sq_candidate == err_sq_baseline))
    return PairedErrors(wins, losses, ties, err_sq_candidate.size - wins - losses - ties)


def sign_test(pairs: PairedErrors, confidence: float = 0.95) -> Closeness:
    """Return whether the candidate is closer to the reference than the baseline.

    The exact sign test: with no difference, a row that is no tie is a win with probability 1/2.

    Args:
        pairs: rows by the smaller error.
        confidence: an answer other than "not distinguishable" needs p <= 1 - confidence.

    Raises:
        InputError: the confidence is not between 0 and 1.

    Source: W. J. Dixon, A. M. Mood, "The statistical sign test", 1946,
        https://doi.org/10.1080/01621459.1946.10501898
    """
    if not 0.0 < confidence < 1.0:
        raise InputError("confidence", confidence, "between 0 and 1", "closer")
    wins, losses = pairs.wins, pairs.losses
    p_value = min(1.0, 2.0 * float(binom.cdf(min(wins, losses), wins + losses, 0.5)))
    answer: Literal["closer", "not distinguishable", "farther"] = "not distinguishable"
    if p_value <= 1.0 - confidence:
        answer = "closer" if wins > losses else "farther"
    return Closeness(answer, wins, losses, pairs.ties, pairs.undefined, p_value)


def closer(err_sq_candidate: F64, err_sq_baseline: F64, confidence: float = 0.95) -> Closeness:
    """Return ``sign_test`` of the rows' squared errors, [row] float64 each.

    Raises:
        InputError: lengths differ, or the confidence is not between 0 and 1.
    """
    return sign_test(paired_errors(err_sq_candidate, err_sq_baseline), confidence)
