"""How arms are timed: replays of a CUDA graph, alternated A B B A, the slowest rank per sample.

The method is the sign-off's (at least 200 graph replays x 5, slowest-rank medians); nothing here
knows what is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from .contract import F64

LEAST_REPLAYS: Final = 200
LEAST_BLOCKS: Final = 5
_WARM: Final = 3


def abba(blocks: int) -> str:
    """Return the order of two arms' blocks: A B B A, until each has at least ``blocks``.

    A drift that is linear in time moves both arms alike.

    Example:
        >>> abba(3)
        'ABBAABBA'
    """
    return "ABBA" * -(-blocks // 2)


def slowest(samples: F64) -> F64:
    """Return, per sample, the time of the slowest rank; samples are [rank, sample]."""
    return np.asarray(samples.max(axis=0), np.float64)


class Timed(NamedTuple):
    """Times of one arm, in microseconds per step, each the slowest rank's.

    ``low`` and ``high`` are the 10th and 90th percentile of the samples.
    """

    median_us: float
    low_us: float
    high_us: float
    samples: int


def summary(samples: F64) -> Timed:
    """Return what is told of an arm's samples, [rank, sample] in microseconds per step.

    Raises:
        ValueError: no sample, or one that is no positive number.
    """
    if not samples.size or not (np.isfinite(samples).all() and (samples > 0).all()):
        raise ValueError("a time that is no positive number")
    each = slowest(samples)
    low, median, high = np.percentile(each, [10, 50, 90])
    return Timed(float(median), float(low), float(high), len(each))


class Replay(Protocol):
    """An arm that can be run again and again on what its buffers hold."""

    def once(self) -> None:
        """Run it and wait until its results are there."""
        ...

    def sample(self, count: int) -> F64:
        """Run it ``count`` times; return the time [sample] of each run, in microseconds."""
        ...


class GraphReplay:
    """Work captured in a CUDA graph, timed by events on the device.

    Args:
        work: enqueues everything on the current stream; it runs three times before the capture.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        import torch

        self._cuda: Any = torch.cuda
        stream = self._cuda.Stream()
        stream.wait_stream(self._cuda.current_stream())
        with self._cuda.stream(stream):
            for _ in range(_WARM):
                work()
        self._cuda.current_stream().wait_stream(stream)
        self._cuda.synchronize()
        self._graph = self._cuda.CUDAGraph()
        # Another thread of NCCL asks for its events meanwhile, which only a capture of all threads
        # forbids.
        with self._cuda.graph(self._graph, capture_error_mode="thread_local"):
            work()
        self._cuda.synchronize()

    def once(self) -> None:
        """Run it and wait until its results are there."""
        self._graph.replay()
        self._cuda.synchronize()

    def sample(self, count: int) -> F64:
        """Run it ``count`` times; return the time [sample] of each run, in microseconds."""
        cuda = self._cuda
        marks = [[cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
        for _ in range(_WARM):
            self._graph.replay()
        for start, end in marks:
            start.record()
            self._graph.replay()
            end.record()
        cuda.synchronize()
        return np.array([start.elapsed_time(end) for start, end in marks]) * 1e3


class EagerReplay:
    """Work without a graph, timed by the host's clock: for ranks on a CPU."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    def once(self) -> None:
        """Run it."""
        self._work()

    def sample(self, count: int) -> F64:
        """Run it ``count`` times; return the time [sample] of each run, in microseconds."""
        times = []
        for _ in range(count):
            start = time.perf_counter()
            self._work()
            times.append(time.perf_counter() - start)
        return np.array(times) * 1e6
