"""Top-k loops as kernels write them, for faults that live inside such a loop.

Keys are [row, expert] float32; every loop fills ids [row, slot] int32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ...banks.geometry import ScoringRule
from ...kernels.contract import F32, I32, Launch, Path, Routed
from ...kernels.scores import score
from .fault import select_only

Argmax = Callable[[F32], tuple[npt.NDArray[np.int64], F32]]
"""From keys [row, expert] to the winner's id [row] and its key [row]."""


def held(launch: Launch, out: Routed) -> F32:
    """The logits [row, expert] that the select gets: the exchanged ones, or the launch's own."""
    logits = launch.logits if out.logits is None else out.logits[0]
    assert logits is not None, "a path that shows no logits is given them"
    return logits


def exchanged(clean: Path, launch: Launch, out: Routed) -> F32:
    """Run the clean path, and return the logits [row, expert] that its select got."""
    clean.run(launch, out)
    return held(launch, out)


def select_again(clean: Path, launch: Launch, out: Routed, logits: F32) -> None:
    """Fill ids and weights as the clean path selects them from other logits [row, expert]."""
    clean.run(select_only(launch, np.ascontiguousarray(logits)), Routed(out.ids, out.weights))


def scores_and_keys(launch: Launch, logits: F32) -> tuple[F32, F32]:
    """FP32 scores and biased scores [row, expert]."""
    scores = score("exp", logits)
    with np.errstate(invalid="ignore"):
        return scores, scores + launch.weights.bias


def first_of_largest(keys: F32) -> tuple[npt.NDArray[np.int64], F32]:
    """The lowest id among the largest keys: id 0 where every key is -inf."""
    ids = np.argmax(keys, axis=1)
    return ids, np.take_along_axis(keys, ids[:, None], axis=1)[:, 0]


def rounds(keys: F32, top_k: int, argmax: Argmax = first_of_largest) -> I32:
    """K rounds of argmax; a round's winner is taken out by writing -inf over its key."""
    left = keys.copy()
    ids = np.empty((len(keys), top_k), np.int32)
    rows = np.arange(len(keys))
    for slot in range(top_k):
        winner, _ = argmax(left)
        ids[:, slot] = winner
        inside = (winner >= 0) & (winner < keys.shape[1])
        left[rows[inside], winner[inside]] = -np.inf
    return ids


def top_k(keys: F32, count: int) -> I32:
    """The right loop: largest keys, the lower id first among equal ones."""
    order = np.argsort(-keys, axis=1, kind="stable")
    return np.ascontiguousarray(order[:, :count]).astype(np.int32)


def picked(values: F32, ids: npt.NDArray[Any]) -> F32:
    """Values [row, slot] of ids; 0 where an id is none."""
    inside = (ids >= 0) & (ids < values.shape[1])
    safe = np.where(inside, ids, 0).astype(np.int64)
    return np.where(inside, np.take_along_axis(values, safe, axis=1), np.float32(0.0))


def normalised(scores: F32, scoring: ScoringRule) -> F32:
    """Weights [row, slot] of selected scores: divided by their sum from left to right, scaled."""
    total = np.zeros(len(scores), np.float32)
    for slot in range(scores.shape[1]):
        total = total + scores[:, slot]
    guarded = np.where(total > 0, total, np.float32(1.0))[:, None]
    weights: F32 = (scores / guarded * np.float32(scoring.scale)).astype(np.float32)
    return weights


def write(out: Routed, ids: npt.NDArray[Any], weights: F32) -> None:
    """Write the same ids and weights [row, slot] on every rank."""
    out.ids[:] = ids
    out.weights[:] = weights


def write_selection(launch: Launch, out: Routed, scores: F32, ids: I32) -> None:
    """Write ids, and the weights that the rule gives them from these scores."""
    write(out, ids, normalised(picked(scores, ids), launch.scoring))
